"""`decide` is asked before every send and about every end, with everything that was read.

Only its own answer to an equal question replaces it (`test_decided_anew.py`). A list of what may stand in the way would
miss whatever is added to the decision. So a rule, a stop reason, an obstacle of one operation and a field are added here
in turn, and each must be heard for every write. The last tests hold the two places through which all moves come.
"""

import ast
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, fields, replace

import beforehand
from beforehand import Natural, Once, Run, TransactionAborted, agent, tool
from beforehand.engine import executor, situation, verification
from beforehand.engine.operation_driver import OperationDriver
from beforehand.engine.situation import Inputs
from beforehand.model import records as r
from beforehand.model.decision import decide as rules
from beforehand.model.decision.evidence import RULE, Case
from beforehand.model.decision.moves import Move, Send, Settle
from beforehand.model.decision.situation import Block, Now, Situation
from beforehand.model.operation import OperationState
from beforehand.model.outcome import RETURNED, Basis, PendingEffect
from tests.unit.engine.lab import Lab, virtual

CEILING = 900
REFUSED = Settle("above the ceiling", "failed", RULE, "above the ceiling")


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


@virtual
async def test_a_new_rule_is_asked_about_the_second_write_as_about_the_first(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    put_first(monkeypatch, lambda case: REFUSED if above_the_ceiling(case.operation) else None)
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


@virtual
async def test_what_stops_the_run_after_the_first_write_stops_the_second(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    def spent_after_one(_: object) -> Block:
        return "deadline" if lab.sent else ""

    monkeypatch.setattr(situation, "block_of", spent_after_one)
    desk = paying(lab, 1, 2)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert lab.sent == ["1"]


@virtual
async def test_a_new_obstacle_of_one_operation_stops_it(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    def too_much(operation: OperationState, _: object) -> Block:
        return "corrected" if above_the_ceiling(operation) else ""

    monkeypatch.setattr(situation, "_block", too_much)
    desk = paying(lab, 900)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert lab.sent == []


class _Wider(Situation, frozen=True):
    """A situation with one more field."""

    above: bool = False


@virtual
async def test_a_new_field_of_the_situation_is_read_for_every_write(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    read: Any = situation.situation_of

    def wider(operation: OperationState, inputs: Inputs) -> Situation:
        return _Wider(**asdict(read(operation, inputs)), above=above_the_ceiling(operation))

    for module in (situation, executor, verification):
        monkeypatch.setattr(module, "situation_of", wider)
    put_first(monkeypatch, lambda case: REFUSED if getattr(case.situation, "above", False) else None)
    desk = paying(lab, 900)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert lab.sent == []


@virtual
async def test_a_new_rule_is_asked_about_a_call_that_returned(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    doubted: list[int] = []

    def doubt(case: Case) -> Move | None:
        if case.evidence.returned is not None:
            doubted.append(case.evidence.returned.number)
        return None

    put_first(monkeypatch, doubt)
    desk = paying(lab, 900)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == ["succeeded"]
    assert doubted == [1]


@virtual
async def test_every_attempt_and_outcome_on_record_was_decided(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """Keyed by content, natural, refused, in a transaction, retried: each record is the answer of one question.

    An attempt is asked about twice: before its record, and right before its call.
    """
    asked: list[tuple[str, Move]] = []
    ask = situation.next_move

    def listening(driver: OperationDriver, operation: OperationState, now: Now) -> Move:
        move = ask(driver, operation, now)
        asked.append((operation.step, move))
        return move

    monkeypatch.setattr(executor, "next_move", listening)
    failing = iter([ConnectionRefusedError(), None, None, None])

    @tool(once=Once("to"))
    async def mail(to: str) -> str:
        return f"sent to {to}"

    @tool(idempotency=Natural())
    async def save(value: int) -> None:
        if (error := next(failing)) is not None:
            raise error

    @tool
    async def refund(cents: int) -> str:
        return "refunded"

    @refund.compensate(restores=True)
    async def take_back(op: Any, cents: int) -> None: ...

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        await mail("ann")
        await mail("bob")
        await mail.outcome("ann")
        await save(1)
        await save(2)
        async with run.transaction("money"):
            await refund(5)
        with contextlib.suppress(TransactionAborted):
            async with run.transaction("more"):
                await refund(7)
                raise RuntimeError("wrong amount")

    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    attempts = [one.step for one in lab.of("r-ann", r.AttemptStarted)]
    outcomes = [one.step for one in lab.of("r-ann", r.OperationSettled)]
    sends = [step for step, move in asked if isinstance(move, Send)]
    assert attempts == sends[::2] == sends[1::2]
    assert outcomes == [step for step, move in asked if isinstance(move, Settle)]
    assert len(attempts) >= 7


RETURNED_WITH: dict[str, Any] = {
    "rule": "returned, as a new rule says",
    "basis": Basis("person", "bea"),
    "reason": "because",
    "code": "some_code",
    "unverified": True,
    "pending_effect": PendingEffect("other/mail#1"),
}
"""Another value for each field of an outcome that a rule may decide when a call returned."""


@pytest.mark.parametrize("field", [*(one.name for one in fields(Settle) if one.name not in {"status", "attempt"})])
@virtual
async def test_every_field_of_a_decided_outcome_is_on_record(lab: Lab, monkeypatch: pytest.MonkeyPatch, field: str):
    def returned(case: Case) -> Move | None:
        found = case.evidence.returned
        if found is None:
            return None
        move = Settle("returned", "succeeded", RETURNED, attempt=found.number)
        return replace(move, **{field: RETURNED_WITH[field]})

    put_first(monkeypatch, returned)
    desk = paying(lab, 900)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    (outcome,) = lab.of("r-ann", r.OperationSettled)
    recorded = {"pending_effect": "met"}.get(field, field)
    assert getattr(outcome, recorded) == RETURNED_WITH[field]


PACKAGE = Path(beforehand.__file__).parent
SITUATION = "engine/situation.py"


def places(fits: Callable[[ast.AST], bool]) -> set[str]:
    """The files of the package with such a node."""
    texts = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    # Most files name neither: to parse all of them takes seconds.
    trees = {name: ast.parse(text) for name, text in texts.items() if "Situation" in text or "decision.decide" in text}
    return {name for name, tree in trees.items() if any(map(fits, ast.walk(tree)))}


def builds(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "Situation"


def imports_decide(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "beforehand.model.decision.decide"


@virtual
async def test_an_answer_that_needed_no_clock_holds_until_the_call_and_no_other_does(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    decided: list[str] = []
    ask = situation.decide

    def listening(operation: OperationState, known: Situation, now: Now) -> Move:
        decided.append(operation.step)
        return ask(operation, known, now)

    monkeypatch.setattr(situation, "decide", listening)
    desk = paying(lab, 1)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
        assert decided == ["pay#1", "pay#1"]  # to send it, and about its end
        put_first(monkeypatch, lambda case: REFUSED if case.now.wall < 0 else None)
        await app.run(desk, "bob")
    assert decided == ["pay#1"] * 5  # now also right before the call


def test_one_file_asks_and_builds_what_is_asked_with():
    """Readers that drive nothing ask there, too: so they show the move that the engine makes."""
    assert places(imports_decide) == {SITUATION}
    assert places(builds) == {SITUATION}
    tree = ast.parse((PACKAGE / SITUATION).read_text(encoding="utf-8"))
    asks = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "decide"]
    assert len(asks) == 2  # for a process, which does not ask twice about the same, and for a reader


def test_every_field_of_the_situation_is_read_anew():
    """A field that the builder leaves at its default would be one that no decision can hear of."""
    source = (PACKAGE / SITUATION).read_text(encoding="utf-8")
    for kind in (Situation, Inputs):
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
        (built,) = [node for node in calls if ast.unparse(node.func) == kind.__name__]
        ends = [source.splitlines()[argument.end_lineno - 1] for argument in built.args if argument.end_lineno]
        assert [line.rpartition("  # ")[2] for line in ends] == list(kind.__struct_fields__)
        assert not built.keywords
