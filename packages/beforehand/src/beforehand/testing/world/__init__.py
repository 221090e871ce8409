"""`World`: tests of agents with crashes and faults, in virtual time; the pytest plugin provides one as `world`.

def test_hotel_full(world: World):
world.stub(book_flight, returns=F1)
world.stub(book_hotel, raises=Rejected("full"))
assert world.run(book_trip, TRIP).effects == ["book_flight"]
world.explore(book_trip, TRIP)  # a crash at every boundary; fails with a story
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

import msgspec

from beforehand.agent.agent import Agent, gather_tools
from beforehand.agent.compensation import CompanionTool
from beforehand.agent.handlers import Handlers
from beforehand.agent.tool import Tool
from beforehand.errors import UsageError
from beforehand.testing.faults import ON_READS, Effect, Fault
from beforehand.testing.wire import is_tool
from beforehand.testing.world.explore import MOST_PAIRS, Contracts, Performed, Rules, Same, search, seen
from beforehand.testing.world.outside import Outside, Service, stub
from beforehand.testing.world.processes import in_processes
from beforehand.testing.world.stage import StageEnded, Task, in_this_process, without_warnings
from beforehand.testing.world.story import Crash, Exploration, Finding

T = TypeVar("T")
R = TypeVar("R")
AnyTool = Tool[Any, Any]
Called = AnyTool | CompanionTool
"""A target for a fault: a tool, or its companion as `book.compensate`."""

Way = Callable[[Task, Outside, Sequence[int]], StageEnded]
"""How a run is performed whose processes die at the given boundaries."""

__all__ = ["Crash", "Effect", "Exploration", "Finding", "Ran", "Service", "World"]


class Ran(msgspec.Struct, Generic[R]):
    """The result of a run. `effects` names the effects that happened, in order; `calls` lists them with arguments.

    `status` is that of the run. If the run waits for a person or an event, `asks` says for what. `unmet` lists the
    requested faults that no call triggered.
    """

    status: str
    result: R | None
    error: BaseException | None
    effects: list[str]
    calls: list[str]
    asks: str = ""
    reason: str = ""
    unmet: list[str] = []


class World:
    """The outside world of a test. Each `run` starts in a fresh world, with the stubs and faults that were set.

    With `sigkill` (the `world` fixture under `pytest --beforehand-sigkill`), `explore` performs each run in processes
    of its own, with a journal on disk, and kills them with SIGKILL.
    """

    def __init__(self, *, sigkill: bool = False) -> None:
        self.most_pairs = MOST_PAIRS
        """The maximum number of pairs that `explore(..., crashes=2)` tries; of more, these are spread evenly."""
        self._outside = Outside()
        self._sigkill = sigkill

    # --- setting the scene --------------------------------------------------------------------------------------

    def stub(
        self, what: AnyTool | Handlers[Any] | CompanionTool, *, returns: Any = None, raises: BaseException | None = None
    ) -> None:
        """Replace the answer of a tool, or of one of its handlers: `world.stub(book.verify, returns=...)`."""
        if isinstance(what, CompanionTool):
            what = what.code
        tool, name = (what.tool, what.kind) if isinstance(what, Handlers) else (what, "")
        if name and name not in tool.handlers:
            raise UsageError(f"{tool.name} has no {name} that could be stubbed")
        self._outside.stubs[tool.name, name] = stub(returns, raises)

    def use(self, *services: Service) -> None:
        """Compare the effects that these fakes count, too. The fakes are reset before each run."""
        for service in services:
            if not callable(getattr(service, "effects", None)) or not callable(getattr(service, "reset", None)):
                raise UsageError(
                    f"{service!r} is not a fake that can be counted",
                    next_step="give it effects() -> list[str], what happened in order, and reset(), which forgets it",
                )
        self._outside.services.extend(services)

    def lose_request(self, tool: Called, *, times: int = 1) -> None:
        """Time out before the effect: the request never arrives."""
        self._fault(tool, Fault("lose_request", times))

    def lose_reply(self, tool: Called, *, times: int = 1) -> None:
        """Time out after the effect: it happens, and the reply is lost."""
        self._fault(tool, Fault("lose_reply", times))

    def fail_after(self, tool: Called, *, times: int = 1) -> None:
        """Answer with a 500 after the effect."""
        self._fault(tool, Fault("fail_after", times))

    def answer_late(self, tool: Called, by: timedelta, *, times: int = 1) -> None:
        """Delay the answer by that time, which may exceed the caller's time limit."""
        self._fault(tool, Fault("answer_late", times, by.total_seconds()))

    def land_late(self, tool: Called, after: timedelta, *, times: int = 1) -> None:
        """Time out first. The effect happens that much later, even if its sender is dead by then."""
        self._fault(tool, Fault("land_late", times, after.total_seconds()))

    def deliver_twice(self, tool: Called, *, times: int = 1) -> None:
        """Deliver the request twice."""
        self._fault(tool, Fault("deliver_twice", times))

    def half_lands(self, tool: Called, parameter: str = "", *, times: int = 1) -> None:
        """Perform a partial effect: half of an argument is done, and then the call times out.

        The half is that of a list, a text or a number; without `parameter`, of the first list or mapping with several
        entries. If there is none, the whole effect is done and the reply is cut off. A system that deduplicates does
        the rest when it receives the same key again.
        """
        called = _called(tool)
        if parameter and parameter not in called.spec.types:
            raise UsageError(f"{called.name} has no parameter {parameter!r} of which half could be done")
        self._fault(called, Fault("half_lands", times, parameter=parameter))

    def cut_reply(self, tool: Called, *, times: int = 1) -> None:
        """Return a partial result: half of a list or mapping. Any other reply is cut off."""
        self._fault(tool, Fault("cut_reply", times))

    def lag(self, tool: Called, by: timedelta) -> None:
        """Make `verify` read a state that is that much older."""
        called = _called(tool)
        if "verify" not in called.handlers:
            raise UsageError(f"{called.name} declares no verify, so nothing is read back")
        self._outside.lag.by[called.name] = by.total_seconds()

    def _fault(self, tool: Called, fault: Fault) -> None:
        called = _called(tool)
        if called.contract.effect == "read" and fault.kind not in ON_READS:
            raise UsageError(f"{called.name} is a read: it has no effect that could get lost")
        self._outside.faults.setdefault(called.name, []).append(fault)

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, agent: Agent[T, R], given: T, *, run_id: str | None = None) -> Ran[R]:
        """Run the agent in a fresh world until it ends or waits for a person or an event. Virtual days take no time."""
        _check(agent)
        end, effects = self._perform(Task(agent, given, run_id), (), in_this_process)
        calls = [str(effect) for effect in effects]
        names = [effect.tool for effect in effects if not effect.line]
        return Ran(end.status, end.result, end.error, names, calls, end.asks, end.reason, self._outside.unmet())

    def explore(
        self,
        agent: Agent[T, R],
        given: T,
        *,
        run_id: str | None = None,
        allow_unknown: bool = False,
        crashes: Literal[1, 2] = 1,
        same: Same | None = None,
    ) -> Exploration:
        """Crash the run at every boundary, one at a time, and let another process resume it.

        If no single crash changes the effects, `crashes=2` continues with pairs: a crash at every boundary, and a
        second one at every boundary of the resumed run, up to `most_pairs`.

        Effects are compared by meaning. A tool's `claim` or `once` defines which of its calls are the same effect;
        otherwise all arguments count. With `same`, effects for which it returns equal values are the same (`same=lambda
        effect: effect.tool`; `same=str` compares every word), and the result of the run is not compared.

        Raises `AssertionError` with a report if the world differs from that of a run without a crash. An operation with
        an unknown outcome is also a finding, unless `allow_unknown` permits that a person is asked. With `sigkill`,
        raises `UsageError` if a fake or an effect cannot outlive a killed process.
        """
        __tracebackhide__ = True  # pytest shows the test, not this
        _check(agent)
        if crashes not in {1, 2}:
            raise UsageError(f"crashes={crashes!r}: single crashes are explored, and pairs", next_step="crashes=2")
        task, way = Task(agent, given, run_id), in_processes if self._sigkill else in_this_process
        tools = gather_tools([agent], ())

        def perform(kills: Sequence[int]) -> Performed:
            end, effects = self._perform(task, kills, way)
            return Performed(end, seen(effects, tools, same))

        rules = Rules(allow_unknown, same is None, crashes, self.most_pairs)
        exploration = search(perform, Contracts(tools, self._outside.keyless), rules)
        with without_warnings():
            gc.collect()  # what crashed processes left ends here: what a host logs about it belongs to this test
        exploration = msgspec.structs.replace(exploration, sigkill=self._sigkill, unmet=self._outside.unmet())
        if exploration.findings:
            raise AssertionError(exploration.report(agent.name))
        return exploration

    def _perform(self, task: Task, kills: Sequence[int], way: Way) -> tuple[StageEnded, list[Effect]]:
        outside = self._outside
        outside.begin_anew()
        with without_warnings(), outside.around(task.agent):
            end = way(task, outside, kills)
        return end, outside.happened()


def _called(what: object) -> AnyTool:
    if isinstance(what, CompanionTool):
        return what.code
    if is_tool(what):
        return what
    raise UsageError(f"{what!r} is not a tool", next_step="give the tool; its compensation is called book.compensate")


def _check(agent: object) -> None:
    if not isinstance(agent, Agent):
        raise UsageError(f"{agent!r} is not an agent", next_step="give the @agent function itself, and its input")
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError(
            "a world has time of its own", next_step="call it from a plain `def` test, not from async code"
        )
