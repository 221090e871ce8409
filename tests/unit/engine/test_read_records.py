"""Reads: what the record of one holds, and what code receives of it on the first pass and on replay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Ambiguous, NotSent, Rejected, Run, agent, current_operation, tool
from beforehand.engine.active_run.scopes import SCOPE
from beforehand.errors import ReplayDiverged, RunStopped, RunSuspended
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)
AT_ONCE = Retry(attempts=3, elapsed=HOUR, base=timedelta(milliseconds=1), cap=timedelta(milliseconds=1))


@pytest.mark.parametrize(
    ("answers", "fields"),
    [
        (["7"], {"status": "succeeded", "attempts": 1, "refused": False, "lost": False, "code": ""}),
        ([NotSent("busy"), Ambiguous("cut"), "7"], {"status": "succeeded", "attempts": 3}),
        ([Rejected("no such", code="E7")], {"status": "failed", "refused": True, "code": "E7", "attempts": 1}),
        ([NotSent("busy")] * 3, {"status": "failed", "refused": False, "attempts": 3}),
        ([7], {"status": "succeeded", "lost": True}),
    ],
    ids=["succeeded", "at the third attempt", "refused", "given up", "lost"],
)
@virtual
async def test_the_record_of_a_read_and_what_code_receives_of_it(lab: Lab, answers: list[Any], fields: dict[str, Any]):
    left, told = list(answers), list[Any]()

    @tool(effect="read", retry=AT_ONCE)
    async def look(name: str) -> str:
        current_operation().report(f"look {4 - len(left)}", len(left))
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @agent(run_id="r-{name}", tools=[look])
    async def desk(run: Run, name: str) -> str:
        outcome = await look.outcome(name)
        told.append((outcome.status, outcome.reason, outcome.code, outcome.facts))
        if len(told) == 1:
            raise KeyError("a bug")
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(KeyError):
            await app.run(desk, "ann")
        assert await app.resume("r-ann", by="eve") == "done"
    (record,) = lab.of("r-ann", r.ReadRecorded)
    assert {name: getattr(record, name) for name in fields} == fields
    assert (record.step, record.tool, bytes(record.arguments)) == ("look#1", "look", b'{"name":"ann"}')
    assert len(record.facts) == len(answers)
    assert (bytes(record.result) == b'"7"') is (answers[-1] == "7")
    assert bool(record.reason) is (answers[-1] != "7")
    assert record.digest
    assert told[0] == told[1]


def kinds(lab: Lab) -> dict[str, Any]:
    """Calls that may stand at one step."""

    @tool(effect="read")
    async def look(name: str) -> str:
        lab.sent.append(f"look {name}")
        return name

    @tool(effect="read")
    async def peek(name: str) -> str:
        lab.sent.append(f"peek {name}")
        return name

    @tool
    async def send(name: str) -> str:
        lab.sent.append(f"send {name}")
        return name

    return {"look": look, "peek": peek, "send": send}


@pytest.mark.parametrize("swallowed", [False, True], ids=["raised", "swallowed"])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (("look", "a"), ("look", "b")),
        (("look", "a"), ("peek", "a")),
        (("send", "a"), ("look", "a")),
        (("look", "a"), ("send", "a")),
        (("fetch", "a"), ("look", "a")),
    ],
)
@virtual
async def test_a_step_that_comes_back_as_another_read_stops_the_run(
    lab: Lab, first: tuple[str, str], then: tuple[str, str], swallowed: bool
):
    """Nothing is read or sent for it, and code that goes on regardless does not complete the run."""
    tools = kinds(lab)

    async def fetch(name: str) -> str:
        return name

    @agent(run_id="r-{name}", tools=list(tools.values()))
    async def desk(run: Run, name: str) -> str:
        kind, argument = then if lab.changed else first
        try:
            if kind == "fetch":
                await run.options(step="it").decide(fetch, argument)
            else:
                await tools[kind].options(step="it")(argument)
        except ReplayDiverged:
            if not swallowed:
                raise
            return "as if nothing had been"
        raise KeyError("a bug")

    async with lab.app(desk) as app:
        with pytest.raises(KeyError):
            await app.run(desk, "ann")
        lab.changed = True
        with pytest.raises((ReplayDiverged, RunStopped)):
            await app.resume("r-ann", by="eve")
    assert lab.sent == ([] if first[0] == "fetch" else [" ".join(first)])
    assert lab.of("r-ann", r.RunStoppedRecord)[-1].reason == "diverged"


@virtual
async def test_a_read_that_was_cut_off_is_cut_off_again(lab: Lab):
    told: list[str] = []

    @tool(effect="read")
    async def look(name: str) -> str:
        lab.sent.append(name)
        if len(lab.sent) == 1:
            await lab.pass_time(seconds=20)
        return name

    @agent(run_id="r-{name}", tools=[look])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(timedelta(seconds=3)):
                told.append(await look(name))
        except TimeoutError:
            told.append("over")
        if len(told) == 1:
            raise KeyError("a bug")
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(KeyError):
            await app.run(desk, "ann")
        assert await app.resume("r-ann", by="eve") == "done"
    assert (told, lab.sent) == (["over", "over"], ["ann"])


@virtual
async def test_a_run_does_not_rest_while_one_of_its_branches_reads(lab: Lab):
    @tool(effect="read", timeout=HOUR)
    async def look(name: str) -> str:
        lab.sent.append(f"look {name}")
        await lab.pass_time(minutes=10)
        lab.sent.append("seen")
        return name

    @agent(run_id="r-{name}", tools=[look])
    async def desk(run: Run, name: str) -> str:
        await run.gather(look(name), run.sleep(10 * HOUR))
        return "done"

    async with lab.app(desk, hold_ms=1000) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert lab.sent == ["look ann", "seen"]


@virtual
async def test_code_receives_reads_in_the_order_of_the_first_pass_and_they_are_forgotten(lab: Lab):
    passes, kept = list[list[str]](), list[int]()

    @tool(effect="read")
    async def look(seconds: int) -> str:
        await lab.pass_time(seconds=seconds)
        return f"look {seconds}"

    @agent(run_id="r-{name}", tools=[look])
    async def desk(run: Run, name: str) -> str:
        order: list[str] = []
        passes.append(order)
        scope = SCOPE.get()
        assert scope is not None

        async def branch(seconds: int) -> None:
            order.append(await look(seconds))

        await run.gather(branch(5), branch(2), branch(9))
        kept.append(len(scope.active.history.steps.answers))
        if len(passes) == 1:
            raise KeyError("a bug")
        return "done"

    async with lab.app(desk, hold_ms=10**9) as app:
        with pytest.raises(KeyError):
            await app.run(desk, "ann")
        assert await app.resume("r-ann", by="eve") == "done"
    assert passes == [["look 2", "look 5", "look 9"]] * 2
    assert kept == [0, 0]
