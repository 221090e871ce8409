"""`beforehand why` names the move that the engine makes next, wherever the journal alone decides it.

The simulator's processes die at every point, and other ones go on. Each time one of these asks `decide` about an
operation that no code of its own drives, the same question is asked by the reader, from nothing but the journal. Both
have to say the same, or the reader has to name what it did not read.
"""

from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from beforehand.engine import executor
from beforehand.engine.operation_driver import OperationDriver
from beforehand.engine.recorded_operation import SharedState, read_operation
from beforehand.engine.situation import judge, next_move
from beforehand.inspect.explain import unread
from beforehand.journal.port import WorkerState
from beforehand.journal.record_codec import decode
from beforehand.model.decision.moves import Move, Wait
from beforehand.model.decision.situation import Now
from beforehand.model.operation import OperationState
from beforehand.model.run_history import RunHistory
from beforehand.testing.world.stage import without_warnings
from simulator.generator.plans import draw
from simulator.world import World
from tests.draws import pick

SEEDS = range(40)
SHARED = {"paused", "breaker"}
"""Waits for what a process reads every few seconds, and the reader at once: the process may know it later."""
OFTEN = (
    "an attempt without an answer may still land",
    "the same key is still remembered",
    "a person is asked",
    "time to read back",
    "first attempt",
    "nothing can prove it",
)


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the journal in memory makes its callers wait")


class Readers:
    """Asks the reader whatever the processes of one world ask."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.known: dict[OperationDriver, tuple[int, int]] = {}
        self.asked = Counter[str]()
        self.others: list[str] = []

    async def account(self, driver: OperationDriver) -> None:
        """Note how much was on record before the process accounted for the owners before it."""
        assert isinstance(driver, OperationDriver)
        before = driver.active.history.records
        await ACCOUNT(driver)
        self.known[driver] = before, driver.active.history.records

    def next_move(self, driver: OperationDriver, operation: OperationState, now: Now) -> Move:
        move = next_move(driver, operation, now)
        if driver.journaled and operation is driver.operation and driver.scope is None and not driver.calls:
            self.compare(driver, operation, now, move)
        return move

    def compare(self, driver: OperationDriver, operation: OperationState, now: Now, move: Move) -> None:
        rows = at_once(self.world.store.read(driver.active.run, 0, 100_000))
        history = driver.active.history
        before, after = self.known.get(driver, (history.records, history.records))
        found = driver.found
        if history.records != after or len(rows) != before or found.reading != "unread" or found.permission is not None:
            return  # it knows more than the journal, or less: what it has not written yet, or another process has
        told = RunHistory(driver.active.run)
        for row in rows[:before]:
            told.add(decode(row.body))
        if driver.step not in told.operations:
            return
        process, tool = driver.active.process, operation.intent.tool
        shared = at_once(SharedState(View(driver), process.identity, tool, now, process.settings).read())
        recorded = at_once(read_operation(shared, told, told.operations[driver.step]))
        _, read = judge(recorded.operation, recorded.inputs, now)
        same = (type(move), move.rule) == (type(read), read.rule)
        if same:
            self.asked[move.rule] += 1
        elif at_once(unread(shared, recorded, read)):
            self.asked["something is not read"] += 1
        elif not any(isinstance(one, Wait) and one.why in SHARED for one in (move, read)):
            self.others.append(f"{driver.id}: the engine decides {move}, the reader {read}")


class View:
    """The journal as a process sees it, at once."""

    def __init__(self, driver: OperationDriver) -> None:
        self.disk: Any = driver.active.process.journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk._world.store, name)

    async def fate(self, worker: str) -> WorkerState:
        state = await self.disk._world.store.fate(worker)
        hidden = worker not in self.disk.workers and self.disk._world.hidden(worker, self.disk._contained)
        return WorkerState("unknown", state.silent_ms) if state.fate != "unknown" and hidden else state


ACCOUNT = executor.account_for_previous_owners


@pytest.mark.deeper
def test_why_says_what_the_engine_decides(monkeypatch: pytest.MonkeyPatch):
    asked, others = Counter[str](), list[str]()
    for seed in pick(SEEDS, SEEDS[:16]):
        world = World(draw(seed))
        readers = Readers(world)
        monkeypatch.setattr(executor, "next_move", readers.next_move)
        monkeypatch.setattr(executor, "account_for_previous_owners", readers.account)
        with without_warnings():
            world.simulate()
        asked += readers.asked
        others += [f"seed {seed}: {one}" for one in readers.others]
    assert not others, "\n".join(others[:20])
    assert asked.keys() >= set(OFTEN), asked
    assert asked["something is not read"] < asked.total() / 20, asked
