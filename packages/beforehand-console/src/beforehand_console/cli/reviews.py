"""The commands about reviewers: `figures`, `plant`, `inbox --health` and `policy calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.exit_status import DONE, FAILED
from beforehand.cli.policy import named_policy
from beforehand.cli.screen import Screen, grid, phrase
from beforehand.engine.environment import SystemClock
from beforehand.errors import UsageError
from beforehand.inspect.text import count, duration, moment, safe
from beforehand.model.thresholds import Move
from beforehand.people.policy.policy_files import load_policy
from beforehand_console.reviews.alerts import Health, ReviewerLoad
from beforehand_console.reviews.calibration import Proposal, apply, proposals
from beforehand_console.reviews.metrics import MetricsGroup, ReviewMetrics
from beforehand_console.reviews.metrics import review_metrics as figures_of
from beforehand_console.reviews.reader import read_reviews
from beforehand_console.reviews.report import NextItem, Workload, workload
from beforehand_console.reviews.seeded_cases import SeededCase
from beforehand_console.reviews.seeding import KEPT_DAYS, RATE
from beforehand_console.reviews.seeding import seed_cases as plant_cases
from beforehand_console.reviews.statistics import Reliability, Share

if TYPE_CHECKING:
    from rich.text import Text


DAY_MS: Final = 86_400_000
FEW: Final = 30
"""Reviews below which a rate is shown dim: its interval says why."""


@command("figures", examples=("beforehand figures", "beforehand figures --days 7", "beforehand figures --json"))
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), default=90.0, metavar="N",
    help="Count the answers of the last N days. Default: 90.",
)  # fmt: skip
async def figures(call: CommandCall, days: float) -> None:
    """Show how often reviewers overrule the agent, and how reliable its confidence is.

    By tool, confidence, amount and reviewer. Every rate has a 95 % interval; where they
    overlap, nothing is proven. An override rate counts what reviewers found, not what is
    wrong: how much they miss is known only where known-bad cases are planted.
    """
    since = SystemClock().wall_ms() - int(days * DAY_MS)
    async with call.reader() as reader:
        found = await read_reviews(reader, since)
    shown = figures_of(found.looks, found.passed, since)
    if call.screen.wrote_json(shown):
        return
    _show_figures(call.screen, shown, days)


def _show_figures(screen: Screen, shown: ReviewMetrics, days: float) -> None:
    if not (shown.looks or shown.passed or shown.expired or shown.caught.of):
        screen.line(f"No questions in the last {days:g} days.")
        return
    left = f", and {shown.passed:,} sent without one" if shown.passed else ""
    screen.line(
        (f"{count(shown.looks, 'review')} in {days:g} days", "bold"),
        left,
        f"; {count(shown.expired, 'question')} ran out.",
    )
    screen.line(f"Overruled: {shown.overrides} of what people reviewed.")
    if shown.passed:
        screen.line(f"Wrong: {shown.wrong} of what was decided; samples represent what was not reviewed.")
    if shown.unseen:
        screen.line((f"Nothing is known about {shown.unseen:,} sent calls: no similar call was reviewed.", "yellow"))
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


def _table(screen: Screen, title: str, groups: tuple[MetricsGroup, ...]) -> None:
    screen.line("")
    rows = [(phrase((title, "bold")), phrase("looks"), phrase("overruled"), phrase("95 %"), phrase("median"))]
    rows += [
        (
            phrase(one.name or "(no name)"),
            phrase(f"{one.overrides.of:,.0f}"),
            phrase((_rate(one.overrides.rate), "dim" if one.overrides.of < FEW else "")),
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
            phrase(_rate(one.right.rate)),
            phrase((_span(one.right), "dim")),
            phrase((one.verdict, "" if one.verdict == "fits" else "yellow")),
        )
        for one in found.bands
    ]
    screen.show(grid(rows))
    apart, by_chance = _rate(found.gap), _rate(found.by_chance)
    screen.line(f"Stated and true confidence are {apart} apart; chance alone would show {by_chance}.")
    screen.line(f"Brier score {found.brier.mean:.3f}.")


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1%}"


def _span(share: Share) -> str:
    return f"{share.low:.1%} to {share.high:.1%}"


# --- beforehand inbox --health --------------------------------------------------------------------------------------


ASKS: Final = 76
"""Characters of a question that are shown."""


async def show_health(call: CommandCall) -> int:
    """Print the figures and the alarms. Exit status 1 if there is an alarm, so that a monitor can call it."""
    async with call.reader() as reader:
        found = await workload(reader, SystemClock().wall_ms())
    if not call.screen.wrote_json(found):
        _show_workload(call.screen, found)
    return FAILED if found.alarms else DONE


def _show_workload(screen: Screen, found: Workload) -> None:
    now = found.health
    rows = [(screen.mark("failed"), phrase((one.name, "bold red")), phrase(one.says)) for one in found.alarms]
    calm = phrase("nothing is waiting" if not now.depth else "reviewers keep up")
    screen.show(grid(rows) if rows else grid([(screen.mark("ok"), calm)]))
    screen.line("")
    screen.show(grid([(phrase((f"  {name}", "dim")), phrase(figure)) for name, figure in _figures(now)], (26,)))
    if now.reviewers:
        screen.line("")
        screen.show(grid([tuple(phrase((name, "bold")) for name in _HEAD), *(_load(one) for one in now.reviewers)]))
    if found.next:
        screen.line("")
        screen.line(("Next:", "bold"))
    for turn in found.next:
        _turn(screen, turn)


def _figures(now: Health) -> list[tuple[str, str]]:
    pace = "" if now.work_ms is None or not now.depth else f", {duration(now.work_ms)} of work"
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


def _load(one: ReviewerLoad) -> tuple[Text, ...]:
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


def _turn(screen: Screen, turn: NextItem) -> None:
    due = "" if turn.due_ms is None else f"  until {moment(turn.due_ms)}"
    blocked = f"  blocks {count(turn.blocked, 'operation')}" if turn.blocked else ""
    whose = f"  {'for' if turn.given else 'perhaps'} {turn.by}" if turn.by else ""
    screen.line(("  " + turn.item, "cyan"), f"  waits {duration(turn.waited_ms)}", due, blocked, (whose, "yellow"))
    screen.line(f"    {safe(turn.asks)[:ASKS]}")


# --- beforehand policy calibrate ------------------------------------------------------------------------------------


@command(
    "policy calibrate",
    examples=("beforehand policy calibrate", "beforehand policy calibrate rules.yaml --apply --by anna"),
)
@click.argument("file", default="", metavar="[FILE]")
@click.option("--apply", "applies", is_flag=True, help="Use the proposed thresholds; it is recorded.")
@by_option
async def calibrate(call: CommandCall, file: str, by: str, *, applies: bool) -> None:
    """Propose thresholds for the policy in FILE, or this project's, from what reviewers found.

    FILE is a policy file, or `installed:NAME`. A threshold moves by one step, within its
    bounds, and only if the answers near it prove that it should. Only --apply records
    anything; apps that open afterwards judge by it.
    """
    policy = load_policy(named_policy(file or None)).policy
    now_ms = SystemClock().wall_ms()
    moved: list[Move] = []
    if applies:
        async with call.serving() as service:
            found = await proposals(service.reader, policy, now_ms)
            moved = await apply(service.engine.journal, found, by)
    else:
        async with call.reader() as reader:
            found = await proposals(reader, policy, now_ms)
    if call.screen.wrote_json({"proposals": found, "moved": moved}):
        return
    for one in found:
        _show_proposal(call.screen, one)
    if not found:
        call.screen.line("This policy declares no thresholds.")
    elif applies:
        names = ", ".join(one.name for one in moved) or "nothing"
        call.screen.line(f"Moved: {names}. Apps that open from now on judge by it.")
    elif any(one.judgement.moves for one in found):
        call.screen.next("beforehand policy calibrate --apply")


def _show_proposal(screen: Screen, one: Proposal) -> None:
    found = one.judgement
    word = f"from {found.at:g} to {found.to:g}" if found.moves else f"stays at {found.at:g}"
    screen.line((one.name, "bold"), f"  {word}: {found.why}")
    screen.line(
        (f"  went by itself and was wrong: {found.beyond}; was asked about and was wrong: {found.before}", "dim")
    )


# --- beforehand plant -----------------------------------------------------------------------------------------------


@command("plant", examples=("beforehand plant known-bad.jsonl", "beforehand plant known-bad.jsonl --rate 0.1 --json"))
@click.argument("cases", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="CASES")
@click.option(
    "--rate", type=click.FloatRange(min=0, max=1), default=RATE, show_default=True, metavar="R",
    help="Planted cases for each real question.",
)  # fmt: skip
@click.option(
    "--keep-days", type=click.FloatRange(min=0, min_open=True), default=KEPT_DAYS, show_default=True, metavar="N",
    help="Withdraw cases that are unanswered after N days.",
)  # fmt: skip
async def plant(call: CommandCall, cases: Path, rate: float, keep_days: float) -> None:
    """Plant known-bad CASES (JSON lines) in the inbox.

    They look like real questions about the same tool and are never sent, whatever the answer;
    the person who answers one is notified. `beforehand inbox --health` and `beforehand
    figures` count those that were caught. Run it regularly: it plants as many as the rate
    requires for the questions of the last week.
    """
    known_bad = _cases(cases)
    async with call.serving() as service:
        done = await plant_cases(service.engine, known_bad, rate, keep_days)
    if call.screen.wrote_json(done):
        return
    withdrawn = f", {len(done.withdrawn)} withdrawn" if done.withdrawn else ""
    call.screen.line(f"{count(len(done.items), 'case')} planted{withdrawn}.")


def _cases(path: Path) -> list[SeededCase]:
    """The cases of a file, one in each line. Raises `UsageError` naming the line."""
    found: list[SeededCase] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=SeededCase))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise UsageError(
                f"{path}, line {number}: {error}",
                next_step='write each as: {"tool": "refund", "arguments": {"cents": 9}, "why": "wrong customer"}',
            ) from error
    return found
