"""What a tree of runs is charged when it begins, and what of an operation counts in it from one record to the next."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from beforehand.model.run_budget import BudgetState, ReservedCall, is_effect
from beforehand.model.shared_use import Charge, SharedUse, charges_so_far, operation_charges
from beforehand.model.usage import CallCost, Usage
from beforehand.policies import RunBudget
from tests.unit.model.stories import HOUR, VERIFIABLE, Story
from tests.unit.model.test_budget_records import CENT, DAY, TEN, TREE, USED, answers, asks, charges, eur

EURO = 100 * CENT
Step = Callable[[Story], Story]

STATES: dict[str, tuple[Step, tuple[int, int], tuple[int, int]]] = {
    "planned": (lambda story: story.planned(), (0, 0), (0, 0)),
    "in flight": (lambda story: story.starts(), (0, 1), (0, 1)),
    "not sent": (lambda story: story.sent("not_sent"), (0, 0), (0, 0)),
    "lost": (lambda story: story.sent("lost"), (1, 0), (1, 0)),
    "in flight again": (lambda story: story.sent("lost").starts(), (0, 1), (1, 1)),
    "dearer than its price": (lambda story: story.sent("returned", cost=3.0).settled("succeeded"), (1, 0), (3, 0)),
    "cheaper": (lambda story: story.sent("returned", cost=0.25).settled("succeeded"), (1, 0), (0.25, 0)),
    "failed": (lambda story: story.sent("rejected").settled("failed"), (0, 0), (1, 0)),
    "answer later": (lambda story: story.starts().deferred(HOUR), (1, 0), (1, 0)),
}
"""The effects and the euros that an operation counts then: used, and reserved."""


def of(state: Step, price: str = "1 EUR") -> Story:
    return state(Story(VERIFIABLE, price=price))


def totals(found: list[Charge]) -> dict[tuple[str, str], tuple[int, int]]:
    """The sums of the charges, by budget and limit, those of nothing left out."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for one in found:
        used, reserved = sums.get((one.budget, one.limit), (0, 0))
        sums[one.budget, one.limit] = used + one.used, reserved + one.reserved
    return {key: both for key, both in sums.items() if any(both)}


def expected(name: str, *states: str) -> dict[tuple[str, str], tuple[int, int]]:
    effects = [sum(numbers) for numbers in zip(*(STATES[state][1] for state in states), strict=True)]
    cost = [round(sum(numbers) * EURO) for numbers in zip(*(STATES[state][2] for state in states), strict=True)]
    both = {(name, "effects"): tuple(effects), (name, "cost EUR"): tuple(cost)}
    return {key: (used, reserved) for key, (used, reserved) in both.items() if used or reserved}


@pytest.mark.parametrize("after", STATES)
@pytest.mark.parametrize("before", [None, *STATES])
def test_a_record_of_an_operation_is_charged_with_what_it_counts_now_and_did_not_before(before: str | None, after: str):
    """To the budgets that it names and to the tree, once to each; without any of them to none."""
    then = None if before is None else of(STATES[before][0]).state
    for named, tree in itertools.product(((), (DAY,), (TREE,), (DAY, TREE)), (None, TREE)):
        found = operation_charges(then, replace(of(STATES[after][0]).state, shared=named), tree)
        places = {*named, *([] if tree is None else [tree])}
        wanted: dict[tuple[str, str], tuple[int, int]] = {}
        for name, _ in places:
            counted, earlier = expected(name, after), {} if before is None else expected(name, before)
            for key in {*counted, *earlier}:
                (used, reserved), (past, held) = counted.get(key, (0, 0)), earlier.get(key, (0, 0))
                wanted[key] = used - past, reserved - held
        assert totals(found) == {key: both for key, both in wanted.items() if any(both)}
        assert {(one.budget, one.period) for one in found} <= places
        assert all(one.used or one.reserved for one in found), "a counter that does not change is not written"


@pytest.mark.parametrize(
    "left", [(), ("in flight",), ("lost", "in flight again"), ("answer later", "planned", "not sent")]
)
@pytest.mark.parametrize("limited", [True, False], ids=["with a limit of the cost", "without"])
def test_a_tree_begins_with_what_the_run_at_its_top_has_used_and_reserves(left: tuple[str, ...], limited: bool):
    """What has not ended counts by its own records from then on, in no declared budget a second time."""
    budget = BudgetState(RunBudget(tokens=1000, effects=9, cost="9 EUR" if limited else None))
    budget.tokens, budget.model_calls, budget.cost = 300, 3, 20 * CENT if limited else 0
    ended = [of(STATES[name][0]).state for name in ("dearer than its price", "failed")]
    open_now = [replace(of(STATES[name][0]).state, shared=(DAY,)) for name in left]
    for operation in (*ended, *open_now):
        budget.change(None, operation)
    found = charges_so_far(TREE, budget, open_now)
    own = {("tree/top", "tokens"): (300, 0), ("tree/top", "model_calls"): (3, 0)}
    counts = (
        expected("tree/top", *(("dearer than its price", "failed") if limited else ()), *left)
        if limited or left
        else {}
    )
    if limited:
        used, reserved = counts["tree/top", "cost EUR"]
        counts["tree/top", "cost EUR"] = used + 20 * CENT, reserved
    else:
        used, reserved = counts.get(("tree/top", "effects"), (0, 0))
        counts["tree/top", "effects"] = used + 1, reserved
    assert totals(found) == own | counts
    assert all(one.used or one.reserved for one in found)


