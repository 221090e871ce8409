"""`completion`: the script that lets a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast.errors import UsageError
from holdfast.interfaces.cli.common import Call, command

_SHELLS = ("bash", "zsh", "fish")


@command(
    "completion",
    examples=(
        "holdfast completion bash >> ~/.bashrc",
        "holdfast completion zsh >> ~/.zshrc",
        "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, call: Call, shell: str) -> None:
    """Print the completion script for SHELL."""
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"no completion for {shell}", known=f"known: {', '.join(_SHELLS)}")
    script = kind(context.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    if call.screen.as_json:
        call.screen.document({"shell": shell, "script": script})
    else:
        click.echo(script)
