"""Calls and handlers that end in odd ways: what they did is on record all the same."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    Ambiguous,
    CannotTell,
    Conflict,
    NotSent,
    Operation,
    Rejected,
    Run,
    Verdict,
    agent,
    tool,
)
from beforehand.errors import ResultLost, RunStopped, RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


class Wordless(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("not text")


@dataclass
class Picky:
    """A result whose class refuses to be made a second time."""

    name: str

    def __post_init__(self) -> None:
        if Picky.made:
            raise RuntimeError("once is enough")
        Picky.made = True


Picky.made = False  # type: ignore[attr-defined]  # not a field


@virtual
async def test_an_error_without_a_text_ends_its_attempt(lab: Lab):
    @tool
    async def pay(order: str) -> str:
        lab.sent.append(order)
        raise Wordless

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "1")
    assert [ended.end.kind for ended in lab.of("r-1", r.AttemptEnded)] == ["ambiguous"]


@virtual
async def test_a_refusal_whose_code_is_a_number_is_a_refusal(lab: Lab):
    @tool
    async def pay(order: str) -> str:
        raise Rejected("no funds", code=402)  # type: ignore[arg-type]  # what people write

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        outcome = await pay.outcome(name)
        return f"{outcome.status} {outcome.code}"

    async with lab.app(desk) as app:
        assert await app.run(desk, "1") == "failed 402"


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), "soon"])
def test_a_wait_that_is_not_a_length_of_time_is_refused_and_a_person_is_asked(seconds: Any):
    @virtual
    async def story(lab: Lab) -> None:
        @tool
        async def pay(order: str) -> str:
            lab.sent.append(order)
            raise NotSent(retry_after=seconds)

        @agent(run_id="r-{name}", tools=[pay])
        async def desk(run: Run, name: str) -> str:
            return await pay(name)

        async with lab.app(desk) as app:
            with pytest.raises(RunSuspended, match="is not a time to wait"):
                await app.run(desk, "1")

    story()


@virtual
async def test_a_result_that_refuses_to_be_read_back_is_lost_and_the_effect_is_done(lab: Lab):
    @tool
    async def pay(order: str) -> Picky:
        lab.sent.append(order)
        return Picky(order)

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return (await pay(name)).name

    async with lab.app(desk) as app:
        with pytest.raises(ResultLost):
            await app.run(desk, "1")
    assert [(settled.status, settled.lost) for settled in lab.of("r-1", r.OperationSettled)] == [("succeeded", True)]


@pytest.mark.parametrize("error", [Wordless(), RuntimeError("half a sign: \ud800")], ids=["wordless", "surrogate"])
def test_an_agent_that_fails_without_a_storable_text_has_stopped(error: Exception):
    @virtual
    async def story(lab: Lab) -> None:
        @agent(run_id="r-{name}")
        async def desk(run: Run, name: str) -> str:
            raise error

        async with lab.app(desk) as app:
            with pytest.raises(type(error)):
                await app.run(desk, "1")
            with pytest.raises(RunStopped):
                await app.run(desk, "1")

    story()


@pytest.mark.parametrize(
    "verdict",
    [lambda: CannotTell(evidence=object()), lambda: Conflict(evidence=float("nan"))],  # type: ignore[arg-type]  # what people write
    ids=["cannot-tell", "conflict"],
)
def test_evidence_that_is_no_text_is_written_as_text(verdict: Callable[[], Any]):
    _suspended_by(verdict)


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), GeneratorExit(), Wordless()], ids=["cancelled", "generator-exit", "wordless"]
)
def test_a_verifier_that_ends_oddly_cannot_tell(error: BaseException):
    _suspended_by(lambda: _raise(error))


@virtual
async def _suspended(lab: Lab, verdict: Callable[[], Any]) -> None:
    @tool
    async def pay(order: str) -> str:
        lab.sent.append(order)
        raise Ambiguous("no answer")

    @pay.verify(settle_window=timedelta(seconds=1), every=timedelta(seconds=1), deadline=timedelta(seconds=3))
    async def look(operation: Operation[str]) -> Verdict[str]:
        found: Verdict[str] = verdict()
        return found

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="pay#1"):
            await app.run(desk, "1")
    assert lab.sent == ["1"]


def _suspended_by(verdict: Callable[[], Any]) -> None:
    _suspended(verdict=verdict)