def test_a_run_that_has_used_nothing_begins_a_tree_with_no_charge():
    assert charges_so_far(TREE, BudgetState(RunBudget(tokens=1, cost="1 EUR")), []) == []


# --- calls of models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "counts"),
    [
        (Usage(input_tokens=40, output_tokens=2), {"calls": 1, "tokens": 42, "cost": 10 * CENT}),
        (Usage(refused=True), {}),
        (Usage(), {"calls": 1, "tokens": 100, "cost": 10 * CENT}),
    ],
    ids=["stated", "refused", "not known"],
)
def test_a_call_that_is_made_again_settles_the_one_before_it_by_what_is_known_of_that(
    before: Usage, counts: dict[str, int]
):
    """Its price is not: what it reserved counts, unless it was refused."""
    use = SharedUse()
    use.take(asks(shared=(DAY,)), None)
    again = use.take(asks(shared=(DAY,), before=before), None)
    assert again == charges(DAY, sign=-1, **counts) + charges(DAY)
    assert use.largest == (42 if before.known and not before.refused else 0)
    assert use.take(asks("b", shared=(DAY,), before=before), None) == charges(DAY), "another step has nothing open"


def test_a_call_whose_price_is_in_no_currency_reserves_no_cost():
    use = SharedUse()
    assert use.take(asks(price=None, shared=(DAY,)), None) == [
        Charge(*DAY, "model_calls", 0, 1),
        Charge(*DAY, "tokens", 0, 100),
    ]
    own = BudgetState(RunBudget(cost="1 EUR"))
    assert own.reserved("cost") == 0
    own.take(asks(price=eur(7, "USD")))
    assert own.open == {"a": ReservedCall(100, 0, "EUR")}


@pytest.mark.parametrize(
    ("usage", "cost", "refused"),
    [
        (Usage(input_tokens=10), eur(1), ""),
        (Usage(refused=True), None, ""),
        (Usage(), None, "the limit of tokens is reached: 1,000 of 1,000 used"),
        (Usage(input_tokens=999), eur(1), ""),
        (Usage(input_tokens=1000), eur(1), "the limit of tokens is reached: 1,000 of 1,000 used"),
        (Usage(input_tokens=10), eur(100), "the limit of cost is reached: 1.00 of 1.00 EUR used"),
    ],
    ids=str,
)
def test_the_next_try_of_a_call_is_compared_with_what_the_last_one_used_not_with_what_it_reserved(
    usage: Usage, cost: CallCost | None, refused: str
):
    state = BudgetState(RunBudget(tokens=1000, cost="1 EUR"))
    state.take(asks(reserved=1000, price=TEN))
    assert state.refusal("a", usage, cost) == refused
    assert state.refusal("b", usage, cost) == "the limit of tokens is reached: 0 of 1,000 used, 1,000 reserved"
    assert state.open == {"a": ReservedCall(1000, 10 * CENT, "EUR")}, "it was only asked"


def test_the_dearest_call_stays_known_behind_one_whose_cost_is_assumed():
    own, shared = BudgetState(RunBudget(cost="9 EUR")), SharedUse()
    for price in (eur(30), None, eur(20)):
        for record in (asks(shared=(DAY,)), answers(USED, price)[0]):
            own.take(record)
            shared.take(record, None)
    assert (own.dearest, own.unpriced, shared.dearest) == (30 * CENT, 1, {"EUR": 30 * CENT})


# --- effects ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "counts"),
    [
        (lambda story: story.starts(), True),
        (lambda story: story.sent("returned").settled("succeeded"), True),
        (lambda story: story.planned().settled("succeeded"), False),
        (lambda story: story.sent("rejected").settled("failed"), False),
    ],
    ids=["in flight", "happened", "taken from another operation", "refused"],
)
@pytest.mark.parametrize(
    "intent", [{}, {"compensates": "pay#1"}, {"confirms": "pay#1"}, {"completes": "pay#1"}], ids=str
)
def test_what_completes_or_serves_another_operation_is_no_effect_of_its_own(
    does: Step, counts: bool, intent: dict[str, str]
):
    assert is_effect(does(Story(VERIFIABLE, **intent)).state) == (counts and not intent)
