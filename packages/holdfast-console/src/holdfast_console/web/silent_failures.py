"""Silent failures and proposed lessons, for the page that shows them: both are about everything, as health is."""

from __future__ import annotations

import msgspec

from holdfast.errors import UsageError
from holdfast.inspect.monitors.passes import Acknowledgement, JudgedFindings, acknowledge, watched
from holdfast.inspect.monitors.rules import SilentFailure
from holdfast.inspect.reader import JournalReader
from holdfast.model.lessons import ReviewedLesson
from holdfast.people.lessons import list_lessons


class WatchedFailures(msgspec.Struct, frozen=True):
    """The findings of the last round of a worker without those that are acknowledged, and the proposed lessons."""

    judged: JudgedFindings
    lessons: list[ReviewedLesson]

    @property
    def findings(self) -> list[SilentFailure]:
        """The findings, the one first that was found last."""
        return sorted(self.judged.findings, key=lambda one: (-self.judged.since[one.id], one.id))


async def watched_failures(reader: JournalReader, now_ms: int) -> WatchedFailures:
    """The findings of the monitors, and the lessons that wait for a decision."""
    lessons = [one for one in await list_lessons(reader.journal) if one.state == "proposed"]
    return WatchedFailures(await watched(reader, now_ms), lessons)


async def acknowledge_shown(reader: JournalReader, seen: Acknowledgement, now_ms: int) -> None:
    """Record that a person has seen a finding, with its evidence up to then. Raises `UsageError` if it is over."""
    found = (await watched(reader, now_ms)).findings
    if seen.finding not in {one.id for one in found}:
        raise UsageError(
            f"{seen.finding} is not a finding any more, or is acknowledged", known="nothing was recorded",
            next_step="open the page of silent failures again",
        )  # fmt: skip
    await acknowledge(reader.journal, seen)
