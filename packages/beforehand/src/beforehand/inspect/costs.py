"""Costs over all runs: what their model calls used, what that cost, and what replay saved.

The journal is read once, run by run, so the memory does not grow with it. What no record states is counted as unknown
beside the sums of what is known, and never as zero.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import msgspec

from beforehand.errors import ChainBroken, Unreadable
from beforehand.inspect.prices import Prices, add_costs
from beforehand.inspect.reader import JournalReader
from beforehand.journal.port import RunRow
from beforehand.model import records as r
from beforehand.model.money import EXACT, Money, amount_of, written_money
from beforehand.model.outcome import EXCEEDED, UNPRICED
from beforehand.model.run_budget import call_cost
from beforehand.model.system import is_system
from beforehand.model.usage import CallCost, Usage

Grouping: TypeAlias = Literal["agent", "model", "tool", "tenant", "day", "outcome"]
NO_NAME: Final = "-"
"""The name of the group of what has none: runs without a tenant, calls whose model is not known."""
_KINDS: Final = (
    r.Claimed, r.DecisionStarted, r.DecisionRecorded, r.ReservationSettled, r.RunCompleted, r.OperationPlanned,
    r.OperationHeld, r.AttemptStarted, r.AttemptEnded, r.LateReport, r.OperationDeferred, r.OperationSettled,
    r.Resolved,
)  # fmt: skip
"""The kinds of record that state a usage, a cost, an effect, or a replay."""


_NO_TOOL: Final = ("", "", "")
_NOT_SENT: Final = (EXCEEDED, UNPRICED)


class CostLine(msgspec.Struct):
    """The sums of one group. Tokens and costs are those of the calls that are known.

    `uncounted` calls have no count of tokens, `unpriced` ones have a count and no price, and `contradictory` ones have
    no price because parts of their tokens are more than the whole: what they cost is unknown.
    `cost` is by currency. `reported` is what code reported, in a unit of its own. `effects` is how many writes
    succeeded and were not compensated, and `per_effect` the cost for each of them. `saved_*` is what the answers cost
    that a resumed run took from its record, as far as that is known. `wasted_*` is a part of the sums: that of calls
    whose answer was not used.
    """

    name: str
    calls: int = 0
    uncounted: int = 0
    unpriced: int = 0
    contradictory: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    audio_tokens: int = 0
    cost: dict[str, Decimal] = msgspec.field(default_factory=dict[str, Decimal])
    reported: Decimal = Decimal(0)
    effects: int = 0
    per_effect: dict[str, Decimal] = msgspec.field(default_factory=dict[str, Decimal])
    saved_calls: int = 0
    saved_tokens: int = 0
    saved_cost: dict[str, Decimal] = msgspec.field(default_factory=dict[str, Decimal])
    wasted_calls: int = 0
    wasted_tokens: int = 0
    wasted_cost: dict[str, Decimal] = msgspec.field(default_factory=dict[str, Decimal])

    @property
    def tokens(self) -> int:
        """All tokens that were counted."""
        return self.input_tokens + self.output_tokens

    @property
    def unknown(self) -> int:
        """The calls whose cost is unknown."""
        return self.uncounted + self.unpriced + self.contradictory

    def called(self, used: Usage, cost: CallCost | None) -> None:
        """Add a call of a model, whether its usage is known or not. A request that was refused is not a call."""
        if not used.called:
            return
        self.calls += 1
        if not used.known:
            self.uncounted += 1
            return
        self.input_tokens += used.input_tokens
        self.cached_tokens += used.cached_tokens
        self.output_tokens += used.output_tokens
        self.reasoning_tokens += used.reasoning_tokens
        self.audio_tokens += used.audio_input_tokens + used.audio_output_tokens
        if cost is not None:
            add_costs(self.cost, {cost.currency: cost.amount})
        elif used.contradicts:
            self.contradictory += 1
        elif not used.refused:
            self.unpriced += 1

    def merge(self, other: CostLine) -> None:
        """Add the sums of another group."""
        for name in self.__struct_fields__:
            value: Any = getattr(other, name)
            if isinstance(value, int):
                setattr(self, name, getattr(self, name) + value)
        self.reported = EXACT.add(self.reported, other.reported)
        add_costs(self.cost, other.cost)
        add_costs(self.saved_cost, other.saved_cost)
        add_costs(self.wasted_cost, other.wasted_cost)

    def copy(self) -> CostLine:
        """The same sums, which do not change with these."""
        made = CostLine(self.name)
        made.merge(self)
        return made

    def close(self) -> None:
        """Divide the costs by the effects."""
        effects = Decimal(self.effects)
        self.per_effect = {one: EXACT.divide(sum_, effects) for one, sum_ in self.cost.items() if self.effects}


class CostReport(msgspec.Struct):
    """The costs by group, dearest first, and their total.

    `unpriced_models` counts the calls of each model without a price. `bases` are the lists of prices that were used.
    `unreadable` are the runs whose records cannot be read: nothing of them is in the sums.
    """

    by: Grouping
    lines: list[CostLine]
    total: CostLine
    bases: list[str]
    unpriced_models: dict[str, int]
    unreadable: list[str]


async def costs(reader: JournalReader, prices: Prices, by: Grouping, since_ms: int = 0) -> CostReport:
    """The costs of everything that was recorded at this time or later."""
    sums = _Sums(prices, by, since_ms)
    unreadable: list[str] = []
    async for row in reader.every_run():
        if is_system(row.agent) or (row.status != "running" and row.updated_ms < since_ms):
            continue
        run = _RunCosts(sums, row)
        try:
            async for _, record in reader.records(row.run, 0, *_KINDS):
                run.add(record)
        except (ChainBroken, Unreadable):
            unreadable.append(row.run)
            continue
        run.close()
    return sums.report(unreadable)


class EndedCall(msgspec.Struct, frozen=True):
    """A call of a model that ended, or that its process did not live to see end, and the price on record.

    `fixed`: a budget in a currency covers it, so what that has counted stays, whatever a list of prices says today.
    """

    used: Usage
    at_ms: int
    price: CallCost | None = None
    fixed: bool = False
    answered: bool = False

    def cost(self, prices: Prices) -> CallCost | None:
        """The cost; None where it is unknown, and where nothing was used."""
        if self.fixed or self.price is not None or self.used.refused or not self.used.known:
            return self.price
        return prices.cost(self.used, self.at_ms)


class CallsOfRun:
    """The calls of models of one run, from its records in their order: what a call is, for every view that counts them.

    A call has begun on record, or its answer is there. A decision that a budget refused has made none.
    """

    def __init__(self) -> None:
        self._open: dict[str, r.DecisionStarted] = {}
        self._settled: dict[str, int] = {}  # steps whose last call has ended on record, and was counted, and when

    def take(self, record: r.Record) -> EndedCall | None:
        """Take the next record; the call whose end it states."""
        match record:
            case r.DecisionStarted():
                began = self._open.get(record.step)
                self._open[record.step] = record
                self._settled.pop(record.step, None)
                return None if began is None else _ended(began, record.before, began.at)
            case r.ReservationSettled():
                if (began := self._open.pop(record.step, None)) is None:
                    return None
                self._settled[record.step] = record.at
                return _ended(began, record.usage, began.at, record.price)
            case r.DecisionRecorded():
                began, settled = self._open.pop(record.step, None), self._settled.pop(record.step, None)
                if settled is not None or (began is None and record.code in _NOT_SENT):
                    return None
                answered = record.status == "succeeded"
                return _ended(began, record.usage, record.at, record.price, answered=answered)
            case _:
                return None

    def open(self) -> list[EndedCall]:
        """The calls without an end on record: their usage is unknown."""
        return [_ended(began, Usage(), began.at) for began in self._open.values()]

    def forget(self, before_ms: int) -> bool:
        """Drop what is older than this; True if nothing is left."""
        self._open = {step: one for step, one in self._open.items() if one.at >= before_ms}
        self._settled = {step: at for step, at in self._settled.items() if at >= before_ms}
        return not self._open and not self._settled


def _ended(
    began: r.DecisionStarted | None, used: Usage, at_ms: int, price: CallCost | None = None, *, answered: bool = False
) -> EndedCall:
    return EndedCall(used, at_ms, price, began is not None and began.price is not None, answered)


class _Sums:
    """The groups so far."""

    def __init__(self, prices: Prices, by: Grouping, since_ms: int) -> None:
        self.prices: Final = prices
        self.by: Final[Grouping] = by
        self.since_ms: Final = since_ms
        self.lines: dict[str, CostLine] = {}
        self.unpriced: dict[str, int] = {}
        self.bases: dict[str, None] = {}

    def line(self, name: str) -> CostLine:
        if name not in self.lines:
            self.lines[name] = CostLine(name)
        return self.lines[name]

    def cost(self, call: EndedCall) -> CallCost | None:
        """The cost of one call; None where it is unknown, and where nothing was used."""
        found = call.cost(self.prices)
        if found is not None:
            self.bases[found.basis] = None
        return found

    def report(self, unreadable: list[str]) -> CostReport:
        total = CostLine("total")
        for line in self.lines.values():
            total.merge(line)
            line.close()
        total.close()
        by_name = sorted(self.lines.values(), key=lambda line: line.name)
        if self.by != "day":
            by_name.sort(key=lambda line: (max(line.cost.values(), default=0), line.tokens, line.calls), reverse=True)
        return CostReport(self.by, by_name, total, list(self.bases), self.unpriced, unreadable)


class _RunCosts:
    """The costs of one run. They reach the sums at its end, so a run that cannot be read leaves nothing in them."""

    def __init__(self, sums: _Sums, row: RunRow) -> None:
        self._sums, self._row = sums, row
        self._lines: dict[str, CostLine] = {}
        self._unpriced: dict[str, int] = {}
        self._calls = CallsOfRun()
        self._answered: dict[str, CostLine] = {}  # the answers on record, by group
        self._before: dict[str, CostLine] = {}  # those that were there when the present owner took the run
        self._tools: dict[str, tuple[str, str, str]] = {}  # of each write: its tool, what it serves and compensates
        self._stood: dict[str, int] = {}  # the writes that succeeded, and when
        self._prices: dict[str, Money] = {}  # what their tools declare that a call costs
        self._attempts: dict[tuple[str, int], tuple[int, Money]] = {}  # calls of these, when they began and their cost

    def add(self, record: r.Record) -> None:
        """Take one record."""
        if isinstance(record, (r.DecisionRecorded, r.RunCompleted)):
            self._went_on(record.at)
        if (call := self._calls.take(record)) is not None:
            self._called(call)
        match record:
            case r.DecisionRecorded():
                self._reported(record.cost, record.at, record.model)
            case r.Claimed():
                self._before = {name: one.copy() for name, one in self._answered.items()}
            case r.DecisionStarted() | r.ReservationSettled() | r.RunCompleted():
                pass
            case _:
                self._operation(record)

    def close(self) -> None:
        """Add the run to the sums."""
        for call in self._calls.open():
            self._called(call)
        for step, at in self._stood.items():
            tool, serves, _ = self._tools.get(step, _NO_TOOL)
            line = None if serves else self._line(self._name(at, None, tool), at)
            if line is not None:
                line.effects += 1
        for (step, _), (at, cost) in self._attempts.items():
            line = self._line(self._name(at, None, self._tools[step][0]), at)
            if line is not None and cost.units:
                add_costs(line.cost, {cost.currency: amount_of(cost.units)})
        for name, line in self._lines.items():
            self._sums.line(name).merge(line)
        for model, calls in self._unpriced.items():
            self._sums.unpriced[model] = self._sums.unpriced.get(model, 0) + calls

    def _name(self, at_ms: int, model: str | None, tool: str | None) -> str | None:
        """The group of something; None for what the grouping leaves out."""
        name: str | None
        match self._sums.by:
            case "agent":
                name = self._row.agent
            case "tenant":
                name = self._row.tenant
            case "outcome":
                name = self._row.status
            case "day":
                name = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")
            case "model":
                name = model
            case "tool":
                name = tool
        return None if name is None else name or NO_NAME

    def _line(self, name: str | None, at_ms: int) -> CostLine | None:
        """The sums of this group; None for what is too old."""
        if name is None or at_ms < self._sums.since_ms:
            return None
        return self._lines.setdefault(name, CostLine(name))

    def _called(self, call: EndedCall) -> None:
        """Take a call."""
        used = call.used
        name = self._name(call.at_ms, used.model, None) if used.called else None
        if name is None:
            return
        cost = self._sums.cost(call)
        if call.answered and used.known:
            self._answered.setdefault(name, CostLine(name)).called(used, cost)
        if (line := self._line(name, call.at_ms)) is None:
            return
        line.called(used, cost)
        if cost is None and used.known and not used.refused and not used.contradicts:
            model = used.model or NO_NAME
            self._unpriced[model] = self._unpriced.get(model, 0) + 1
        if used.known and not call.answered:
            line.wasted_calls += 1
            line.wasted_tokens += used.input_tokens + used.output_tokens
            add_costs(line.wasted_cost, {} if cost is None else {cost.currency: cost.amount})

    def _went_on(self, at_ms: int) -> None:
        """Count the answers that were not asked again: the code went on behind all that was on record at the claim.

        Answers are delivered in the order of their records, so what is new comes after all of them.
        """
        for name, saved in self._before.items():
            if (line := self._line(name, at_ms)) is not None:
                line.saved_calls += saved.calls
                line.saved_tokens += saved.tokens
                add_costs(line.saved_cost, saved.cost)
        self._before = {}

    def _reported(self, cost: float, at_ms: int, model: str | None = None, tool: str | None = None) -> None:
        line = self._line(self._name(at_ms, model, tool), at_ms) if cost else None
        if line is not None:
            line.reported = EXACT.add(line.reported, Decimal(repr(cost)))

    def _attempt(self, record: r.Record, step: str, price: Money, end: r.End | None) -> None:
        """Take the begin or the end of a call of a tool that declares its cost."""
        name = step, getattr(record, "number", 1)
        if isinstance(record, r.AttemptStarted):
            self._attempts[name] = (record.at, price)
        elif end is not None and name in self._attempts:
            units = 0 if end.kind == "not_sent" else call_cost(price, end)
            self._attempts[name] = (self._attempts[name][0], Money(units, price.currency))

    def _operation(self, record: r.Record) -> None:
        """Take a record of a write: its tool, what it cost, and whether it succeeded."""
        step = getattr(record, "step", "")
        if (intent := getattr(record, "intent", None)) is not None:
            self._tools[step] = (intent.tool, intent.serves, intent.compensates)
            if intent.price:
                self._prices[step] = written_money(intent.price)
        tool, _, compensates = self._tools.get(step, _NO_TOOL)
        end = getattr(record, "end", None)
        if (price := self._prices.get(step)) is not None:
            self._attempt(record, step, price, end)
        else:
            spent = (getattr(record, "cost", None) or 0.0) + ((end.cost or 0.0) if end is not None else 0.0)
            self._reported(spent, record.at, tool=tool)
        happened = isinstance(record, r.Resolved) and record.word == "happened"
        if happened or (isinstance(record, r.OperationSettled) and record.status == "succeeded"):
            self._stood[step] = record.at
            self._stood.pop(compensates, None)
