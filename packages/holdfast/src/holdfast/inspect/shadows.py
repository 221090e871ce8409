"""The comparison of shadow calls with the answers that were used: agreement, tokens, cost and time, by pair of models.

The two streams of the ledger are read once, and of each run with a shadow call its decisions.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Final

import msgspec

from holdfast.errors import ChainBroken, UnknownRun, Unreadable
from holdfast.inspect.costs import CostLine, shadow_entries
from holdfast.inspect.prices import Prices
from holdfast.inspect.reader import JournalReader
from holdfast.model import records as r
from holdfast.model.ids import operation_id
from holdfast.model.shadow_calls import ANSWERS, CALLS, Agreement, ShadowAnswered, ShadowAsked, agreement

UNKNOWN: Final = "?"
"""The model of decisions whose answer is not on record, or does not name it."""
_EXAMPLES: Final = 5


class ShadowComparison(msgspec.Struct):
    """The shadow calls of one model beside the decisions of another.

    `unanswered` have no answer on record: they are under way, or their process or run ended first. `failed` counts
    their errors by class. The rest is about pairs of answers: how far they agree, what both used (`used`, `shadow`),
    and the median times in milliseconds, of decisions that one call answered. `differing` names some that differ.
    """

    model: str
    shadow_model: str
    calls: int = 0
    unanswered: int = 0
    failed: dict[str, int] = {}
    agreement: dict[Agreement, int] = {}
    used: CostLine = msgspec.field(default_factory=lambda: CostLine("used"))
    shadow: CostLine = msgspec.field(default_factory=lambda: CostLine("shadow"))
    used_ms: float | None = None
    shadow_ms: float | None = None
    differing: list[str] = []

    @property
    def compared(self) -> int:
        """The number of pairs of answers."""
        return sum(self.agreement.values())


async def compare_shadows(reader: JournalReader, prices: Prices, since_ms: int = 0) -> list[ShadowComparison]:
    """The comparisons of all shadow calls that were begun since then, most calls first."""
    asked = await shadow_entries(reader, CALLS, ShadowAsked, since_ms)
    answers = await shadow_entries(reader, ANSWERS, ShadowAnswered, since_ms)
    found: dict[tuple[str, str], _Pairs] = {}
    by_run: dict[str, list[str]] = {}
    for key, (_, one) in asked.items():
        by_run.setdefault(one.run, []).append(key)
    for run, keys in by_run.items():
        decisions = await _decisions(reader, run)
        for key in keys:
            one = asked[key][1]
            decision = decisions.get(one.step)
            model = UNKNOWN if decision is None else decision.record.model or UNKNOWN
            pairs = found.setdefault((model, one.model), _Pairs(ShadowComparison(model, one.model), prices))
            pairs.add(decision, answers.get(key))
    return sorted((one.close() for one in found.values()), key=lambda one: (-one.calls, one.model, one.shadow_model))


class _Decision(msgspec.Struct):
    """The recorded answer of a decision, and the number of its calls."""

    record: r.DecisionRecorded
    tries: int


async def _decisions(reader: JournalReader, run: str) -> dict[str, _Decision]:
    """The answers of models in a run, by step; empty where it cannot be read or is gone."""
    tries: dict[str, int] = {}
    found: dict[str, _Decision] = {}
    try:
        async for _, record in reader.records(run, 0, r.DecisionStarted, r.DecisionRecorded):
            if isinstance(record, r.DecisionRecorded) and record.status == "succeeded":
                found[record.step] = _Decision(record, tries.get(record.step, 1))
            elif isinstance(record, r.DecisionStarted):
                tries[record.step] = tries.get(record.step, 0) + 1
    except (ChainBroken, Unreadable, UnknownRun):
        return {}
    return found


class _Pairs:
    """The pairs of answers of two models."""

    def __init__(self, found: ShadowComparison, prices: Prices) -> None:
        self._found = found
        self._prices = prices
        self._used_ms: list[int] = []
        self._shadow_ms: list[int] = []

    def add(self, decision: _Decision | None, answered: tuple[int, ShadowAnswered] | None) -> None:
        """Take one shadow call: the decision beside which it was made, and its end."""
        found = self._found
        found.calls += 1
        if answered is None:
            found.unanswered += 1
            return
        at, shadow = answered
        if shadow.reason:
            code = shadow.code or "other"
            found.failed[code] = found.failed.get(code, 0) + 1
            return
        if decision is None:
            found.unanswered += 1  # there is nothing to compare it with yet
            return
        found.shadow.called(shadow.usage, self._prices.cost(shadow.usage, at))
        used, moment = decision.record.usage, decision.record.at
        found.used.called(used, self._prices.cost(used, moment))
        how = agreement(_plain(decision.record.result), _plain(shadow.answer))
        found.agreement[how] = found.agreement.get(how, 0) + 1
        if how in ("arguments", "differ") and len(found.differing) < _EXAMPLES:
            found.differing.append(operation_id(shadow.run, shadow.step))
        if decision.tries == 1:
            self._used_ms.append(decision.record.ms)
            self._shadow_ms.append(shadow.ms)

    def close(self) -> ShadowComparison:
        """The comparison, with its medians."""
        if self._used_ms:
            self._found.used_ms, self._found.shadow_ms = median(self._used_ms), median(self._shadow_ms)
        return self._found


def _plain(stored: r.Raw) -> Any:
    return msgspec.json.decode(bytes(stored))
