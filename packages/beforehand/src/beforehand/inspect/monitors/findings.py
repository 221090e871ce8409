"""Findings in the ledger: what the rules found, what is over, and what people have acknowledged.

The key of an entry holds the number of the entry before it about the same finding. So when two processes look at once,
or a look and an acknowledgement coincide, only one of them commits, and the other one reads the ledger again. The
notices for webhooks are part of the same commit: none is lost, and none is posted twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, cast

import msgspec

from beforehand.engine.outbox import Outbox
from beforehand.errors import LedgerTaken
from beforehand.inspect.monitors import FINDINGS
from beforehand.inspect.monitors.rules import SilentFailure
from beforehand.journal.entry_codec import readable, written
from beforehand.journal.port import Journal, JournalReads, Post, Posts
from beforehand.model.webhooks import OUTBOX, Kind, Notice

AGAIN_MS: Final = 10 * 60_000
"""How often newer evidence of a finding that goes on is recorded at most: 144 entries a day."""


class FindingRaised(msgspec.Struct, frozen=True, tag="raised"):
    """A rule has found something since `since_ms`. A further entry with the same moment holds newer evidence."""

    finding: SilentFailure
    since_ms: int

    @property
    def id(self) -> str:
        """The name of the finding."""
        return self.finding.id


class FindingOver(msgspec.Struct, frozen=True, tag="over"):
    """No rule finds it any more."""

    id: str


class Acknowledgement(msgspec.Struct, frozen=True, tag="acknowledged", omit_defaults=True):
    """A person has seen a finding with its evidence up to `newest_ms`. It ends at `until_ms`; 0: it does not end."""

    id: str
    newest_ms: int
    by: str
    why: str = ""
    until_ms: int = 0

    def covers(self, finding: SilentFailure, now_ms: int) -> bool:
        """False once there is newer evidence, or the acknowledgement has ended."""
        return finding.newest_ms <= self.newest_ms and not 0 < self.until_ms <= now_ms


FindingEntry: TypeAlias = FindingRaised | FindingOver | Acknowledgement
FINDING_ENTRY: Final = cast("type[FindingEntry]", FindingEntry)


class FindingState(msgspec.Struct):
    """A finding in the ledger: the number of its newest entry, what is shown of it, and the last acknowledgement."""

    entry: int = 0
    shown: FindingRaised | None = None
    seen: Acknowledgement | None = None


async def finding_states(journal: JournalReads) -> dict[str, FindingState]:
    """The state of each finding in the ledger, by name."""
    states, entries = dict[str, FindingState](), await journal.entries(FINDINGS)
    for entry in entries:  # also those that cannot be read: they, too, are the entry before
        states.setdefault(entry.key.partition("/")[0], FindingState()).entry = entry.id
    for entry, one in await readable(journal, entries, FINDING_ENTRY):
        state = states[one.id]
        match one:
            case FindingRaised():
                state.shown = one
            case FindingOver():
                state.shown = None
            case Acknowledgement():
                state.seen = one
                if state.shown is not None and one.covers(state.shown.finding, entry.at_ms):
                    state.shown = None
    return states


async def shown_findings(journal: JournalReads) -> list[FindingRaised]:
    """The findings of workers that no person has acknowledged, the oldest first."""
    shown = [state.shown for state in (await finding_states(journal)).values() if state.shown is not None]
    return sorted(shown, key=lambda one: (one.since_ms, one.id))


def covered(states: Mapping[str, FindingState], finding: SilentFailure, now_ms: int) -> bool:
    """True if a person has acknowledged the finding with its evidence."""
    state = states.get(finding.id)
    return state is not None and state.seen is not None and state.seen.covers(finding, now_ms)


async def record_findings(journal: Journal, outbox: Outbox, found: Iterable[SilentFailure], now_ms: int) -> None:
    """Record new findings, those that are over, and newer evidence of the others, in one commit."""
    states, posts = await finding_states(journal), list[Post]()
    findings = {one.id: one for one in found}
    for name, one in findings.items():
        state = states.get(name, FindingState())
        if state.shown is None and not covered(states, one, now_ms):
            raised = FindingRaised(one, now_ms)
            posts += [_entry(state, raised), *_notice(outbox, "finding.raised", raised, now_ms)]
        elif state.shown is not None:
            recorded = state.shown.finding
            if one.newest_ms > recorded.newest_ms and one.at_ms - recorded.at_ms >= AGAIN_MS:
                posts.append(_entry(state, FindingRaised(one, state.shown.since_ms)))
    for name, state in states.items():
        if state.shown is not None and name not in findings:
            posts += [
                _entry(state, FindingOver(name)), *_notice(outbox, "finding.ended", state.shown, now_ms, "over"),
            ]  # fmt: skip
    if posts:
        with contextlib.suppress(LedgerTaken):  # another process was faster: the next look sees what is left
            await journal.commit(Posts(tuple(posts)))


async def acknowledge(journal: Journal, outbox: Outbox, seen: Acknowledgement, now_ms: int) -> None:
    """Record that a person has seen a finding: it is shown again once there is newer evidence, or its time is over."""
    while True:
        state = (await finding_states(journal)).get(seen.id, FindingState())
        posts = [_entry(state, seen)]
        if state.shown is not None and seen.covers(state.shown.finding, now_ms):
            posts += _notice(outbox, "finding.ended", state.shown, now_ms, "acknowledged")
        with contextlib.suppress(LedgerTaken):  # a look came between: it may have newer evidence
            await journal.commit(Posts(tuple(posts)))
            return


def _entry(state: FindingState, one: FindingEntry) -> Post:
    return Post(FINDINGS, f"{one.id}/{state.entry}", written(one, FINDING_ENTRY))


def _notice(outbox: Outbox, kind: Kind, one: FindingRaised, now_ms: int, reason: str = "") -> list[Post]:
    """The notice for webhooks, if an endpoint asks for it."""
    if not outbox.wants(kind):
        return []
    data = {**msgspec.to_builtins(one.finding), "since_ms": one.since_ms, "reason": reason}
    notice = Notice(kind, one.id, one.finding.agent, now_ms, turn=one.since_ms, data=data)
    return [Post(OUTBOX, "", written(notice))]
