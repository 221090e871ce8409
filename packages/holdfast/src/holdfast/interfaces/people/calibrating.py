"""Where thresholds stand, what people found near them, and the record of every move in the ledger `thresholds/NAME`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.agent.judging import ThresholdPosition, threshold_positions, thresholds_in
from holdfast.inspect.reader import JournalReader
from holdfast.interfaces.people.gathering import Gathered, gather
from holdfast.journal.bodies import written
from holdfast.journal.port import Journal, Post
from holdfast.model.calibration import Finding, Judgement, judged
from holdfast.model.figures import caught_of
from holdfast.model.health import DAY_MS
from holdfast.model.ids import stream
from holdfast.model.looks import Look, last_words, weights
from holdfast.model.policy import Policy
from holdfast.model.thresholds import Move, Threshold

MEMORY_DAYS: Final = 90.0
"""After how long what people found is forgotten: agents change."""


class Proposal(msgspec.Struct, frozen=True):
    """What should become of one threshold. `number` is how many moves are on record, `since_ms` when the last was."""

    name: str
    number: int
    since_ms: int
    judgement: Judgement


async def proposals(looking: JournalReader, policy: Policy, now_ms: int) -> list[Proposal]:
    """What people found near each threshold since it last moved says about it."""
    positions = await threshold_positions(looking.journal)
    said = await gather(looking, now_ms - int(MEMORY_DAYS * DAY_MS)) if policy.thresholds else Gathered([], [])
    planted = [one for one in said.looks if one.kind == "planted"]
    found: list[Proposal] = []
    for name, threshold in policy.thresholds.items():
        one = positions.get(name) or ThresholdPosition(0, 0, threshold.start)
        since = max(one.since_ms, now_ms - int(MEMORY_DAYS * DAY_MS))
        at = min(threshold.most, max(threshold.least, one.at))
        judgement = judged(
            threshold, at, findings(threshold, policy, said, since), caught_of(planted) if planted else None
        )
        found.append(Proposal(name, one.number, since, judgement))
    return found


def findings(threshold: Threshold, policy: Policy, said: Gathered, since_ms: int) -> list[Finding]:
    """What people said from `since_ms` on about calls that this threshold decided, with what each stands for."""
    rules = _rules(threshold, policy)
    looks = [one for one in said.looks if one.answered_ms >= since_ms]
    stands_for = weights(looks, [one for one in said.passed if one.at_ms >= since_ms])
    return [
        Finding(value, one.overridden, stands_for[one.item, one.kind])
        for one in last_words(looks)
        if one.judges and one.traits.rule in rules and (value := _value(threshold, one)) is not None
    ]


def _rules(threshold: Threshold, policy: Policy) -> set[str]:
    """The first rule that names it, and all after that: what an earlier rule decides, it does not."""
    names = [one.name for one in policy.rules]
    first = next((n for n, one in enumerate(policy.rules) if threshold.name in thresholds_in(one.when)), len(names))
    return {*names[first:], "default"}


def _value(threshold: Threshold, look: Look) -> float | None:
    return look.traits.confidence if threshold.of == "confidence" else look.traits.amount


async def apply(journal: Journal, proposed: Sequence[Proposal], by: str) -> list[Move]:
    """Put the moves on record, each once: of two people who apply the same one, the first does. Returns what moved.

    An app that is open goes on as it began; the next one that opens finds the thresholds where they stand.
    """
    moved: list[Move] = []
    for one in proposed:
        if not one.judgement.moves:
            continue
        move = Move(one.name, one.judgement.at, one.judgement.to, by, one.judgement.why)
        body = written(move)
        entry = await journal.post(Post(stream("thresholds", one.name), str(one.number + 1), body))
        if entry.fresh:
            moved.append(move)
        else:
            await journal.post(Post(stream("thresholds", one.name), "", body))
    return moved
