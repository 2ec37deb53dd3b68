-- SPDX-License-Identifier: Apache-2.0
--
-- Proves that this Lua can run the submit hook: `lua5.1 selftest.lua FOLDER/job_submit.lua`.
-- Loads the hook as slurmctld does and submits one GPU job to the policy daemon that the hook's
-- settings name. What is wrong goes to stderr, with status 1; no job is made anywhere.

local path = arg[1]
if not path then
  io.stderr:write("usage: selftest.lua FOLDER/job_submit.lua\n")
  os.exit(2)
end

local function fail(text)
  io.stderr:write(text, "\n")
  os.exit(1)
end

for _, name in ipairs({ "socket", "socket.unix" }) do
  local found = pcall(require, name)
  if not found then fail(_VERSION .. " has no module " .. name .. ": install LuaSocket for it") end
end

local complaint = nil
local function listen(_, text)
  text = tostring(text)
  if text:find("could not be applied", 1, true) or text:find("is not used", 1, true) then
    complaint = complaint or text
  end
end
slurm = {
  SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294, GRES_ALLOW_TASK_SHARING = 1,
  log_info = listen, log_user = listen, log_error = listen, log_debug = listen,
}

local chunk, why = loadfile(path)
if not chunk then fail("cannot be loaded by " .. _VERSION .. ": " .. tostring(why)) end
local loaded, result = pcall(chunk)
if not loaded then fail("fails in " .. _VERSION .. ": " .. tostring(result)) end
if type(slurm_job_submit) ~= "function" or type(slurm_job_modify) ~= "function" then
  fail(path .. " defines no slurm_job_submit and slurm_job_modify")
end

slurm_job_submit({ tres_per_node = "gres/gpu:1", user_id = 0, num_tasks = 1 }, {}, 0)
if complaint then fail(complaint) end
print("the hook works with " .. _VERSION)
