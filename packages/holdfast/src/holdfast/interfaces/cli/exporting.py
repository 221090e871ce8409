"""`export`: a run as a file that a test replays."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from holdfast.errors import UsageError
from holdfast.interfaces.cli.common import Call, command
from holdfast.interfaces.cli.words import count, safe_json
from holdfast.interfaces.exporting import export as write_down


@command(
    "export",
    examples=("holdfast export ticket-17 -o tests/runs/ticket-17.json", "holdfast export ticket-17 | jq .records"),
)
@click.argument("run")
@click.option("-o", "--output", metavar="FILE", help="Write it there instead of to standard output.")
async def export(call: Call, run: str, output: str | None) -> None:
    """Write RUN as a fixture: JSON that a test replays against the agent's code.

    It holds what the journal stores of the run: no secrets, no redacted values,
    no names of machines. A run that has not ended is written as far as it got. In
    a test: holdfast.testing.replay_fixture(agent, FILE).
    """
    async with call.looking() as looking:
        found, text = await write_down(looking, run)
    if output is None:
        sys.stdout.write(safe_json(text.decode()) if sys.stdout.isatty() else text.decode())
        return
    _write(output, text)
    if call.screen.as_json:
        call.screen.document({"run": run, "file": output, "records": len(found.records), "whole": found.whole})
        return
    rest = "" if found.whole else "; the run has not ended"
    call.screen.line((run, "bold"), f" written to {output} ({count(len(found.records), 'record')}{rest})")
    call.screen.line(("In a test: ", "dim"), f"holdfast.testing.replay_fixture({found.agent}, {output!r})")


def _write(output: str, text: bytes) -> None:
    try:
        Path(output).write_bytes(text)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}", next_step="name another file") from error
