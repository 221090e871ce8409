"""Nothing is stored that its reader would refuse, whatever a caller passes; the entry points are found by looking."""

import contextlib
import inspect
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beforehand import (
    Ambiguous,
    CannotTell,
    Deferred,
    Key,
    Natural,
    NotSent,
    Rejected,
    Run,
    Verdict,
    agent,
    current_operation,
    errors,
    tool,
)
from beforehand.control.service import ControlService
from beforehand.engine.current_operation import CurrentOperation
from beforehand.errors import ArgumentError, BeforehandError, KeyInProgress
from beforehand.inspect.ledger_kinds import PLAIN, kind_of, unreadable
from beforehand.journal.entry_codec import REFUSED
from beforehand.journal.record_codec import decode
from beforehand.knowledge.conversation import Conversation
from beforehand.knowledge.facts import Facts
from beforehand.knowledge.memory import Lessons, UserMemory
from beforehand.model.run_history import RunHistory
from beforehand.policies import Gate, Retry
from beforehand.testing.clock import run_virtual
from tests.unit.engine.lab import Lab

INT64 = 2**63

bad: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -1.0, 7]),
    st.sampled_from(["", "\0", "\ud800", "did-not-happen", "no", "seat", "x" * 1_000_001]),
    st.sampled_from([b"\xff", object(), {"a": math.nan}, {"a": {1}}, ["a", None], ("",), {"b": object()}, 2**70]),
    st.sampled_from([timedelta(0), timedelta(-1), timedelta.max, timedelta.min]),
)


def readable(lab: Lab) -> None:
    """Every record folds, every ledger entry is what its reader decodes, and the listing fits into SQLite."""
    lab.journal._settle()
    for name, found in lab.journal._runs.items():
        history = RunHistory(name)
        for row in found.rows:
            history.add(decode(row.body))
        assert found.listing.due_ms is None or -INT64 <= found.listing.due_ms < INT64, found.listing
        found.listing.reason.encode()
        msgspec.json.decode(found.listing.waits)
    for entry in lab.journal._ledger:
        assert kind_of(entry) is not None or entry.stream.partition("/")[0] in PLAIN, (
            f"ledger_kinds does not know {entry.stream}"
        )
        assert entry.stream != REFUSED, entry
        (entry.stream + entry.key).encode()
    assert unreadable(lab.journal._ledger) == []


# --- the use cases --------------------------------------------------------------------------------------------------

METHODS = [
    name
    for name, method in vars(ControlService).items()
    if inspect.iscoroutinefunction(method) and not name.startswith("_")
]
PLAUSIBLE: dict[str, list[Any]] = {
    "run": ["gate", "lost", "ask", "done"],
    "operation": ["gate/pay#1", "lost/call#1"],
    "question": ["ask/ask#1"],
    "item": ["ask/ask#1"],
    "word": ["happened", "did_not_happen", "retry", "accept"],
    "by": ["bea"],
    "tool": ["pay"],
    "value": ["yes"],
    "text": ["stop that"],
    "changes": [{"cents": 5}],
    "event": ["paid"],
}


def desks(lab: Lab) -> Any:
    @tool(idempotency=Key.forever(), gate=Gate("true"))
    async def pay(cents: int) -> str:
        lab.sent.append(current_operation().key)
        return "paid"

    @tool(retry=Retry(attempts=1))
    async def call(name: str) -> str:
        raise Ambiguous("the line broke")

    @agent(run_id="{name}", tools=[pay, call])
    async def desk(run: Run, name: str) -> str:
        if name == "gate":
            return await pay(9)
        if name == "lost":
            return await call("x")
        return await run.ask("really?") if name == "ask" else "fine"

    return desk


