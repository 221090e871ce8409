"""`holdfast inbox --health`: whether people keep up, and whether they still look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.cli.common import CommandCall
from holdfast.cli.exit_status import DONE, FAILED
from holdfast.cli.screen import Screen, grid, phrase
from holdfast.engine.environment import SystemClock
from holdfast.inspect.text import count, duration, moment, safe
from holdfast_console.reviews.alerts import Health, Load
from holdfast_console.reviews.report import Turn, Watch, watch
from holdfast_console.reviews.statistics import Share

if TYPE_CHECKING:
    from rich.text import Text

ASKS: Final = 76
"""Characters of a question that are shown."""


async def show_health(call: CommandCall) -> int:
    """Print the figures and the alarms. Exit status 1 where something rings, so that a monitor can call it."""
    async with call.looking() as looking:
        found = await watch(looking, SystemClock().wall_ms())
    if call.screen.as_json:
        call.screen.document(found)
    else:
        _show(call.screen, found)
    return FAILED if found.alarms else DONE


def _show(screen: Screen, found: Watch) -> None:
    now = found.health
    rows = [(screen.mark("failed"), phrase((one.name, "bold red")), phrase(one.says)) for one in found.alarms]
    calm = phrase("nobody waits" if not now.depth else "people keep up")
    screen.show(grid(rows) if rows else grid([(screen.mark("ok"), calm)]))
    screen.line("")
    screen.show(grid([(phrase((f"  {name}", "dim")), phrase(said)) for name, said in _figures(now)], (26,)))
    if now.reviewers:
        screen.line("")
        screen.show(grid([tuple(phrase((name, "bold")) for name in _HEAD), *(_load(one) for one in now.reviewers)]))
    if found.next:
        screen.line("")
        screen.line(("Next:", "bold"))
    for turn in found.next:
        _turn(screen, turn)


def _figures(now: Health) -> list[tuple[str, str]]:
    left = now.days_to_work_off
    pace = "" if left is None or not now.depth else f", {left:.1f} days of work"
    oldest = f", the oldest for {duration(now.oldest_ms)}" if now.depth else ""
    found = [("waiting", f"{now.depth:,}{oldest}{pace}"), (f"answered in {now.days:g} days", f"{now.answered:,}")]
    if now.median_ms is not None:
        found.append(("median decision", duration(now.median_ms)))
    for name, share in (
        ("said yes", now.approved),
        ("faster than reading", now.quick),
        ("ran out", now.expired),
        ("planted ones caught", now.caught),
    ):
        if share.of:
            found.append((name, str(share)))
    return found


_HEAD: Final = ("reviewer", "answers", "of all", "median", "yes", "too fast", "caught", "waiting")


def _load(one: Load) -> tuple[Text, ...]:
    return (
        phrase(one.by),
        phrase(f"{one.answered:,}"),
        phrase(_percent(one.part)),
        phrase("" if one.median_ms is None else duration(one.median_ms)),
        phrase(_percent(one.approved)),
        phrase(_percent(one.quick)),
        phrase(_percent(one.caught)),
        phrase(f"{one.waiting:,}"),
    )


def _percent(share: Share) -> str:
    return "" if share.rate is None else f"{share.rate:.0%}"


def _turn(screen: Screen, turn: Turn) -> None:
    due = "" if turn.due_ms is None else f"  until {moment(turn.due_ms)}"
    blocked = f"  blocks {count(turn.blocked, 'operation')}" if turn.blocked else ""
    whose = f"  {'for' if turn.given else 'perhaps'} {turn.by}" if turn.by else ""
    screen.line(("  " + turn.item, "cyan"), f"  waits {duration(turn.waited_ms)}", due, blocked, (whose, "yellow"))
    screen.line(f"    {safe(turn.asks)[:ASKS]}")
