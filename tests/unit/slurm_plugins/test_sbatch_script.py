# SPDX-License-Identifier: Apache-2.0
"""#SBATCH lines as sbatch reads them, and how `explain` finds the script among the words."""

from __future__ import annotations

import pytest

from fairwatt.core.errors import GrammarError
from fairwatt.slurm_plugins.explain import submission
from fairwatt.slurm_plugins.sbatch_script import is_script, script_flags


def test_lines_up_to_the_first_command_count():
    text = """#!/bin/bash
# SBATCH -n 7
#SBATCH --gres=gpu:20gb:1   # one slice
#SBATCH -p "gpu" --time=1:00:00

#SBATCHx -n 8
#SBATCH
module load cuda
#SBATCH -n 9
"""
    assert script_flags(text) == ["--gres=gpu:20gb:1", "-p", "gpu", "--time=1:00:00"]


def test_only_the_first_part_of_a_heterogeneous_job_counts():
    assert script_flags("#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\n") == ["-n1"]


def test_an_open_quote_is_named():
    with pytest.raises(GrammarError, match="close the quote"):
        script_flags("#!/bin/sh\n#SBATCH --comment='x\n")


def test_flags_of_the_command_line_go_before_those_of_the_script(tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:1 -p gpu -n 2\n")
    fields, rest = submission(["-p", "mig", str(script), "--gres=gpu:9"])
    assert fields["partition"] == "mig"
    assert fields["num_tasks"] == 2
    assert rest == []


def test_what_follows_the_script_is_the_scripts_own(tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:1\n")
    fields, _ = submission([str(script), "--gres=gpu:9", "-n", "5"])
    assert fields == {"tres_per_node": "gres/gpu:1", "has_script": 1}


def test_a_script_begins_with_its_interpreter(tmp_path):
    (tmp_path / "data").write_text("x")
    assert not is_script(str(tmp_path / "data"))
    assert not is_script(str(tmp_path / "none"))
    assert not is_script(str(tmp_path))
