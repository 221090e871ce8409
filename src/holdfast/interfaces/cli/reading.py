"""Commands that only look: `ps`, `show` and `why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import msgspec

from holdfast.engine.housekeeping import troubles_of
from holdfast.engine.seams import SystemClock
from holdfast.interfaces.cli.common import Call, command
from holdfast.interfaces.cli.rules import then_text
from holdfast.interfaces.cli.screen import Screen, grid, phrase
from holdfast.interfaces.cli.story import show_state, show_timeline
from holdfast.interfaces.cli.words import ago, safe
from holdfast.interfaces.explaining import Explanation, explain
from holdfast.interfaces.judging import facts_text
from holdfast.interfaces.looking import Looking, Waiting, waits_of
from holdfast.interfaces.people.contradicted import contradicted_steps
from holdfast.interfaces.states import state_at
from holdfast.interfaces.telling import stored
from holdfast.interfaces.timeline import timeline
from holdfast.journal.port import RunRow, RunStatus
from holdfast.model.situation import Now

if TYPE_CHECKING:
    from rich.console import RenderableType

_STATUSES: Final[tuple[RunStatus, ...]] = ("running", "suspended", "completed", "stopped", "undone")
_MARKS: Final = {"running": "open", "suspended": "asks", "completed": "ok", "stopped": "failed", "undone": "off"}


class Listed(msgspec.Struct, frozen=True):
    """One run as `ps --json` lists it."""

    run: str
    agent: str
    status: str
    reason: str
    due_ms: int | None
    driven: bool
    created_ms: int
    updated_ms: int
    waits: list[Waiting]
    abandoned: bool
    contradicted: list[str] = []


@command("ps", examples=("holdfast ps", "holdfast ps --status suspended", "holdfast ps --json | jq -r '.runs[].run'"))
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs of this state.")
@click.option("--limit", default=100, show_default=True, metavar="N", type=click.IntRange(1), help="How many to list.")
@click.option("--after", default="", metavar="RUN", help="Go on after this run: the next page.")
@click.option("--all", "everything", is_flag=True, help="List runs that send webhooks, too.")
async def ps(call: Call, status: RunStatus | None, limit: int, after: str, everything: bool) -> None:
    """List the runs by name: their state, and what they wait for."""
    async with call.looking() as looking:
        rows = await looking.page(status, limit + 1, after, everything=everything)
        abandoned = {row.run for row in rows if await _is_abandoned(looking, row)}
        owners = {row.owner for row in rows if row.owner is not None and row.run not in abandoned}
        failing = [one for owner in sorted(owners) for one in await troubles_of(looking.journal, owner)]
        disputed = await contradicted_steps(looking.journal)
    more, rows = len(rows) > limit, rows[:limit]
    if call.screen.as_json:
        listed = [_listed(row, disputed.get(row.run, []), abandoned=row.run in abandoned) for row in rows]
        call.screen.document({"runs": listed, "more": more})
        return
    if not rows:
        call.screen.line("No runs" + (f" are {status}." if status else " yet."))
        return
    now = SystemClock().wall_ms()
    lines = [
        _run_line(call.screen, row, now, disputed.get(row.run, []), abandoned=row.run in abandoned) for row in rows
    ]
    call.screen.show(grid(lines, (1,)))
    for one in failing:
        call.screen.note(("A process does not keep house: ", "yellow"), f"{one.task}: {one.error}. Next: restart it")
    if more:
        call.screen.note(f"There are more: holdfast ps --after {rows[-1].run}")


async def _is_abandoned(looking: Looking, row: RunRow) -> bool:
    """Whether whoever drove the run is gone: its process is dead, or silent for longer than its lease."""
    if row.owner is None:
        return row.status == "running"
    state = await looking.journal.fate(row.owner)
    return state.fate == "dead" or state.silent_ms > 0


def _listed(row: RunRow, disputed: list[str], *, abandoned: bool) -> Listed:
    driven = row.owner is not None and not abandoned
    return Listed(
        row.run, row.agent, row.status, row.reason, row.due_ms, driven, row.created_ms, row.updated_ms,
        waits_of(row), abandoned, disputed,
    )  # fmt: skip


def _run_line(
    screen: Screen, row: RunRow, now_ms: int, disputed: list[str], *, abandoned: bool
) -> tuple[RenderableType, ...]:
    detail = row.reason if row.status in {"suspended", "stopped"} else ""
    if row.status == "suspended" and row.due_ms is not None:
        detail += f" (due {ago(row.due_ms, now_ms)})"
    if abandoned:
        detail = "nobody drives it: holdfast worker, or holdfast resume"
    if disputed:
        more = f" (and {len(disputed) - 1} more)" if len(disputed) > 1 else ""
        contradiction = f"contradicted: holdfast why {row.run}/{disputed[0]}{more}"
        detail = f"{contradiction}; {detail}" if detail else contradiction
    return (
        screen.mark("asks" if disputed else _MARKS[row.status]),
        phrase((row.run, "bold")),
        phrase(row.agent),
        phrase("abandoned" if abandoned else row.status),
        phrase((ago(row.updated_ms, now_ms), "dim")),
        phrase(detail),
    )


@command(
    "show",
    examples=("holdfast show ticket-17", "holdfast show ticket-17 --at refund#1", "holdfast show ticket-17 --json"),
)
@click.argument("run")
@click.option("--at", "step", metavar="STEP", help="The state when this step (or record number) was recorded.")
async def show(call: Call, run: str, step: str | None) -> None:
    """Show the timeline of RUN: each effect on a line, and below it what happened to it.

    With --at the state of the run as it was when that step got its outcome, and the step in full.
    """
    async with call.looking() as looking:
        told = await looking.told(run)
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
        show_timeline(call.screen, story)


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
    for step in found.next_step:
        screen.line(f"  {step}")
