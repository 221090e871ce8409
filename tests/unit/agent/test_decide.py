"""`run.decide`: a model is asked once, and everything about the answer is on record."""

import asyncio
import dataclasses
import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand import Run, agent
from beforehand.agent.model_decisions import same_start
from beforehand.errors import ContractError, OperationFailed, RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)


@dataclasses.dataclass
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cost: float = 0.0


@dataclasses.dataclass
class Ruling:
    cents: int
    why: str
    confidence: float
    usage: Usage


RULING = Ruling(500, "the parcel never came", 0.9, Usage(11, 3, 0.02))


@virtual
async def test_the_answer_its_reasons_and_its_cost_are_recorded_and_replayed(lab: Lab):
    told: list[Ruling] = []
    asked: list[str] = []

    async def rule(ticket: str, *, tone: str) -> Ruling:
        asked.append(ticket)
        await lab.pass_time(seconds=2)
        return RULING

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        told.append(await run.decide(rule, name, tone="kind"))
        await run.sleep(HOUR)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    assert told == [RULING, RULING]
    assert asked == ["ann"]
    decision = lab.of("r-ann", r.DecisionRecorded)[0]
    assert json.loads(bytes(decision.seen)) == [["ann"], {"tone": "kind"}]
    assert (decision.why, decision.confidence) == ("the parcel never came", 0.9)
    assert (decision.input_tokens, decision.output_tokens, decision.cost, decision.ms) == (11, 3, 0.02, 2000)


@virtual
async def test_failed_tries_are_on_record_and_tried_again(lab: Lab):
    tries: list[int] = []

    async def rule(ticket: str) -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("overloaded")
        return 7

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return await run.decide(rule, name)

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == 7
    assert [started.number for started in lab.of("r-ann", r.DecisionStarted)] == [1, 2, 3]


@virtual
async def test_a_decision_that_fails_for_good_is_an_error_live_and_on_replay(lab: Lab):
    told: list[str] = []
    tries: list[int] = []

    async def rule(ticket: str) -> int:
        tries.append(1)
        raise ConnectionError("overloaded")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            await run.options(retry=Retry(attempts=2)).decide(rule, name)
        except OperationFailed as failed:
            told.append(f"{failed.message} {failed.outcome.status if failed.outcome else ''}")
        await run.sleep(HOUR)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    assert told == ["rule (r-ann/rule#1) failed: ConnectionError: overloaded failed"] * 2
    assert len(tries) == 2


@virtual
async def test_a_model_that_takes_too_long_is_a_failed_try(lab: Lab):
    async def rule(ticket: str) -> int:
        await lab.pass_time(hours=1)
        return 7

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        settings = run.options(step="the ruling", timeout=timedelta(seconds=5), retry=Retry(attempts=2))
        return await settings.decide(rule, name)

    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match=r"the ruling.*TimeoutError"):
            await app.run(desk, "ann")
        assert lab.loop.time() < 20


@virtual
async def test_an_answer_that_its_annotation_does_not_fit_is_a_failed_try(lab: Lab):
    async def rule(ticket: str) -> int:
        return "seven"  # type: ignore[return-value]  # the bug under test

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return await run.options(retry=Retry(attempts=1)).decide(rule, name)

    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match="cannot be stored and read back"):
            await app.run(desk, "ann")


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40))
def test_the_part_that_two_questions_begin_with(start: bytes, one: bytes, other: bytes):
    one, other = start + one, start + other
    found = same_start(one, other)
    assert one[:found] == other[:found]
    assert one[found : found + 1] != other[found : found + 1] or found == len(one) == len(other)


@virtual
async def test_a_growing_history_is_stored_as_its_new_part_only(lab: Lab):
    told: list[int] = []

    async def think(messages: list[dict[str, str]]) -> int:
        return len(messages)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        messages: list[dict[str, str]] = []
        for number in range(40):
            messages.append({"role": "user", "content": f"message {number} " + "x" * 200})
            told.append(await run.decide(think, messages))
        await run.sleep(HOUR)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    assert told == [*range(1, 41)] * 2
    seen = [bytes(decision.seen) for decision in lab.of("r-ann", r.DecisionRecorded)]
    assert max(len(part) for part in seen) < 600
    assert all(f"message {number} ".encode() in part for number, part in enumerate(seen))


@virtual
async def test_what_is_too_large_to_keep_is_cut_and_still_compared(lab: Lab):
    async def think(text: str) -> int:
        return len(text)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return await run.decide(think, "x" * 200_000)

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == 200_000
    cut = json.loads(bytes(lab.of("r-ann", r.DecisionRecorded)[0].seen))
    assert cut["cut"] > 200_000
    assert len(cut["start"]) == 1000


@virtual
async def test_objects_of_sdks_are_shown_by_what_they_hold(lab: Lab):
    class Dumps:
        def model_dump(self) -> dict[str, int]:
            return {"a": 1}

    class Opaque:
        def __str__(self) -> str:
            return "opaque"

    async def think(*parts: object) -> int:
        return len(parts)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return await run.decide(think, Dumps(), Opaque())

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == 2
    assert json.loads(bytes(lab.of("r-ann", r.DecisionRecorded)[0].seen)) == [[{"a": 1}, "opaque"], {}]


@virtual
async def test_an_unannotated_or_unnamed_function_is_refused_before_the_model_is_asked(lab: Lab):
    asked: list[int] = []

    async def bare(text: str):
        asked.append(1)
        return text

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        with pytest.raises(ContractError, match=r"write: async def bare\(\.\.\.\) -> Ruling"):
            await run.decide(bare, name)
        with pytest.raises(ContractError, match="takes a named function"):
            await run.decide(lambda text: bare(text), name)  # noqa: PLW0108 - a lambda is the point
        with pytest.raises(UsageError):
            await run.options(step="a", timeout=timedelta(seconds=-1)).decide(bare, name)

    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert asked == []


@virtual
async def test_tries_that_a_dead_process_made_count(lab: Lab):
    tries: list[int] = []

    async def rule(ticket: str) -> int:
        tries.append(1)
        await lab.pass_time(hours=1)
        return 7

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return await run.options(retry=Retry(attempts=2)).decide(rule, name)

    for _ in range(2):
        app = lab.make(desk)
        await app.open()
        app.start(desk, "ann")
        await lab.pass_time(seconds=1)
        await lab.bury(app, lab.processes[-1])
    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match="no tries are left"):
            await app.run(desk, "ann")
    assert len(tries) == 2


@virtual
async def test_a_model_client_may_start_tasks_of_its_own(lab: Lab):

    async def rule(ticket: str) -> list[int]:
        async def part(number: int) -> int:
            return number

        return list(await asyncio.gather(part(1), part(2)))

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[int]:
        first = await run.decide(rule, name)
        return first + await run.decide(rule, name)

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == [1, 2, 1, 2]
    assert [d.step for d in lab.of("r-ann", r.DecisionRecorded)] == ["rule#1", "rule#2"]
