# SPDX-License-Identifier: Apache-2.0
"""job_submit.lua beside its settings file and the site's own script."""

from __future__ import annotations

import pytest

from tests.fakes.job_desc import Hook


def test_missing_or_broken_settings_give_defaults_and_a_line_in_the_log(tmp_path, far):
    for text in (None, "return 5", "syntax error here", "return { deadline_ms = 'x' }"):
        hook = Hook(tmp_path, far, settings=text)
        assert hook.submit({"tres_per_node": "gres:gpu:a100:1"}).accepted
        (tmp_path / "fairwatt_hook.lua").unlink(missing_ok=True)


class TestSiteScript:
    def with_site(self, tmp_path, far, body, mode="open"):
        site = tmp_path / "site.lua"
        site.write_text(body)
        text = f'return {{ fail_mode = "{mode}", site_script = "{site}" }}'
        return Hook(tmp_path, far, settings=text)

    def test_it_runs_first_and_ours_judges_the_result(self, tmp_path, far):
        body = 'function slurm_job_submit(j) j.partition = "mig" return slurm.SUCCESS end'
        out = self.with_site(tmp_path, far, body).submit({"tres_per_node": "gres:gpu:a100:1"})
        assert not out.accepted

    def test_its_refusal_stands(self, tmp_path, far):
        body = "function slurm_job_submit() return 2015 end"
        out = self.with_site(tmp_path, far, body).submit({"tres_per_node": "gres:gpu:a100:1"})
        assert out.code == 2015
        assert far.connects == 0

    @pytest.mark.parametrize("body", ["function slurm_job_submit() error('x') end", "syntax ("])
    def test_its_failure_does_not_reach_slurm(self, tmp_path, far, body):
        out = self.with_site(tmp_path, far, body).submit({"tres_per_node": "gres:gpu:A100:1"})
        assert out.accepted
        assert out.fields["tres_per_node"] == "gres:gpu:a100:1"
