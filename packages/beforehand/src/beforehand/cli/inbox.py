"""`beforehand inbox`: the items that wait for people, or one item in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from beforehand.cli.common import CommandCall, command, wait_for
from beforehand.cli.exit_status import DONE
from beforehand.cli.screen import Screen
from beforehand.inspect.monitors import FINDINGS
from beforehand.inspect.text import count, moment, safe
from beforehand.journal.entry_codec import refused
from beforehand.journal.host import wall_ms
from beforehand.model.lessons import STREAM as LESSONS
from beforehand.model.waits import after_deadline
from beforehand.people.items import InboxItem, ItemFilter, PlacedItem, placed, worded

if TYPE_CHECKING:
    from beforehand.inspect.monitors.findings import FindingRaised
    from beforehand.inspect.reader import JournalReader
    from beforehand.model.lessons import ReviewedLesson

_SILENT: Final = 5


@command(
    "inbox",
    examples=(
        "beforehand inbox",
        "beforehand inbox --mine anna --queue money",
        "beforehand inbox --item 'refund-9/refund#1'",
    ),
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, metavar="N", help="Show the first N; JSON has all. Default: 50."
)
@click.option("--mine", default="", metavar="NAME", help="Only items delegated to this person.")
@click.option("--queue", default="", metavar="Q", help="Only items in this queue; with --mine, items of either.")
@click.option("--item", default="", metavar="ITEM", help="Show one item in full, with the digest to answer by.")
@click.option("--health", is_flag=True, help="Show whether reviewers keep up: figures, alarms, and assignments.")
def inbox(call: CommandCall, limit: int, mine: str, queue: str, **options: str | bool) -> int:
    """List what needs a person: urgent items first, then the nearest deadline.

    Items are approvals, questions of agents, runs that stopped or were handed over, and
    reviews: effects whose outcome is unknown, and transactions that cannot end by
    themselves. Snoozed items come last. Proposed lessons follow, and silent failures that
    a worker has found; these need no answer.

    --health shows how reviewers kept up over the last week. Its exit status is 1 while an
    alarm is raised, so that a monitor can call it.
    """
    if options["health"]:
        from beforehand.extensions import extension  # noqa: PLC0415 - the list alone is shown at once

        status: int = wait_for(extension("beforehand.command_parts", "inbox.health", "beforehand inbox --health")(call))
        return status
    if options["item"]:
        wait_for(_one(call, str(options["item"])))
    else:
        call.read(lambda reader: _all(call, reader, ItemFilter(mine, queue), limit))
    return DONE


async def _one(call: CommandCall, item: str) -> None:
    from beforehand.cli.dossier import show_dossier  # noqa: PLC0415 - as above
    from beforehand.people.dossier import dossier  # noqa: PLC0415 - as above

    async with call.reader() as reader:
        about = await dossier(reader, item)
    call.screen.document(about) if call.screen.as_json else show_dossier(call.screen, about)


async def _all(call: CommandCall, reader: JournalReader, wanted: ItemFilter, limit: int) -> None:
    now_ms = wall_ms()
    every = await placed(reader, now_ms=now_ms)
    found = [one for one in every if wanted.shows(one)]
    set_aside = await refused(reader.journal)
    if call.screen.as_json:
        call.screen.document([worded(one) for one in found])
        return
    silent, lessons = await _silent_failures(reader), await _proposed_lessons(reader)
    for one in found[:limit]:
        show_item(call.screen, worded(one), now_ms)
    if len(found) > limit:
        call.screen.line(f"... and {len(found) - limit:,} more: --limit {len(found)}")
    call.screen.line(summary(found, len(every)))
    if lessons:
        _show_lessons(call.screen, lessons)
    if silent:
        _show_silent(call.screen, silent)
    if set_aside:
        entries = count(len(set_aside), "ledger entry", "ledger entries")
        call.screen.note(f"Unreadable and skipped: {entries}. Next: beforehand doctor")


async def _silent_failures(reader: JournalReader) -> list[FindingRaised]:
    """The findings of workers that no person has acknowledged."""
    if not await reader.journal.entries(FINDINGS):
        return []
    from beforehand.inspect.monitors.findings import shown_findings  # noqa: PLC0415 - as above

    return await shown_findings(reader.journal)


async def _proposed_lessons(reader: JournalReader) -> list[ReviewedLesson]:
    """The lessons that wait for a decision."""
    if not await reader.journal.entries(f"{LESSONS}/"):
        return []
    from beforehand.people.lessons import list_lessons  # noqa: PLC0415 - as above

    return [one for one in await list_lessons(reader.journal) if one.state == "proposed"]


def _show_lessons(screen: Screen, found: list[ReviewedLesson]) -> None:
    from beforehand.cli.lessons import show_lesson  # noqa: PLC0415 - as above

    screen.line(("Proposed lessons", "bold"), (f"  {len(found):,}", "dim"))
    for one in found[:_SILENT]:
        show_lesson(screen, one, evidence=False)
    screen.next("beforehand lessons list")


def _show_silent(screen: Screen, found: list[FindingRaised]) -> None:
    """Print what raised no error and needs no answer."""
    screen.line(("Silent failures", "bold"), (f"  {len(found):,}", "dim"))
    for raised in found[:_SILENT]:
        one, since = raised.finding, f"{raised.id}  since {moment(raised.since_ms)}"
        screen.line(("! ", "bold yellow"), f"{safe(one.agent)}  {one.rule}  ", (since, "dim"))
        screen.line(f"  {safe(one.what)}")
    screen.next("beforehand monitors")


def summary(found: Sequence[PlacedItem], waiting: int = 0) -> str:
    """How many of each kind there are. `waiting` is the number of all items, where only some were asked for."""
    kinds = Counter(one.kind for one in found)
    counts = ", ".join(f"{count:,} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(kinds.items()))
    if not counts and waiting:
        return f"No match. Without --mine and --queue: {count(waiting, 'item')}."
    return counts or "Nothing needs you."


def show_item(screen: Screen, one: InboxItem, now_ms: int) -> None:
    """Print one item, with the commands that answer it."""
    due = "" if one.due_ms is None else f"  until {moment(one.due_ms)}"
    late = one.due_ms is not None and one.due_ms <= now_ms
    screen.line((f"{one.kind + ' ':<9}", "bold"), (one.item, "cyan"), (due, "red" if late else "dim"))
    if whose := _whose(one):
        screen.line((f"  {safe(whose)}", "yellow"))
    screen.report(one.asks, "  ")
    for mark in one.marks:
        screen.line((f"  {mark}", "yellow"))
    if one.then and one.due_ms is not None:
        screen.line((f"  then {after_deadline(one.then)}", "dim"))
    screen.commands(*one.answers)


def _whose(one: InboxItem) -> str:
    """Its assignee, and its time."""
    parts = [f"urgent ({one.escalated})"] if one.escalated else []
    parts += [f"for {one.to}"] if one.to else []
    parts += [f"in the queue {one.queue}"] if one.queue else []
    parts += [f"snoozed until {moment(one.rests_ms)}"] if one.rests_ms else []
    return ", ".join(parts)
