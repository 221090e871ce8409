"""Commands about what a run has been: `replay` and `fork`."""

from __future__ import annotations

import click

from holdfast.interfaces.cli.apps import agents_for
from holdfast.interfaces.cli.common import Call, by_option, command
from holdfast.interfaces.cli.status import DIVERGED, DONE
from holdfast.interfaces.cli.words import count


@command("replay", examples=("holdfast replay ticket-17", "holdfast replay ticket-17 --agent desk.py:refund_desk"))
@click.argument("run")
@click.option("--agent", "targets", multiple=True, metavar="TARGET", help="Where its code is, if it has moved.")
async def replay(call: Call, run: str, targets: tuple[str, ...]) -> int:
    """Recompute RUN from its record with the code of today. Nothing is sent or recorded.

    It ends at the first step that the record does not hold, and says where the
    code has diverged (exit status 4).
    """
    from holdfast.interfaces.replaying import replay as recompute  # noqa: PLC0415 - `fork` needs no agent's code

    async with call.looking() as looking:
        found = await recompute(looking, run, await agents_for(call, looking, run, targets))
    status = DONE if found.agrees else DIVERGED
    if call.screen.as_json:
        call.screen.document(found)
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


@command("fork", examples=("holdfast fork ticket-17 --at send_email#1 --as ticket-17-again",))
@click.argument("run")
@click.option("--at", "step", required=True, metavar="STEP", help="The new run goes its own way from here.")
@click.option("--as", "new", required=True, metavar="RUN", help="The name of the new run.")
@by_option
async def fork(call: Call, run: str, step: str, new: str, by: str) -> None:
    """Start a new run from what RUN had done before STEP.

    Outcomes are inherited as references and are not done again; what follows has
    its own name and its own keys. Nothing is sent before you resume the new run, and
    a write that RUN did itself after STEP is asked about before it is sent again.
    """
    from holdfast.interfaces.forking import fork as begin  # noqa: PLC0415 - `replay` does not need it

    async with call.serving() as service:
        forked = await begin(service.engine, run, step, new, by)
    if call.screen.as_json:
        call.screen.document(forked)
        return
    call.screen.line(
        (new, "bold"), f" begins like {run} before {step}: {count(len(forked.inherited), 'inherited step')}."
    )
    if forked.again:
        call.screen.line(f"{run} did these after it; before the fork does one again, a person is asked:")
        for operation in forked.again:
            call.screen.line(f"  {operation}")
    call.screen.next(f"holdfast resume {new}")
