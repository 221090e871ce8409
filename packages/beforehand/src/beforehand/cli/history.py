"""`replay`, `fork` and `export`: run an agent's code against a record, begin a run from one, write one as a fixture."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from beforehand.cli.apps import agents_for
from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.exit_status import DIVERGED, DONE
from beforehand.errors import UsageError
from beforehand.inspect.export import export as write_down
from beforehand.inspect.text import count, safe_json
from beforehand.model.shell import to_type


@command("replay", examples=("beforehand replay ticket-17", "beforehand replay ticket-17 --agent desk.py:refund_desk"))
@click.argument("run")
@click.option("--agent", "targets", multiple=True, metavar="TARGET", help="The location of its code, if it has moved.")
async def replay(call: CommandCall, run: str, targets: tuple[str, ...]) -> int:
    """Recompute RUN from its record with the code of today. Nothing is sent or recorded.

    It ends at the first step that is not on record, and reports where the code has diverged
    (exit status 4).
    """
    from beforehand.inspect.replay import replay as recompute  # noqa: PLC0415 - `fork` needs no agent's code

    async with call.reader() as reader:
        found = await recompute(reader, run, await agents_for(call, reader, run, targets))
    status = DONE if found.agrees else DIVERGED
    if call.screen.wrote_json(found):
        return status
    verdict = ("agrees with its record", "bold green") if found.agrees else ("diverged", "bold red")
    call.screen.line((found.run, "bold"), " ", verdict, f" ({count(found.records, 'record')})")
    end = "" if found.end == "diverged" else found.end
    for label, text in (("it ends with", end), ("at", found.at), ("in", found.where)):
        if text:
            call.screen.line(f"  {label} {text}")
    if found.difference:
        call.screen.block(found.difference)
    if found.next_step:
        call.screen.next(found.next_step)
    return status


@command("fork", examples=("beforehand fork ticket-17 --at send_email#1 --as ticket-17-again",))
@click.argument("run")
@click.option("--at", "step", required=True, metavar="STEP", help="The first step that is not inherited.")
@click.option("--as", "new", required=True, metavar="RUN", help="The name of the new run.")
@by_option
async def fork(call: CommandCall, run: str, step: str, new: str, by: str) -> None:
    """Start a new run from what RUN had done before STEP.

    The new run inherits outcomes as references, so their effects are not repeated; later
    steps have names and keys of their own. Nothing is sent before you resume the new run.
    A write that RUN also made after STEP is sent again only after a person approved it.
    """
    from beforehand.inspect.fork import fork as begin  # noqa: PLC0415 - `replay` does not need it

    async with call.serving() as service:
        forked = await begin(service.engine, run, step, new, by)
    if call.screen.wrote_json(forked):
        return
    call.screen.line(
        (new, "bold"), f" begins like {run} before {step}: {count(len(forked.inherited), 'inherited step')}."
    )
    if forked.again:
        call.screen.line(f"{run} did these after it; before the fork does one again, a person is asked:")
        for operation in forked.again:
            call.screen.line(f"  {operation}")
    call.screen.next(to_type("resume", new))


@command(
    "export",
    examples=("beforehand export ticket-17 -o tests/runs/ticket-17.json", "beforehand export ticket-17 | jq .records"),
)
@click.argument("run")
@click.option("-o", "--output", metavar="FILE", help="Write it there instead of to standard output.")
async def export(call: CommandCall, run: str, output: str | None) -> None:
    """Write RUN as a fixture: JSON that a test replays against the agent's code.

    It holds what the journal stores of the run: no secrets, no redacted values,
    no names of machines. A run that has not ended is written as far as it got. In
    a test: beforehand.testing.replay_fixture(agent, FILE).
    """
    async with call.reader() as reader:
        found, text = await write_down(reader, run)
    if output is None:
        sys.stdout.write(safe_json(text.decode()) if sys.stdout.isatty() else text.decode())
        return
    _write(output, text)
    if call.screen.wrote_json({"run": run, "file": output, "records": len(found.records), "whole": found.whole}):
        return
    rest = "" if found.whole else "; the run has not ended"
    call.screen.line((run, "bold"), f" written to {output} ({count(len(found.records), 'record')}{rest})")
    call.screen.line(("In a test: ", "dim"), f"beforehand.testing.replay_fixture({found.agent}, {output!r})")


def _write(output: str, text: bytes) -> None:
    try:
        Path(output).write_bytes(text)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}", next_step="name another file") from error