async def called(name: str, given: dict[str, Any]) -> None:
    lab = Lab()
    desk = desks(lab)
    async with lab.app(desk) as app:
        for run in ("gate", "lost", "ask", "done"):
            try:
                await app.run(desk, run)
            except BeforehandError:
                continue
        before = lab.everything()
        try:
            await getattr(app.service, name)(**given)
        except ArgumentError:
            assert lab.everything() == before, "what is refused stores nothing"
        except BeforehandError:
            pass
    readable(lab)
    async with lab.app(desk) as app:  # a journal that holds it opens for others, and every run can be looked at
        for run in ("gate", "lost", "ask", "done"):
            await app.service.history(run)
        await app.engine.look()
    readable(lab)


@pytest.mark.parametrize("name", METHODS)
def test_a_use_case_stores_only_what_can_be_read(name: str):
    method = getattr(ControlService, name)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    assert set(get_type_hints(method)) >= {one.name for one in parameters}, "every parameter says what it takes"

    @settings(max_examples=25)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        arguments: dict[str, Any] = {}
        for one in parameters:
            plausible = PLAUSIBLE.get(one.name, [])
            if one.default is not one.empty and data.draw(st.booleans()):
                continue
            arguments[one.name] = data.draw(st.one_of(st.sampled_from(plausible), bad) if plausible else bad)
        run_virtual(called(name, arguments), limit=timedelta(days=9))

    holds()


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("pause_tool", {"tool": "keyed", "by": None}, "by=None"),
        ("resolve", {"operation": "lost/call#1", "word": "did-not-happen", "by": "bea"}, "'did_not_happen'"),
        ("resolve", {"operation": "lost/call#1", "word": "retry", "by": None}, "give text"),
        ("resolve", {"operation": "lost/call#1", "word": "retry", "by": "bea", "evidence": {}}, "evidence={}"),
        ("cancel", {"run": "gate", "by": "bea", "why": None}, "why=None"),
        ("approve", {"operation": "gate/pay#1", "by": "bea", "why": 7}, "why=7"),
        ("tell", {"run": "gate", "text": "x", "by": "bea", "stop": "no"}, "true or false"),
        ("signal", {"run": "gate", "event": "e", "payload": {"x": math.nan}}, "not finite"),
        ("cancel", {"run": "gate", "by": "bea", "why": "x" * 1_000_001}, "1,000,001 characters"),
    ],
)
def test_the_refusal_names_the_parameter_and_what_is_accepted(name: str, given: dict[str, Any], said: str):
    async def main() -> None:
        lab = Lab()
        desk = desks(lab)
        async with lab.app(desk) as app:
            for run in ("gate", "lost"):
                with pytest.raises(BeforehandError):
                    await app.run(desk, run)
            before = lab.everything()
            with pytest.raises(ArgumentError) as refused:
                await getattr(app.service, name)(**given)
            assert said in str(refused.value)
            assert refused.value.parameter in given
            assert lab.everything() == before

    run_virtual(main(), limit=timedelta(days=9))


# --- what tools raise, return and say -------------------------------------------------------------------------------

SAID = [
    name
    for name, method in vars(CurrentOperation).items()
    if inspect.isfunction(method) and not name.startswith("_") and name != "check_send"
]
RAISED = [NotSent, Rejected, Ambiguous, KeyInProgress, Deferred, errors.Declined, errors.SendByPassed]
VERDICTS = [get_origin(kind) or kind for kind in get_args(Verdict)]


def drawn(make: Callable[..., Any], data: st.DataObject) -> dict[str, Any]:
    """Values of any kind for the parameters of `make`."""
    return {
        one.name: data.draw(bad)
        for one in inspect.signature(make).parameters.values()
        if one.name not in {"self", "args", "kwargs"} and (one.default is one.empty or data.draw(st.booleans()))
    }


