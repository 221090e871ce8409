"""Monitors: rules that find failures which raise no error, each finding with its evidence.

A rule is a pure function of what was read and of a moment, so it judges the past as it judges the present.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import msgspec

from holdfast.errors import ChainBroken, Unreadable
from holdfast.inspect.reader import JournalReader
from holdfast.inspect.text import duration, moment
from holdfast.journal.port import RunRow
from holdfast.model import records as r
from holdfast.model.ids import operation_id
from holdfast.model.system import is_system

Rule: TypeAlias = Literal["no progress", "unknown outcomes", "refusals"]
DAY_MS: Final = 86_400_000
_JUDGED: Final[dict[str, Rule]] = {"unknown": "unknown outcomes", "failed": "refusals"}
_RESTS: Final = (r.RunSuspendedRecord, r.RunCompleted, r.RunStoppedRecord, r.RunUndone)
"""The records after which no process drives a run."""
_ENDED: Final = ("completed", "stopped", "undone")
_OUTCOMES: Final = (r.OperationSettled,)
_SHOWN: Final = 5


class MonitorSettings(msgspec.Struct, frozen=True):
    """Bounds of the rules.

    `silent_ms`: how long a driven run may record nothing. The writes of the last `recent_ms` are compared with those of
    the `past_ms` before: an agent is judged by `past` writes at least, and `least` of the recent ones have to have
    ended so, twice as large a part as before, with a probability below `chance` that it is chance.
    """

    silent_ms: int = 30 * 60_000
    recent_ms: int = DAY_MS
    past_ms: int = 30 * DAY_MS
    past: int = 20
    least: int = 3
    chance: float = 1e-5


class SettledWrite(msgspec.Struct, frozen=True):
    """The first outcome of one write, and its wall clock."""

    agent: str
    operation: str
    status: str
    at_ms: int


class Silence(msgspec.Struct, frozen=True):
    """A time in which a process drove a run and nothing was recorded. `last` is the kind of the last record."""

    agent: str
    run: str
    since_ms: int
    until_ms: int
    last: str


class SilentFailure(msgspec.Struct, frozen=True):
    """A finding of a rule at one moment: what is unusual, the evidence in sentences, and the command to type."""

    rule: Rule
    agent: str
    at_ms: int
    what: str
    evidence: list[str]
    command: str


# --- rules -----------------------------------------------------------------------------------------------------------


def without_progress(silences: Iterable[Silence], settings: MonitorSettings) -> list[SilentFailure]:
    """The runs that were driven for `silent_ms` or longer and recorded nothing."""
    return [
        SilentFailure(
            "no progress", one.agent, one.since_ms + settings.silent_ms,
            f"run {one.run} recorded nothing for {duration(one.until_ms - one.since_ms)} while a process drove it",
            [f"its last record before, {one.last}, is of {moment(one.since_ms)}"],
            f"holdfast show {one.run}",
        )
        for one in silences
        if one.until_ms - one.since_ms >= settings.silent_ms
    ]  # fmt: skip


def far_above_the_past(writes: Iterable[SettledWrite], now_ms: int, settings: MonitorSettings) -> list[SilentFailure]:
    """The agents with more unknown or refused writes than their own past makes likely. Later writes are ignored."""
    border = now_ms - settings.recent_ms
    past: dict[str, list[SettledWrite]] = {}
    recent: dict[str, list[SettledWrite]] = {}
    for one in writes:
        if border - settings.past_ms <= one.at_ms <= now_ms:
            (recent if one.at_ms > border else past).setdefault(one.agent, []).append(one)
    found: list[SilentFailure] = []
    for agent, now in sorted(recent.items()):
        before = past.get(agent, [])
        for status, rule in _JUDGED.items():
            bad = [one for one in now if one.status == status]
            earlier = sum(one.status == status for one in before)
            if _is_far_above(len(bad), len(now), earlier, len(before), settings):
                what = (
                    f"{len(bad):,} of {len(now):,} writes {_ended(status)} in the last {duration(settings.recent_ms)};"
                    f" before: {earlier:,} of {len(before):,}"
                )
                newest = sorted(bad, key=lambda one: one.at_ms, reverse=True)[:_SHOWN]
                evidence = [f"{one.operation} {_ended(status)} at {moment(one.at_ms)}" for one in newest]
                found.append(SilentFailure(rule, agent, now_ms, what, evidence, f"holdfast why {newest[0].operation}"))
    return found


def _is_far_above(bad: int, recent: int, earlier: int, past: int, settings: MonitorSettings) -> bool:
    if bad < settings.least or past < settings.past or bad * past < 2 * earlier * recent:
        return False
    return tail(bad, recent, (earlier + 1) / (past + 2)) < settings.chance


def tail(least: int, number: int, share: float) -> float:
    """The probability of `least` or more among `number`, where each is so with the probability `share`, from 0 to 1."""
    if least <= 0:
        return 1.0
    if not 0 < share < 1:
        return float(share >= 1 and number >= least)
    log_share, log_rest = math.log(share), math.log1p(-share)
    whole = math.lgamma(number + 1)
    terms = (
        whole - math.lgamma(one + 1) - math.lgamma(number - one + 1) + one * log_share + (number - one) * log_rest
        for one in range(least, number + 1)
    )
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def _ended(status: str) -> str:
    return "ended unknown" if status == "unknown" else "failed"


def silences_in(row: RunRow, records: Sequence[r.Record], least_ms: int) -> Iterator[Silence]:
    """The times of at least `least_ms` in which a run was driven and recorded nothing, up to its last record.

    A time that ends with a takeover does not count: the process before may have died at its beginning.
    """
    timed = [one for one in records if one.at]
    for before, after in pairwise(timed):
        if after.at - before.at >= least_ms and not isinstance(before, _RESTS) and not isinstance(after, r.Claimed):
            yield Silence(row.agent, row.run, before.at, after.at, type(before).__name__.removesuffix("Record"))


# --- reading ---------------------------------------------------------------------------------------------------------


class MonitorReport(msgspec.Struct):
    """The findings, the oldest first; how many runs were read, and those whose records cannot be read."""

    findings: list[SilentFailure] = []
    runs: int = 0
    unreadable: list[str] = []


async def present(reader: JournalReader, now_ms: int, settings: MonitorSettings) -> MonitorReport:
    """The findings of all rules now."""
    report, writes = MonitorReport(), list[SettledWrite]()
    async for row, records in _changed_since(reader, now_ms - settings.recent_ms - settings.past_ms, report, _OUTCOMES):
        writes += _writes_in(row, records)
    silences = [one async for one in _driven_now(reader, now_ms)]
    report.findings = [*without_progress(silences, settings), *far_above_the_past(writes, now_ms, settings)]
    return report


async def recorded(reader: JournalReader, since_ms: int, now_ms: int, settings: MonitorSettings) -> MonitorReport:
    """The findings that the rules would have had since that wall clock, those of now included.

    Each day, counted back from now, is judged by what was on record then; days in a row with one finding are one.
    """
    report, writes, silences = MonitorReport(), list[SettledWrite](), list[Silence]()
    async for row, records in _changed_since(reader, since_ms - settings.recent_ms - settings.past_ms, report):
        writes += _writes_in(row, records)
        silences += silences_in(row, records, settings.silent_ms)
    silences += [one async for one in _driven_now(reader, now_ms)]
    found = [one for one in without_progress(silences, settings) if one.at_ms >= since_ms]
    before: set[tuple[str, str]] = set()
    for day in range((now_ms - since_ms) // DAY_MS, -1, -1):
        of_day = far_above_the_past(writes, now_ms - day * DAY_MS, settings)
        found += [one for one in of_day if (one.rule, one.agent) not in before]
        before = {(one.rule, one.agent) for one in of_day}
    report.findings = sorted(found, key=lambda one: one.at_ms)
    return report


async def _changed_since(
    reader: JournalReader, since_ms: int, report: MonitorReport, kinds: tuple[type[msgspec.Struct], ...] = ()
) -> AsyncIterator[tuple[RunRow, list[r.Record]]]:
    """The runs that have not ended before that wall clock, each with its records, all or those of some kinds."""
    async for row in reader.every_run():
        if is_system(row.agent) or (row.status in _ENDED and row.updated_ms < since_ms):
            continue
        report.runs += 1
        try:
            yield row, [record async for _, record in reader.records(row.run, 0, *kinds)]
        except (ChainBroken, Unreadable):
            report.unreadable.append(row.run)


def _writes_in(row: RunRow, records: Iterable[r.Record]) -> list[SettledWrite]:
    first: dict[str, r.OperationSettled] = {}
    for record in records:
        if isinstance(record, r.OperationSettled):
            first.setdefault(record.step, record)
    return [SettledWrite(row.agent, operation_id(row.run, step), one.status, one.at) for step, one in first.items()]


async def _driven_now(reader: JournalReader, now_ms: int) -> AsyncIterator[Silence]:
    """The runs that a living process drives, each with the time since its last record."""
    gone: dict[str, bool] = {}
    async for row in reader.every_run(status="running"):
        if row.owner is None or is_system(row.agent):
            continue
        if row.owner not in gone:
            gone[row.owner] = (await reader.journal.fate(row.owner)).gone
        if gone[row.owner]:
            continue  # it waits for a worker, as `holdfast ps` and `top` show
        newest = [record for _, record in await reader.newest_records(row.run, 3) if record.at]
        if newest:
            yield Silence(row.agent, row.run, newest[-1].at, now_ms, type(newest[-1]).__name__.removesuffix("Record"))
