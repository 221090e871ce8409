"""The budget of a run, over drawn calls: what is reserved is used or open, and only calls in flight exceed a limit."""

from collections.abc import Callable
from decimal import Decimal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from beforehand.journal.record_codec import decode, encode
from beforehand.model import records as r
from beforehand.model.run_budget import BudgetState, reservation
from beforehand.model.run_history import RunHistory
from beforehand.model.usage import CallCost, Usage
from beforehand.policies import RunBudget

STEPS = ("ask#1", "ask#2", "ask#3")
UNIT = 1_000_000  # billionths for a token: a thousandth of a euro
Ended = tuple[bool, int, bool]  # the usage is stated, how much, and the service refused the request

calls = st.tuples(st.just("call"), st.sampled_from(STEPS), st.integers(0, 400))
ends = st.tuples(st.just("end"), st.sampled_from(STEPS), st.tuples(st.booleans(), st.integers(1, 300), st.booleans()))
deaths = st.tuples(st.just("death"), st.just(""), st.just(0))
raises = st.tuples(st.just("raise"), st.just(""), st.integers(1, 200))
acts = st.lists(st.one_of(calls, calls, ends, ends, deaths, raises), max_size=40)


def price(tokens: int, of: int = 1) -> CallCost | None:
    """What so many tokens cost; each third amount is not known."""
    return CallCost(Decimal(tokens * UNIT) / 10**9, "EUR", "prices") if of % 3 else None


class Witness:
    """What a service would bill: each call with its reservation, until it ended and what it used is known."""

    def __init__(self, limits: RunBudget) -> None:
        self.history = RunHistory("r")
        self.stored: list[bytes] = []
        self.flying: dict[str, int] = {}
        self.billed: list[int] = []
        self.assumed: list[int] = []
        self.costs: list[int] = []
        self.since = self.since_cost = 0  # what ended calls used since one was begun last: all were in flight then
        self.add(r.RunStarted(agent="desk", input=r.NOTHING, digest="", budget=limits))
        self.add(r.Claimed(worker="w1", token=1, boot="b"))

    @property
    def budget(self) -> BudgetState:
        assert self.history.budget is not None
        return self.history.budget

    def add(self, record: r.Record) -> None:
        self.stored.append(encode(record))
        self.history.add(record)

    def call(self, step: str, question: int) -> None:
        """Call the model, unless the budget refuses it; an earlier call of the step failed, and is tried again."""
        before = (Usage(), Usage(input_tokens=question), Usage(refused=True))[question % 3]
        if self.budget.refusal(step, before):
            return
        self.end(step, before, record=False)
        reserved, self.since = reservation(self.budget.largest, question), 0
        self.since_cost = 0
        self.add(r.DecisionStarted(step=step, function="ask", before=before, reserved=reserved, price=price(reserved)))
        self.flying[step] = reserved

    def end(self, step: str, usage: Usage, *, record: bool = True) -> None:
        if step not in self.flying:
            return
        reserved, used = self.flying.pop(step), usage.input_tokens
        cost = price(used, used) if record else None  # a call that is begun again states no price of the one before
        if record:
            given = msgspec.structs.asdict(usage)
            self.add(r.DecisionRecorded(step=step, function="ask", digest="", price=cost, **given))
        if usage.refused and not used:
            return
        self.billed.append(used if usage.known else reserved)
        if not usage.known or cost is None:
            self.assumed.append(reserved)
            self.costs.append(reserved)
        else:
            self.costs.append(used)
        self.since += self.billed[-1]
        self.since_cost += self.costs[-1]

    def die(self) -> None:
        for step in list(self.flying):
            self.end(step, Usage(), record=False)
        self.add(r.Claimed(worker="w2", token=2, boot="b"))


def played(limits: RunBudget, script: list[tuple[str, str, int | Ended]], check: Callable[[Witness], None]) -> Witness:
    witness = Witness(limits)
    for act, step, what in script:
        if act == "call" and isinstance(what, int):
            witness.call(step, what)
        elif act == "end" and isinstance(what, tuple):
            stated, used, refused = what
            witness.end(step, Usage(refused=refused, input_tokens=used if stated and not refused else 0))
        elif act == "death":
            witness.die()
        elif act == "raise" and isinstance(what, int):
            witness.add(r.BudgetRaised(by="ann", tokens=what, model_calls=1, money=f"{what / 1000:.3f} EUR"))
        check(witness)
    return witness


def holds(witness: Witness) -> None:
    budget, limits = witness.budget, witness.budget.limits
    assert budget.tokens == sum(witness.billed)
    assert budget.model_calls == len(witness.billed)
    assert (budget.reserved("tokens"), budget.reserved("model_calls")) == (
        sum(witness.flying.values()),
        len(witness.flying),
    )
    if (money := limits.money) is not None:
        assert budget.cost == sum(witness.costs) * UNIT
        assert budget.assumed == sum(witness.assumed) * UNIT
        assert budget.unpriced == len(witness.assumed)
        assert budget.reserved("cost") == sum(witness.flying.values()) * UNIT
        assert max(0, budget.cost - money.units) <= witness.since_cost * UNIT, "only calls in flight exceed a limit"
    if limits.model_calls is not None:
        assert budget.model_calls + len(witness.flying) <= limits.model_calls
    if limits.tokens is not None:
        assert max(0, budget.tokens - limits.tokens) <= witness.since, "only calls in flight exceed a limit"


@given(st.integers(0, 1000), st.integers(0, 12), acts)
def test_what_is_reserved_is_used_or_open(tokens: int, number: int, script: list[tuple[str, str, int | Ended]]):
    played(RunBudget(tokens=tokens, model_calls=number), script, holds)


@given(st.integers(0, 1000), acts)
def test_a_reserved_cost_is_used_or_open(thousandths: int, script: list[tuple[str, str, int | Ended]]):
    played(RunBudget(cost=f"{thousandths / 1000:.3f} EUR"), script, holds)


@given(st.integers(0, 1000), acts)
def test_the_records_alone_decide_what_is_left(tokens: int, script: list[tuple[str, str, int | Ended]]):
    witness = played(RunBudget(tokens=tokens, cost=f"0.{tokens:04} EUR"), script, lambda _: None)
    again = RunHistory("r")
    again.add_all(decode(body) for body in witness.stored)
    copied = witness.history.copy()
    assert copied.budget is not None
    assert copied.budget is not witness.budget
    for other in (again.budget, copied.budget):
        assert other is not None
        assert msgspec.structs.asdict(other) == msgspec.structs.asdict(witness.budget)