async def performed(body: Callable[[], Any], verdict: Callable[[], Any]) -> None:
    lab = Lab()

    async def act() -> str:
        answer = body()
        if isinstance(answer, BaseException):
            raise answer
        return "done"

    @tool(idempotency=Natural(), retry=Retry(attempts=2))
    async def natural(name: str) -> str:
        return await act()

    @tool(retry=Retry(attempts=2))
    async def plain(name: str) -> str:
        return await act()

    @tool(retry=Retry(attempts=2))
    async def verified(name: str) -> str:
        return await act()

    @verified.verify
    async def look(call: Any) -> Verdict[str]:
        return verdict()  # type: ignore[no-any-return]  # whatever it is

    @agent(run_id="{name}", tools=[natural, plain, verified])
    async def desk(run: Run, name: str) -> str:
        one: Callable[[str], Awaitable[str]]
        for one in (natural, plain, verified):
            with contextlib.suppress(BeforehandError):
                await one(name)
        return "over"

    async with lab.app(desk) as app:
        with contextlib.suppress(BeforehandError):
            await app.run(desk, "ann")
        readable(lab)
        await app.service.history("ann")
    async with lab.app(desk) as app:
        await app.engine.look()
    readable(lab)


@pytest.mark.parametrize("kind", RAISED)
def test_whatever_a_tool_raises_can_be_read(kind: type[Exception]):
    @settings(max_examples=25)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        given = drawn(kind, data)
        run_virtual(performed(lambda: kind(**given), CannotTell), limit=timedelta(days=900))

    holds()


@pytest.mark.parametrize("kind", VERDICTS)
def test_whatever_a_verifier_answers_can_be_read(kind: type[Any]):
    @settings(max_examples=25)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        given = drawn(kind, data)
        run_virtual(performed(lambda: Ambiguous("?"), lambda: kind(**given)), limit=timedelta(days=900))

    holds()


@pytest.mark.parametrize("name", SAID)
def test_whatever_a_tool_says_besides_can_be_read(name: str):
    @settings(max_examples=25)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        given = drawn(getattr(CurrentOperation, name), data)
        body = lambda: getattr(current_operation(), name)(**given)  # noqa: E731 - called inside the tool
        run_virtual(performed(body, CannotTell), limit=timedelta(days=900))

    holds()


# --- what agent code asks of its run --------------------------------------------------------------------------------

RUN_METHODS = [
    name
    for name, method in vars(Run).items()
    if inspect.isfunction(method) and not name.startswith("_") and name not in {"scope", "gather", "map"}
]
OF_THE_RUN: dict[str, Callable[[Run], Any]] = {
    "": lambda run: run,
    "memory": lambda run: run.memory("ann"),
    "lessons": lambda run: run.lessons("flights"),
    "conversation": lambda run: run.conversation(),
    "facts": lambda run: run.facts,
}
ASKED = [("", name) for name in RUN_METHODS] + [
    (of, name)
    for of, kind in (("memory", UserMemory), ("lessons", Lessons), ("conversation", Conversation), ("facts", Facts))
    for name, method in vars(kind).items()
    if inspect.isfunction(method) and not name.startswith("_")
]


async def asked_of_run(of: str, name: str, given: dict[str, Any]) -> None:
    lab = Lab()

    @agent(run_id="{who}")
    async def desk(run: Run, who: str) -> str:
        answer = getattr(OF_THE_RUN[of](run), name)(**given)
        if inspect.isawaitable(answer):
            await answer
        elif hasattr(answer, "__aenter__"):
            async with answer:
                await run.now()
        elif hasattr(answer, "__enter__"):
            with answer:
                await run.now()
        return "fine"

    async with lab.app(desk) as app:
        with contextlib.suppress(Exception):  # agent code may fail of its own bug; what is stored is looked at
            await app.run(desk, "ann", run_id="ann")
        readable(lab)
        await app.service.history("ann")
    async with lab.app(desk) as app:
        with contextlib.suppress(Exception):
            await app.resume("ann", by="bea")
    readable(lab)


@pytest.mark.parametrize(("of", "name"), ASKED)
def test_whatever_agent_code_asks_of_its_run_can_be_read(of: str, name: str):
    owner = {"": Run, "memory": UserMemory, "lessons": Lessons, "conversation": Conversation, "facts": Facts}[of]

    @settings(max_examples=15)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        given = drawn(getattr(owner, name), data)
        run_virtual(asked_of_run(of, name, given), limit=timedelta(days=900_000_000))

    holds()
