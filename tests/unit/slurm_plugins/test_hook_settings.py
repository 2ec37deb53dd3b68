# SPDX-License-Identifier: Apache-2.0
"""job_submit.lua beside its settings file and the site's own script, in either order."""

from __future__ import annotations

import pytest

from tests.fakes.job_desc import Hook

ASKED = {"tres_per_node": "gres:gpu:A100:1"}
SITE_FAILED = "fairwatt: the site's own submit script failed; "


def test_missing_or_broken_settings_give_defaults_and_a_line_in_the_log(tmp_path, far):
    for text in (None, "return 5", "syntax error here", "return { deadline_ms = 'x' }"):
        hook = Hook(tmp_path, far, settings=text)
        assert len(hook.logged) == 1
        assert hook.submit({"tres_per_node": "gres:gpu:a100:1"}).accepted
        (tmp_path / "fairwatt_hook.lua").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("jobs", "cpu"), ("site_order", "last"), ("fail_mode", "shut"), ("deadline_ms", 0),
     ("deadline_ms", 1001), ("breaker_s", 31), ("jobs", True)],
)  # fmt: skip
def test_a_wrong_value_is_named_in_the_log_and_its_default_holds(tmp_path, far, name, value):
    shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
    hook = Hook(tmp_path, far, settings=f"return {{ {name} = {shown} }}")
    assert hook.logged[0].startswith(f"fairwatt: fairwatt_hook.lua: {name} is not used, ")
    assert hook.submit({"num_tasks": 1}).accepted
    assert far.connects == 0


class TestSiteScript:
    def with_site(self, tmp_path, far, body, mode="open", order="before"):
        site = tmp_path / "site.lua"
        site.write_text(body)
        text = f'return {{ fail_mode = "{mode}", site_script = "{site}", site_order = "{order}" }}'
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

    @pytest.mark.parametrize("order", ["before", "after"])
    @pytest.mark.parametrize("body", ["function slurm_job_submit() error('x') end", "syntax ("])
    def test_its_failure_is_passed_over_where_the_mode_is_open(self, tmp_path, far, body, order):
        out = self.with_site(tmp_path, far, body, order=order).submit(dict(ASKED))
        assert out.accepted
        assert out.fields["tres_per_node"] == "gres:gpu:a100:1"
        assert [line for line in out.said if SITE_FAILED in line] == [
            SITE_FAILED + "it is passed over"
        ]
        assert len(out.logged) == 1

    @pytest.mark.parametrize("order", ["before", "after"])
    @pytest.mark.parametrize("body", ["function slurm_job_submit() error('x') end", "syntax ("])
    def test_and_refuses_where_it_is_closed(self, tmp_path, far, body, order):
        out = self.with_site(tmp_path, far, body, "closed", order).submit(dict(ASKED))
        assert not out.accepted
        assert out.said[-1] == SITE_FAILED + "the request is refused, try again in a minute"
        assert len(out.logged) == 1

    def test_after_ours_it_sees_what_ours_made(self, tmp_path, far):
        body = (
            "function slurm_job_submit(j)"
            ' if j.tres_per_node == "gres:gpu:a100:1" then j.comment = "seen" end return 0 end'
        )
        out = self.with_site(tmp_path, far, body, order="after").submit(dict(ASKED))
        assert out.fields["comment"] == "seen"

    def test_after_ours_its_refusal_refuses(self, tmp_path, far):
        body = "function slurm_job_submit() return 2015 end"
        out = self.with_site(tmp_path, far, body, order="after").submit(dict(ASKED))
        assert (out.accepted, out.code) == (False, 2015)
        assert far.lines

    def test_after_ours_it_does_not_see_what_ours_refused(self, tmp_path, far):
        body = "function slurm_job_submit(j) j.comment = 'seen' return 0 end"
        hook = self.with_site(tmp_path, far, body, order="after")
        out = hook.submit({"tres_per_node": "gres:gpu:h10:1"})
        assert (out.code, out.fields) == (2072, {})

    @pytest.mark.parametrize("order", ["before", "after"])
    def test_it_judges_jobs_without_gpus_and_changes_too(self, tmp_path, far, order):
        body = (
            "function slurm_job_submit() return 2015 end "
            "function slurm_job_modify(j, r, p, uid) return uid + 1 end"
        )
        hook = self.with_site(tmp_path, far, body, order=order)
        assert hook.submit({}).code == 2015
        assert hook.modify({}, {}, uid=2014).code == 2015

    def test_what_it_returns_that_is_no_number_is_success_as_in_slurm(self, tmp_path, far):
        body = "function slurm_job_submit() return slurm.ESLURM_NO_SUCH end"
        assert self.with_site(tmp_path, far, body).submit(dict(ASKED)).accepted
