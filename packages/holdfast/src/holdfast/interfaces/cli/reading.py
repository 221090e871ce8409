"""Commands that only look at one run: `show` and `why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from holdfast.engine.seams import SystemClock
from holdfast.errors import UsageError
from holdfast.interfaces.cli.common import Call, command
from holdfast.interfaces.cli.rules import then_text
from holdfast.interfaces.cli.screen import Screen, grid, phrase
from holdfast.interfaces.cli.story import Following, show_state, show_timeline
from holdfast.interfaces.cli.undriven import Finder
from holdfast.interfaces.cli.words import safe
from holdfast.interfaces.explaining import Explanation, explain
from holdfast.interfaces.judging import facts_text
from holdfast.interfaces.states import state_at
from holdfast.interfaces.telling import stored
from holdfast.interfaces.timeline import timeline
from holdfast.journal.host import wall_ms
from holdfast.model.situation import Now

if TYPE_CHECKING:
    from rich.console import RenderableType

_POLL_S: Final = 0.3  # between two looks of `show --follow`


@command(
    "show",
    examples=("holdfast show ticket-17", "holdfast show ticket-17 --at refund#1", "holdfast show ticket-17 --follow"),
)
@click.argument("run")
@click.option("--at", "step", metavar="STEP", help="The state when this step (or record number) was recorded.")
@click.option("--follow", is_flag=True, help="Go on showing what is recorded until the run has ended.")
async def show(call: Call, run: str, step: str | None, follow: bool) -> None:
    """Show the timeline of RUN: each effect on a line, and below it what happened to it.

    With --at the state of the run as it was when that step got its outcome, and the
    step in full. With --follow new lines are added as they are recorded; interrupting
    it does not disturb the run.
    """
    if follow:
        if call.screen.as_json or step is not None:
            raise UsageError("--follow goes with neither --json nor --at", next_step=f"holdfast show {run} --follow")
        await _follow(call, run)
        return
    async with call.looking() as looking:
        told = await looking.told(run)
        undriven = await Finder(looking, wall_ms()).find(await looking.row(run))
    if step is not None:
        state = state_at(run, told, step)
        if call.screen.as_json:
            call.screen.document(state)
        else:
            show_state(call.screen, state)
        return
    story = timeline(run, (record for _, record in told))
    if call.screen.as_json:
        call.screen.document(story)
    else:
        show_timeline(call.screen, story, undriven)


async def _follow(call: Call, run: str) -> None:
    """Show the run and what is added to it, until it has ended."""
    clock, following, last, status = SystemClock(), Following(call.screen), 0, ""
    while status not in {"completed", "stopped", "undone"}:
        async with call.looking() as looking:
            if not last or await looking.journal.read(run, last, 1):
                told = await looking.told(run)
                story = timeline(run, [record for _, record in told])
                following.show(story)
                last, status = told[-1][0].seq, story.status
        await clock.sleep(_POLL_S)


@command("why", examples=("holdfast why ticket-17/refund#1", "holdfast why ticket-17/refund#1 --json"))
@click.argument("operation")
async def why(call: Call, operation: str) -> None:
    """Explain OPERATION (RUN/STEP): what is proven, and whether it may be sent again."""
    async with call.looking() as looking:
        instant = looking.journal.now()
        found = await explain(looking, operation, Now(instant.boot, instant.ms, SystemClock().wall_ms()))
    if call.screen.as_json:
        call.screen.document(found)
    else:
        _show_explanation(call.screen, found)


def _show_explanation(screen: Screen, found: Explanation) -> None:
    screen.line((found.operation, "bold"), f"  {found.phase}")
    if found.title:
        screen.line(f"  {safe(found.title)}")
    screen.line(f"  {found.tool} {bytes(found.arguments).decode()}")
    screen.line((f"  key {found.key}", "dim"))
    for label, raw in (("relied on", found.relied_on), ("expected as evidence", found.expected)):
        if raw is not None:
            screen.line((f"  {label} {safe(stored(raw))}", "dim"))
    screen.line("")
    rows = [
        ("attempted", found.attempted),
        ("acknowledged", found.acknowledged),
        ("proven", found.proven),
        ("landed", found.landed),
        ("safe to retry", found.retry),
        ("amends", found.amends),
    ]
    lines: list[tuple[RenderableType, ...]] = [
        (phrase(f"  {name}"), phrase((answer.answer, "bold")), phrase(answer.because)) for name, answer in rows
    ]
    lines[1:1] = [(phrase(""), phrase(""), phrase((attempt, "dim"))) for attempt in found.attempts]
    screen.show(grid(lines))
    screen.line("")
    if found.policy is not None:
        screen.line("  its policy: ", (found.policy.says, "bold"))
        if (rule := found.policy.read) is not None:
            screen.line((f"  it read: if {safe(rule.when)}", "dim"))
            screen.line((f"           then {safe(then_text(rule))}", "dim"))
        screen.line((f"  it knew: {facts_text(found.policy.facts)}", "dim"))
    for evidence in found.contradicted:
        screen.line("  contradicted: ", (safe(evidence), "bold yellow"))
    for relied in found.relied:
        screen.line("  relied on it: ", (safe(relied), "bold"))
    for word in found.words:
        screen.line("  people: ", (safe(word), "bold"))
    if found.decided_by:
        screen.line("  decided by the rule: ", (found.decided_by, "bold"))
    screen.line("  what comes next: ", (found.move, "bold"), f", by the rule: {found.rule}")
    screen.line("")
    screen.line("Next:")
    screen.commands(*found.next_step)
