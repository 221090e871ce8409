"""The reference page of the command line, made from the commands; and `completion`.

`python -m beforehand.cli.reference > docs/reference/cli.md` writes the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import click
from click.shell_completion import get_completion_class

from beforehand.cli.common import CommandCall, command
from beforehand.cli.exit_status import MEANINGS
from beforehand.cli.main import COMMANDS, main
from beforehand.errors import UsageError

_HEAD: Final = """\
# Command line

Every command takes `--json`: then standard output holds one JSON document and nothing else. Remarks and
errors go to standard error; an error says what happened, what is known, and what to do next. With `--json`
an error is a document too: `{"error": {"error", "message", "known", "next_step", "exit_status"}}`.

Text is laid out for the width of the terminal, 80 columns in a pipe. `NO_COLOR` is respected, and a pipe gets
no colours. What models and tools wrote is shown with its control characters spelled out.

## Which journal

`--journal PATH`, else the variable `BEFOREHAND_JOURNAL`, else `journal` under `[tool.beforehand]` in the nearest
`pyproject.toml` (relative to that file), else `./beforehand.db`. Only `run` and `worker` create a journal.
That table is read where the file and its directory belong to you or to root, or where
`BEFOREHAND_TRUSTED_PROJECTS` names the directory.

```toml
[tool.beforehand]
journal = "var/desk.db"
agents = ["desk.py:refund_desk"]  # for worker, resume, replay and tools, where no TARGET is given
```

## Which code

A TARGET is `file.py:name` or `module:name`; the agent brings its tools. `run` notes in the journal where it
found an agent, so that `resume` and `replay` find it again without a TARGET. Commands that only read or
decide (`ps`, `show`, `why`, `inbox`, `resolve`, `answer`, `signal`, `cancel`, `pause`, `export`, `fork`, `verify`,
`doctor`) load no code of yours at all.

## Exit status

| status | meaning |
|---|---|
"""

_COMPLETION: Final = """
## Shell completion

`beforehand completion bash`, `zsh` or `fish` prints the script that lets the shell complete commands and options.
Put it where your shell looks for such scripts, as the examples of that command do.
"""


def reference() -> str:
    """The whole page."""
    statuses = "".join(f"| {status} | {meaning} |\n" for status, meaning in MEANINGS.items())
    return "\n".join([_HEAD + statuses + _COMPLETION, *(_section(name) for name in COMMANDS)])


def _section(name: str) -> str:
    root = click.Context(main, info_name="beforehand", **main.context_settings)
    command = main.get_command(root, name)
    assert command is not None, name
    return "\n".join(["## beforehand " + name + "\n", *_help(command, name, root)])


def _help(command: click.Command, name: str, above: click.Context) -> Iterator[str]:
    """The help of a command, and of those below it."""
    context = click.Context(command, info_name=name, parent=above, terminal_width=80, max_content_width=80)
    yield f"```text\n{command.get_help(context).strip()}\n```\n"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            inner = command.get_command(context, below)
            assert inner is not None, below
            yield from _help(inner, below, context)


if __name__ == "__main__":
    sys.stdout.write(reference())


_SHELLS = ("bash", "zsh", "fish")


@command(
    "completion",
    examples=(
        "beforehand completion bash >> ~/.bashrc",
        "beforehand completion zsh >> ~/.zshrc",
        "beforehand completion fish > ~/.config/fish/completions/beforehand.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, call: CommandCall, shell: str) -> None:
    """Print the completion script for SHELL."""
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"no completion for {shell}", known=f"known: {', '.join(_SHELLS)}")
    script = kind(context.find_root().command, {}, "beforehand", "_BEFOREHAND_COMPLETE").source()
    if not call.screen.wrote_json({"shell": shell, "script": script}):
        click.echo(script)
