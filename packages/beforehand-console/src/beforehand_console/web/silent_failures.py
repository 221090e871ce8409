"""Silent failures and proposed lessons, for the page that shows them: both are about everything, as health is."""

from __future__ import annotations

import msgspec

from beforehand.engine.outbox import Outbox
from beforehand.errors import UsageError
from beforehand.inspect.monitors.findings import Acknowledgement, FindingRaised, acknowledge, shown_findings
from beforehand.journal.port import Journal, JournalReads
from beforehand.model.lessons import ReviewedLesson
from beforehand.people.lessons import list_lessons


class WatchedFailures(msgspec.Struct, frozen=True):
    """The findings of workers that no person has acknowledged, the newest first; and the proposed lessons."""

    findings: list[FindingRaised]
    lessons: list[ReviewedLesson]


async def watched_failures(journal: JournalReads) -> WatchedFailures:
    """The findings of the monitors, and the lessons that wait for a decision."""
    lessons = [one for one in await list_lessons(journal) if one.state == "proposed"]
    return WatchedFailures([*reversed(await shown_findings(journal))], lessons)


async def acknowledge_shown(journal: Journal, outbox: Outbox, seen: Acknowledgement, now_ms: int) -> None:
    """Record that a person has seen a finding, with its evidence up to then. Raises `UsageError` if it is over."""
    if seen.id not in {one.id for one in await shown_findings(journal)}:
        raise UsageError(
            f"{seen.id} is not a finding any more, or is acknowledged", known="nothing was recorded",
            next_step="open the page of silent failures again",
        )  # fmt: skip
    await acknowledge(journal, outbox, seen, now_ms)
