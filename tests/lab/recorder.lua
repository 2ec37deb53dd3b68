-- SPDX-License-Identifier: Apache-2.0
-- A submit hook that leaves an admin comment, to see how far it travels.
function slurm_job_submit(job_desc, part_list, submit_uid)
  job_desc.admin_comment = 'fairwatt:{"v":1,"asked":"' .. (job_desc.tres_per_node or "") .. '"}'
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
return slurm.SUCCESS
