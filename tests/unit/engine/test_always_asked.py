"""`decide` is asked before every send and about every end, by each way that the engine has to its answer.

The engine has shortcuts: the first move of a tool that a calm run remembers, the situation that a calm run shares,
the list of an operation's own obstacles, and the settlement of a call that plainly returned. Each shortcut keeps a list
of its own, so a rule, an obstacle or a field that is added to the decision is not asked there. The tests below show
that, one for each shortcut, as strict expected failures: the change that removes a shortcut removes its mark. Beside each is
the same program with that shortcut switched off, which shows that nothing else is the reason.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import asdict

from holdfast import Run, agent, tool
from holdfast.engine import executor, flight
from holdfast.engine.calm import Calm
from holdfast.engine.flight import Flight
from holdfast.model import decide as rules
from holdfast.model.case import RULE, Case
from holdfast.model.moves import Move, Settle
from holdfast.model.operation import OperationState
from holdfast.model.situation import Situation, Stop
from tests.unit.engine.lab import Lab, virtual

CEILING = 900
REFUSED = Settle("above the ceiling", "failed", RULE, "above the ceiling")


def bypassed(why: str) -> pytest.MarkDecorator:
    """A strict expected failure: the assertion itself fails, and nothing else may."""
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=why)


def each_way(why: str) -> pytest.MarkDecorator:
    """The test with the shortcut, which is expected to fail, and without it."""
    return pytest.mark.parametrize(
        "shortcut", [pytest.param(True, marks=bypassed(why)), False], ids=["with", "without"]
    )


def put_first(monkeypatch: pytest.MonkeyPatch, rule: Callable[[Case], Move | None]) -> None:
    """Add a rule before all others, for operations with and without attempts."""
    for name in ("_OPEN", "_UNTRIED"):
        monkeypatch.setattr(rules, name, (rule, *getattr(rules, name)))


def above_the_ceiling(operation: OperationState) -> bool:
    return int(bytes(operation.intent.arguments).partition(b":")[2].rstrip(b"}")) >= CEILING


def paying(lab: Lab, *amounts: int):
    """An agent that pays these amounts, one after the other, and returns their states."""

    @tool
    async def pay(cents: int) -> str:
        lab.sent.append(str(cents))
        return "paid"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return [(await pay.outcome(cents)).status for cents in amounts]

    return desk


@each_way("`Calm.first` remembers the move of a tool's first write, so the rules are not asked about the second")
@virtual
async def test_a_new_rule_is_asked_about_the_second_write_as_about_the_first(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, shortcut: bool
):
    put_first(monkeypatch, lambda case: REFUSED if above_the_ceiling(case.operation) else None)
    if not shortcut:
        monkeypatch.setattr(Calm, "first", property(lambda _: None, lambda _, __: None), raising=False)
    desk = paying(lab, 1, 900)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert lab.sent == ["1"]


@virtual
async def test_a_new_rule_is_asked_about_the_first_write(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    put_first(monkeypatch, lambda case: REFUSED if above_the_ceiling(case.operation) else None)
    desk = paying(lab, 900)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == ["failed"]
    assert lab.sent == []


@each_way("`calm_of` keeps its own list of what stops a run, and shares a situation in which nothing does")
@virtual
async def test_what_stops_the_run_after_the_first_write_stops_the_second(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, shortcut: bool
):
    def spent_after_one(_: object) -> Stop:
        return "budget" if lab.sent else ""

    monkeypatch.setattr(flight, "stop_of", spent_after_one)
    if not shortcut:
        monkeypatch.setattr(flight, "calm_of", lambda *_: None, raising=False)
    desk = paying(lab, 1, 2)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert lab.sent == ["1"]


@each_way("`Flight._plain` keeps its own list of what may stand in the way of one operation")
@virtual
async def test_a_new_obstacle_of_one_operation_stops_it(lab: Lab, monkeypatch: pytest.MonkeyPatch, shortcut: bool):
    def too_much(self: Flight, operation: OperationState) -> Stop:
        return "corrected" if above_the_ceiling(operation) else ""

    monkeypatch.setattr(Flight, "_stop", too_much)
    if not shortcut:
        monkeypatch.setattr(Flight, "_plain", lambda *_: False, raising=False)
    desk = paying(lab, 900)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert lab.sent == []


class _Wider(Situation, frozen=True):
    """A situation with one more field."""

    above: bool = False


@each_way("`_first_calm` builds situations beside `Flight.situation`, so a new field is not read there")
@virtual
async def test_a_new_field_of_the_situation_is_read_for_every_write(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, shortcut: bool
):
    read: Any = Flight.situation

    def wider(self: Flight, operation: OperationState) -> Situation:
        return _Wider(**asdict(read(self, operation)), above=above_the_ceiling(operation))

    monkeypatch.setattr(Flight, "situation", wider)
    put_first(monkeypatch, lambda case: REFUSED if getattr(case.situation, "above", False) else None)
    if not shortcut:
        monkeypatch.setattr(Flight, "_calm", lambda *_: None, raising=False)
    desk = paying(lab, 900)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert lab.sent == []


@each_way("the executor settles a call that returned by `proven_by`, and asks no rule about it")
@virtual
async def test_a_new_rule_is_asked_about_a_call_that_returned(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, shortcut: bool
):
    doubted: list[int] = []

    def doubt(case: Case) -> Move | None:
        if case.weight.returned is not None:
            doubted.append(case.weight.returned.number)
        return None

    put_first(monkeypatch, doubt)
    if not shortcut:
        monkeypatch.setattr(executor, "proven_by", lambda *_: None, raising=False)
    desk = paying(lab, 900)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == ["succeeded"]
    assert doubted == [1]
