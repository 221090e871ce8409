"""Costs over all runs: what is known is summed up, what is unknown is counted beside it."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from beforehand.errors import Unreadable
from beforehand.inspect.costs import CostLine, CostReport, Grouping, costs
from beforehand.inspect.prices import Prices, declared_prices
from beforehand.journal.port import RunRow
from beforehand.model import records as r
from beforehand.model.system import PREFIX
from beforehand.model.usage import Usage

DAY = 86_400_000
PRICES = Prices(declared_prices({"models": {"m": {"input": 1, "output": 10}}}, "own"))
PAY = r.Intent("pay", r.NOTHING, "d", "c")
UNDO = r.Intent("unpay", r.NOTHING, "d", "c", compensates="pay#1")
M = Usage(1_000_000, 100_000, model="m")  # costs 2
UNKNOWN = Usage()
CLAIMED = r.Claimed(worker="w", token=1, boot="b")


class Records:
    """A reader of these runs; an exception among the records is raised in its place."""

    def __init__(self, runs: dict[str, list[Any]], **about: Any) -> None:
        self.runs, self.about = runs, about
        self.kinds: set[type] = set()

    async def every_run(self) -> AsyncIterator[RunRow]:
        for run in self.runs:
            row = RunRow(run, 1, "desk", "", "completed", "", None, b"[]", 1, None, 0, 10 * DAY, tenant="acme")
            yield replace(row, **self.about.get(run, {}))

    async def records(self, run: str, after: int, *kinds: type) -> AsyncIterator[Any]:
        for record in self.runs[run]:
            if isinstance(record, Exception):
                raise record
            if type(record) in kinds:
                yield None, record


def report(runs: dict[str, list[Any]], by: Grouping = "agent", since_ms: int = 0, **about: Any) -> CostReport:
    return asyncio.run(costs(Records(runs, **about), PRICES, by, since_ms))  # type: ignore[arg-type]  # what is read of a reader


def total(*records: Any) -> CostLine:
    return report({"a": [CLAIMED, *records]}).total


def began(step: str = "t#1", number: int = 1, before: Usage = UNKNOWN, at: int = 0) -> r.DecisionStarted:
    return r.DecisionStarted(step=step, function="model", number=number, before=before, at=at)


def answered(used: Usage = M, step: str = "t#1", at: int = 0, **more: Any) -> r.DecisionRecorded:
    fields = {name: getattr(used, name) for name in Usage.__struct_fields__}
    return r.DecisionRecorded(step=step, function="model", digest="", at=at, **{**fields, **more})


def sent(step: str = "pay#1", intent: r.Intent = PAY) -> r.AttemptStarted:
    return r.AttemptStarted(step=step, intent=intent)


def settled(step: str = "pay#1", at: int = 0, status: Any = "succeeded", **more: Any) -> r.OperationSettled:
    return r.OperationSettled(step=step, status=status, at=at, **more)


def test_a_call_that_is_priced():
    line = total(began(), answered(replace(M, cached_tokens=5, audio_input_tokens=2, audio_output_tokens=1)))
    assert (line.calls, line.unknown, line.cost) == (1, 0, {"USD": Decimal(2)})
    assert (line.input_tokens, line.cached_tokens, line.output_tokens, line.audio_tokens) == (1_000_000, 5, 100_000, 3)


def test_what_is_unknown_is_counted_and_never_zero():
    line = total(
        began(), answered(Usage()),
        began("u#1"), answered(replace(M, model="other"), "u#1"),
        began("v#1"), answered(M, "v#1"),
        began("w#1"),
    )  # fmt: skip
    assert (line.calls, line.uncounted, line.unpriced, line.cost) == (4, 2, 1, {"USD": Decimal(2)})


def test_a_sum_of_unknown_costs_has_no_amount():
    assert total(began(), answered(Usage())).cost == {}


def test_tries_that_were_thrown_away_are_paid_for():
    line = total(
        began(), began(number=2, before=M), began(number=3, before=Usage(refused=True)), began(number=4), answered()
    )
    assert (line.calls, line.uncounted, line.cost) == (3, 1, {"USD": Decimal(4)})
    assert (line.wasted_calls, line.wasted_tokens, line.wasted_cost) == (1, 1_100_000, {"USD": Decimal(2)})


def test_a_decision_that_failed_holds_the_usage_of_its_last_try():
    line = total(began(), answered(M, status="failed"), began("u#1"), answered(Usage(refused=True), "u#1"))
    assert (line.calls, line.unknown, line.cost) == (1, 0, {"USD": Decimal(2)})
    assert (line.wasted_calls, line.wasted_cost) == (1, {"USD": Decimal(2)})


def test_a_request_that_was_not_sent_or_refused_is_no_call_and_makes_no_group():
    refused = answered(Usage(refused=True), status="failed")
    assert report({"a": [CLAIMED, began(), refused]}).lines == []


@pytest.mark.parametrize("part", ["cached_tokens", "cache_write_tokens", "audio_input_tokens", "reasoning_tokens"])
def test_counts_that_contradict_are_not_a_missing_price(part: str):
    found = report({"a": [CLAIMED, began(), answered(replace(M, **{part: 5_000_000}))]})
    assert (found.total.contradictory, found.total.unpriced, found.total.unknown) == (1, 0, 1)
    assert found.unpriced_models == {}


def test_the_cost_of_each_effect_that_stood():
    line = total(
        answered(), sent(), settled(), sent("pay#2"), settled("pay#2"), sent("pay#3"), settled("pay#3", status="failed")
    )
    assert (line.effects, line.per_effect) == (2, {"USD": Decimal(1)})


def test_a_compensated_effect_did_not_stand_and_a_compensation_is_none():
    assert total(sent(), settled(), sent("unpay#1", UNDO), settled("unpay#1")).effects == 0
    assert total(sent(), settled(), sent("unpay#1", UNDO), settled("unpay#1", status="failed")).effects == 1


def test_a_person_states_that_an_effect_happened():
    unknown = settled(status="unknown")
    assert total(sent(), unknown).effects == 0
    assert total(sent(), unknown, r.Resolved(step="pay#1", word="happened", by="ann", attempts=1)).effects == 1
    assert total(sent(), unknown, r.Resolved(step="pay#1", word="did_not_happen", by="ann", attempts=1)).effects == 0


def test_what_replay_saved():
    again = replace(CLAIMED, token=2)
    line = total(began(), answered(), again, began("u#1"), answered(M, "u#1"), again, r.RunCompleted(result=r.NOTHING))
    assert (line.calls, line.cost) == (2, {"USD": Decimal(4)})
    assert (line.saved_calls, line.saved_tokens, line.saved_cost) == (3, 3_300_000, {"USD": Decimal(6)})


def test_an_owner_that_came_no_further_proves_no_replay():
    """It may have applied a command, or died before the code was there."""
    again = replace(CLAIMED, token=2)
    assert total(began(), answered(), again, again).saved_calls == 0
    assert total(began(), answered(status="failed"), again, r.RunCompleted(result=r.NOTHING)).saved_calls == 0


@pytest.mark.parametrize(
    ("by", "lines"),
    [
        ("agent", {"desk": 2, "other": 2}),
        ("tenant", {"acme": 2, "-": 2}),
        ("outcome", {"completed": 2, "stopped": 2}),
        ("day", {"1970-01-01": 2, "1970-01-03": 2}),
        ("model", {"m": 2, "n": None}),
    ],
)
def test_groups(by: Grouping, lines: dict[str, int | None]):
    second = answered(M if by != "model" else replace(M, model="n"), at=2 * DAY)
    runs = {"a": [answered()], "b": [second]}
    found = report(runs, by, b={"agent": "other", "tenant": "", "status": "stopped"})
    assert {line.name: line.cost.get("USD") for line in found.lines} == lines
    assert found.unpriced_models == ({"n": 1} if by == "model" else {})


def test_tools_and_what_they_reported():
    spent = r.AttemptEnded(step="pay#1", number=1, end=r.End("ambiguous", cost=0.1))
    runs = {"a": [answered(), sent(), spent, settled(end=r.End(cost=0.2)), sent("mail#1", replace(PAY, tool="mail"))]}
    (line,) = report(runs, "tool").lines
    assert (line.name, line.reported, line.effects, line.calls) == ("pay", Decimal("0.3"), 1, 0)
    assert report(runs).total.reported == Decimal("0.3")


def test_every_grouping_has_the_same_total():
    again = replace(CLAIMED, token=2)
    runs = {
        "a": [CLAIMED, began(), began(number=2, before=M), answered(at=DAY), sent(), settled(), again, began("x#1")],
        "b": [CLAIMED, answered(cost=0.5), again, answered(Usage(), "u#1", at=DAY), r.RunCompleted(result=r.NOTHING)],
    }
    totals = [report(runs, by).total for by in ("agent", "tenant", "day", "outcome")]
    assert all(one == totals[0] for one in totals)
    assert (totals[0].calls, totals[0].saved_calls, totals[0].reported) == (5, 1, Decimal("0.5"))


def test_since_leaves_out_what_is_older():
    runs = {
        "a": [answered(at=1), answered(M, "u#1", at=DAY), sent(), settled(at=2), sent("pay#2"), settled("pay#2", DAY)]
    }
    line = report(runs, since_ms=DAY).total
    assert (line.calls, line.effects) == (1, 1)
    assert report(runs, since_ms=11 * DAY).lines == []
    driven = {"a": [answered(at=12 * DAY)]}  # its listing has not changed since it was taken
    assert report(driven, since_ms=11 * DAY, a={"status": "running"}).total.calls == 1


def test_a_run_that_cannot_be_read_is_named_and_in_no_sum():
    found = report({"a": [answered(), Unreadable("damaged")], "b": [answered()]})
    assert (found.unreadable, found.total.calls) == (["a"], 1)


def test_runs_of_the_runtime_itself_are_left_out():
    assert report({"a": [answered()]}, a={"agent": f"{PREFIX}notices"}).lines == []


def test_the_dearest_group_comes_first_and_days_come_in_order():
    runs = {"a": [answered(at=DAY)], "b": [answered(), answered(M, "u#1")], "c": [began()]}
    named = report(runs, "agent", a={"agent": "small"}, b={"agent": "large"}, c={"agent": "unknown"})
    assert [line.name for line in named.lines] == ["large", "small", "unknown"]
    assert [line.name for line in report(runs, "day").lines] == ["1970-01-01", "1970-01-02"]
