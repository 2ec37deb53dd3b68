# SPDX-License-Identifier: Apache-2.0
"""`fairwatt completion`: the text that makes a shell complete commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_FAIRWATT_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    fairwatt completion bash > /usr/share/bash-completion/completions/fairwatt
    """  # noqa: D301 (click reads \b)
    found = get_completion_class(shell)
    assert found is not None, "click brings all three"  # noqa: S101
    root = click.get_current_context().find_root().command
    made = found(root, {}, "fairwatt", _VARIABLE)
    # Not made.source(): for bash it starts bash to ask for its version.
    click.echo(made.source_template % made.source_vars())
