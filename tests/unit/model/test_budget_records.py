"""Budgets of a run and of several runs, as tables: every figure and every charge after each record of a model call."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from beforehand.model import records as r
from beforehand.model.money import written_money
from beforehand.model.run_budget import BudgetLeft, BudgetState, ReservedCall, part_left, reservation, use_of, words_of
from beforehand.model.shared_use import Charge, Reservation, SharedUse
from beforehand.model.usage import CallCost, Usage
from beforehand.policies import MOST, RunBudget

CENT = 10**7
LIMITS = RunBudget(tokens=1000, model_calls=10, effects=5, cost="1 EUR")
NOTHING = RunBudget(tokens=0, model_calls=0, effects=0, cost="0 EUR")


def eur(cents: float, currency: str = "EUR") -> CallCost:
    return CallCost(Decimal(str(cents)) / 100, currency, "prices")


TEN, NONE = eur(10), Usage()


def asks(
    step: str = "a", reserved: int = 100, price: CallCost | None = TEN, before: Usage = NONE, **more: Any
) -> r.DecisionStarted:
    return r.DecisionStarted(step=step, function="f", reserved=reserved, price=price, before=before, **more)


def answers(usage: Usage, price: CallCost | None, step: str = "a") -> list[r.Record]:
    """The two records that can state the end of a call: they count alike."""
    return [
        r.DecisionRecorded(step=step, function="f", digest="", price=price, **asdict(usage)),
        r.ReservationSettled(step=step, usage=usage, price=price),
    ]


USED, REFUSED = Usage(input_tokens=40, output_tokens=2), Usage(refused=True)
OPEN = {"a": ReservedCall(100, 10 * CENT, "EUR")}
ENDS: dict[str, tuple[Usage, CallCost | None, dict[str, int]]] = {
    "as it says": (USED, eur(3), {"model_calls": 1, "tokens": 42, "cost": 3 * CENT, "largest": 42, "dearest": 3 * CENT}),
    "for nothing": (USED, eur(0), {"model_calls": 1, "tokens": 42, "largest": 42}),
    "without a price": (
        USED, None,
        {"model_calls": 1, "tokens": 42, "cost": 10 * CENT, "largest": 42, "unpriced": 1, "assumed": 10 * CENT},
    ),
    "in another currency": (
        USED, eur(3, "USD"),
        {"model_calls": 1, "tokens": 42, "cost": 10 * CENT, "largest": 42, "unpriced": 1, "assumed": 10 * CENT},
    ),
    "without its usage": (
        Usage(), eur(3),
        {"model_calls": 1, "tokens": 100, "cost": 10 * CENT, "unknown": 1, "unpriced": 1, "assumed": 10 * CENT},
    ),
    "refused": (REFUSED, None, {}),
    "above what it reserved": (
        Usage(input_tokens=900, output_tokens=9), eur(50),
        {"model_calls": 1, "tokens": 909, "cost": 50 * CENT, "largest": 909, "dearest": 50 * CENT},
    ),
    "a fraction of a billionth": (
        USED, CallCost(Decimal("0.0000000001"), "EUR", ""), {"model_calls": 1, "tokens": 42, "cost": 1, "largest": 42, "dearest": 1},
    ),
}  # fmt: skip
FIGURES = (
    "tokens",
    "model_calls",
    "effects",
    "cost",
    "unknown",
    "unpriced",
    "assumed",
    "largest",
    "dearest",
    "calling",
)


def figures(state: BudgetState) -> dict[str, int]:
    return {name: value for name in FIGURES if (value := getattr(state, name))}


@pytest.mark.parametrize("form", [0, 1], ids=["decision", "settlement"])
@pytest.mark.parametrize("ends", ENDS)
def test_a_call_reserves_until_it_ends_and_then_counts_by_its_end(ends: str, form: int):
    usage, price, expected = ENDS[ends]
    state = BudgetState(LIMITS)
    state.take(asks())
    assert (state.open, figures(state)) == (OPEN, {})
    assert {name: state.reserved(name) for name in ("tokens", "model_calls", "cost", "effects")} == {
        "tokens": 100, "model_calls": 1, "cost": 10 * CENT, "effects": 0,
    }  # fmt: skip
    state.take(answers(usage, price, "another step")[form])
    assert (state.open, figures(state)) == (OPEN, {}), "another step has no reservation"
    state.take(answers(usage, price)[form])
    assert (state.open, figures(state)) == ({}, expected)
    state.take(answers(usage, price)[form])
    assert figures(state) == expected, "its end counts once"
    again = BudgetState(LIMITS)
    again.take(asks())
    again.take(asks(before=usage, reserved=7, price=None))
    cost = {} if ends == "refused" else {"cost": 10 * CENT, "unpriced": 1, "assumed": 10 * CENT, "dearest": 0}
    assert again.open == {"a": ReservedCall(7, 0, "EUR")}
    assert figures(again) == {name: value for name, value in {**expected, **cost}.items() if value}


@pytest.mark.parametrize("second", ["b", "a"])
def test_a_new_owner_counts_every_call_of_the_one_before_with_what_it_reserved(second: str):
    state = BudgetState(RunBudget(tokens=9999))
    for record in (asks(reserved=100), asks(second, reserved=30), r.Claimed(worker="w", token=2, boot="")):
        state.take(record)
    assert (state.open, state.limits_models) == ({}, True)
    assert figures(state) == {"tokens": 130, "model_calls": 2, "unknown": 2}, (
        "without a limit of the cost none is counted"
    )


@pytest.mark.parametrize(
    ("limits", "models"),
    [({"tokens": 1}, True), ({"model_calls": 0}, True), ({"cost": "1 EUR"}, True), ({"effects": 1}, False)],
)
def test_calls_of_models_are_limited_where_a_limit_is_about_them(limits: dict[str, Any], models: bool):
    assert BudgetState(RunBudget(**limits)).limits_models == models


@pytest.mark.parametrize(
    ("added", "limits"),
    [
        ({"tokens": 5}, replace(LIMITS, tokens=1005)),
        ({"model_calls": 5}, replace(LIMITS, model_calls=15)),
        ({"effects": 5}, replace(LIMITS, effects=10)),
        ({"money": "0.50 EUR"}, replace(LIMITS, cost="1.50 EUR")),
        ({"tokens": MOST}, replace(LIMITS, tokens=MOST)),
        ({"money": "1000000000 EUR"}, replace(LIMITS, cost="1000000000.00 EUR")),
        ({"tokens": 1, "model_calls": 2, "effects": 3, "money": "1 EUR"},
         replace(LIMITS, tokens=1001, model_calls=12, effects=8, cost="2.00 EUR")),
    ],
    ids=str,
)  # fmt: skip
def test_a_raise_adds_to_the_limits_that_there_are(added: dict[str, Any], limits: RunBudget):
    state, none, zero = BudgetState(LIMITS), BudgetState(RunBudget(tokens=7)), BudgetState(NOTHING)
    for one in (state, none, zero):
        one.take(r.BudgetRaised(by="ann", **added))
    assert state.limits == limits
    more = {name: added.get(name, 0) for name in ("tokens", "model_calls", "effects")}
    money = written_money(added.get("money", "0 EUR"))
    assert (zero.limits.money, replace(zero.limits, cost=None)) == (money, RunBudget(**more)), "0 is a limit, too"
    assert none.limits == RunBudget(tokens=min(MOST, 7 + added.get("tokens", 0))), "no limit is made"


@pytest.mark.parametrize(
    ("state", "limits", "without", "words"),
    [
        ({"tokens": 999}, ("tokens",), 0, ""),
        ({"tokens": 1000}, ("tokens",), 0, "the limit of tokens is reached: 1,000 of 1,000 used"),
        ({"tokens": 1000}, ("tokens",), 1, ""),
        ({"tokens": 1000}, ("model_calls", "cost", "effects"), 0, ""),
        ({"tokens": 950, "open": {"b": ReservedCall(50)}}, ("tokens",), 0,
         "the limit of tokens is reached: 950 of 1,000 used, 50 reserved"),
        ({"model_calls": 9, "open": {"b": ReservedCall(50)}}, ("model_calls",), 0,
         "the limit of model calls is reached: 9 of 10 used, 1 reserved"),
        ({"cost": 90 * CENT, "calling": 10 * CENT}, ("cost",), 0,
         "the limit of cost is reached: 0.90 of 1.00 EUR used, 0.10 reserved"),
        ({"cost": 90 * CENT, "calling": 10 * CENT - 1}, ("cost",), 0, ""),
        ({"effects": 5, "tokens": 2000}, ("tokens", "effects"), 0,
         "the limit of tokens is reached: 2,000 of 1,000 used; the limit of effects is reached: 5 of 5 used"),
    ],
    ids=str,
)  # fmt: skip
def test_a_limit_is_reached_by_what_is_used_and_reserved(
    state: dict[str, Any], limits: tuple[Any, ...], without: int, words: str
):
    assert BudgetState(LIMITS, **state).spent(limits, without) == words


def test_the_part_that_is_left_is_that_of_each_limit_of_calls_without_the_call_that_asks():
    state = BudgetState(LIMITS, tokens=300, model_calls=4, cost=20 * CENT, calling=5 * CENT)
    state.open.update(a=ReservedCall(100, 10 * CENT, "EUR"), b=ReservedCall(200, 5 * CENT, "EUR"))
    by_words = {one.words: round(one.share, 9) for one in state.left("a")}
    assert by_words == {"tokens of the run": 0.5, "model calls of the run": 0.5, "cost of the run": 0.7}
    assert {one.words: round(one.share, 9) for one in state.left("c")} == {
        "tokens of the run": 0.4, "model calls of the run": 0.4, "cost of the run": 0.6,
    }  # fmt: skip
    assert set(state.open) == {"a", "b"}
    assert list(BudgetState(RunBudget(effects=1)).left("a")) == []
    assert list(BudgetState(RunBudget(tokens=1), tokens=2).left("a")) == [BudgetLeft(0.0, "tokens of the run")]
    assert {(one.words, one.share) for one in BudgetState(NOTHING).left("a")} == {(words, 0.0) for words in by_words}


def test_small_figures_of_budgets():
    assert [reservation(*given) for given in ((0, 0), (0, 1), (0, 4), (0, 5), (10, 44), (10, 41), (10, 40))] == [
        0, 1, 1, 2, 11, 11, 10,
    ]  # fmt: skip
    assert [part_left(*given) for given in ((10, 0), (10, 5), (10, 10), (10, 11), (0, 0))] == [1.0, 0.5, 0.0, 0.0, 0.0]
    assert [words_of(name) for name in ("tokens", "model_calls", "cost EUR")] == ["tokens", "model calls", "cost"]
    assert use_of("", 1000, 0, 2000) == "1,000 of 2,000 used"
    assert use_of("EUR", 50 * CENT, CENT, 100 * CENT) == "0.50 of 1.00 EUR used, 0.01 reserved"


# --- budgets that runs share -----------------------------------------------------------------------------------------

DAY, TREE = ("support", "2026-01-01"), ("tree/top", "tree")


def charges(*places: tuple[str, str], calls: int = 0, tokens: int = 0, cost: int = 0, sign: int = 1) -> list[Charge]:
    """The charges of a call of a hundred tokens and ten cents to these places."""
    return [
        Charge(*place, limit, used, reserved)
        for place in places
        for limit, used, reserved in (
            ("model_calls", calls, sign), ("tokens", tokens, sign * 100), ("cost EUR", cost, sign * 10 * CENT),
        )
    ]  # fmt: skip


@pytest.mark.parametrize(("named", "tree"), [((DAY,), None), ((), TREE), ((DAY,), TREE), ((DAY, TREE), TREE)])
@pytest.mark.parametrize("ends", ENDS)
def test_a_call_is_charged_to_its_budgets_when_it_begins_and_settled_when_it_ends(
    named: tuple[Any, ...], tree: Any, ends: str
):
    places = (DAY, TREE) if named and tree else named or (TREE,)
    usage, price, counts = ENDS[ends]
    used = {"calls": counts.get("model_calls", 0), "tokens": counts.get("tokens", 0), "cost": counts.get("cost", 0)}
    for end in answers(usage, price):
        use = SharedUse()
        assert use.take(asks(shared=named), tree) == charges(*places)
        assert use.open == {"a": Reservation(places, OPEN["a"])}
        reserved = [use.reserved_by("a", places[0], one) for one in ("model_calls", "tokens", "cost EUR", "cost USD")]
        assert reserved == [1, 100, 10 * CENT, 0]
        assert use.reserved_by("b", places[0], "tokens") == use.reserved_by("a", ("x", "y"), "tokens") == 0
        kept = use.copy()
        assert use.take(end, tree) == charges(*places, sign=-1, **used)
        assert (use.largest, use.dearest) == (
            counts.get("largest", 0), {} if "assumed" in counts else {"EUR": counts.get("dearest", 0)},
        )  # fmt: skip
        assert use.take(end, tree) == []
        assert (kept.open, kept.largest, kept.dearest) == ({"a": Reservation(places, OPEN["a"])}, 0, {})


@pytest.mark.parametrize(
    "ends",
    [
        r.Claimed(worker="w", token=2, boot=""),
        r.RunSuspendedRecord(reason="waits"),
        r.RunStoppedRecord(reason="failed", error="e"),
        r.RunCompleted(result=r.NOTHING),
        r.RunUndone(by="ann"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_call_without_an_answer_counts_as_it_was_reserved_when_its_run_ends_or_is_taken_over(ends: r.Record):
    use = SharedUse()
    for step in ("a", "b"):
        use.take(asks(step, shared=(DAY,)), None)
    whole = charges(DAY, calls=1, tokens=100, cost=10 * CENT, sign=-1)
    assert use.take(ends, None) == whole * 2
    assert use.open == {}
    assert use.take(ends, None) == []


def test_a_call_that_is_covered_by_no_budget_is_charged_nowhere_and_one_that_is_in_flight_joins_a_tree():
    use = SharedUse()
    assert use.take(asks(), None) == use.take(answers(USED, eur(3))[0], None) == []
    use.take(asks("a", shared=(DAY,)), None)
    calls = {"a": OPEN["a"], "b": OPEN["a"]}
    assert use.join(TREE, calls) == charges(TREE) * 2
    assert use.open == {"a": Reservation((DAY, TREE), OPEN["a"]), "b": Reservation((TREE,), OPEN["a"])}
    huge = use.take(asks("c", reserved=MOST + 5, price=None, shared=(DAY,)), None)
    assert huge == [Charge(*DAY, "model_calls", 0, 1), Charge(*DAY, "tokens", 0, MOST)]
