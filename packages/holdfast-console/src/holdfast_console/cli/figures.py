"""`holdfast figures`: what people found, by tool, confidence, amount and reviewer."""

from __future__ import annotations

from typing import Final

import click

from holdfast.cli.common import CommandCall, command
from holdfast.cli.screen import Screen, grid, phrase
from holdfast.engine.environment import SystemClock
from holdfast.inspect.text import count, duration
from holdfast_console.reviews.metrics import Figures, Group
from holdfast_console.reviews.metrics import figures as figures_of
from holdfast_console.reviews.reader import gather
from holdfast_console.reviews.statistics import Reliability, Share

DAY_MS: Final = 86_400_000
FEW: Final = 30
"""Looks below which a rate is shown dim: its interval says why."""


@command("figures", examples=("holdfast figures", "holdfast figures --days 7", "holdfast figures --json"))
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), default=90.0, metavar="N",
    help="Count what was said in the last N days. Default: 90.",
)  # fmt: skip
async def figures(call: CommandCall, days: float) -> None:
    """Show how often people overrule the agent, and what its stated confidence is worth.

    By tool, confidence, amount and reviewer. Every rate has a 95 % interval; where they
    overlap, nothing is proven. An override rate counts what people found, not what is
    wrong: how much they miss is known only where known-bad cases are planted.
    """
    since = SystemClock().wall_ms() - int(days * DAY_MS)
    async with call.looking() as looking:
        found = await gather(looking, since)
    shown = figures_of(found.looks, found.passed, since)
    if call.screen.as_json:
        call.screen.document(shown)
        return
    _show(call.screen, shown, days)


def _show(screen: Screen, shown: Figures, days: float) -> None:
    if not (shown.looks or shown.passed or shown.expired or shown.caught.of):
        screen.line(f"Nobody was asked anything in the last {days:g} days.")
        return
    left = f", and {shown.passed:,} left without one" if shown.passed else ""
    screen.line(
        (f"{count(shown.looks, 'look')} in {days:g} days", "bold"),
        left,
        f"; {count(shown.expired, 'question')} ran out.",
    )
    screen.line(f"Overruled: {shown.overrides} of what people saw.")
    if shown.passed:
        screen.line(f"Wrong: {shown.wrong} of what was decided, samples standing for what nobody saw.")
    if shown.unseen:
        screen.line((f"Nothing is known about {shown.unseen:,} that left: nothing like them was looked at.", "yellow"))
    if shown.caught.of:
        screen.line(f"Planted cases caught: {shown.caught}.")
    for title, groups in (
        ("tool", shown.by_tool),
        ("confidence", shown.by_confidence),
        ("amount", shown.by_amount),
        ("reviewer", shown.by_reviewer),
    ):
        _table(screen, title, groups)
    _reliability(screen, shown.confidence)


def _table(screen: Screen, title: str, groups: tuple[Group, ...]) -> None:
    screen.line("")
    rows = [(phrase((title, "bold")), phrase("looks"), phrase("overruled"), phrase("95 %"), phrase("median"))]
    rows += [
        (
            phrase(one.name or "nobody"),
            phrase(f"{one.overrides.of:,.0f}"),
            phrase((_percent(one.overrides.rate), "dim" if one.overrides.of < FEW else "")),
            phrase((_span(one.overrides), "dim")),
            phrase("" if one.median_ms is None else duration(one.median_ms)),
        )
        for one in groups
    ]
    screen.show(grid(rows))


def _reliability(screen: Screen, found: Reliability) -> None:
    if not found.bands:
        return
    screen.line("")
    rows = [(phrase(("stated", "bold")), phrase("was right"), phrase("95 %"), phrase(""))]
    rows += [
        (
            phrase(f"{one.stated:.1%}"),
            phrase(_percent(one.right.rate)),
            phrase((_span(one.right), "dim")),
            phrase((one.verdict, "" if one.verdict == "fits" else "yellow")),
        )
        for one in found.bands
    ]
    screen.show(grid(rows))
    apart, by_chance = _percent(found.gap), _percent(found.by_chance)
    screen.line(f"Stated and true confidence are {apart} apart; chance alone would show {by_chance}.")
    screen.line(f"Brier score {found.brier.mean:.3f}.")


def _percent(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1%}"


def _span(share: Share) -> str:
    return f"{share.low:.1%} to {share.high:.1%}"
