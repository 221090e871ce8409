"""The usage of every call of a model is on record, also of one whose answer was not used."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import DecisionFailed, ModelError, RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.model.usage import Usage
from beforehand.people.dossier import dossier
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual


class Refusal(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"answered {status}")
        self.status_code = status


def cut_off() -> ModelError:
    error = ModelError("the stream was cut", code="unavailable")
    error.reply = {"usage": {"input_tokens": 40, "output_tokens": 2}, "model": "m-1"}
    return error


async def decided(lab: Lab, *answers: Any, returns: type = dict) -> tuple[list[r.DecisionStarted], r.DecisionRecorded]:
    script = iter(answers)

    async def rule(ticket: str) -> Any:
        answer = next(script)
        if isinstance(answer, Exception):
            raise answer
        return answer

    rule.__annotations__["return"] = returns

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            await run.decide(rule, name)
        except DecisionFailed:
            return "failed"
        return "done"

    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    (made,) = lab.of("r-ann", r.DecisionRecorded)
    return lab.of("r-ann", r.DecisionStarted), made


GOOD = {"usage": {"input_tokens": 50, "output_tokens": 5}, "model": "m-1", "request_id": "req-1"}


@virtual
async def test_the_answer_and_what_it_used(lab: Lab):
    _, made = await decided(lab, GOOD)
    assert made.usage == Usage(50, 5, model="m-1", request="req-1")


@pytest.mark.parametrize(
    ("failed", "used"),
    [
        (cut_off(), Usage(40, 2, model="m-1")),
        (ModelError("too many", code="rate_limited"), Usage(refused=True)),
        (Refusal(429), Usage(refused=True)),
        (Refusal(408), Usage()),
        (ConnectionError("lost"), Usage()),
    ],
)
@virtual
async def test_a_call_that_was_made_again_is_in_the_record_of_the_next(lab: Lab, failed: Exception, used: Usage):
    begun, made = await decided(lab, failed, GOOD)
    assert [one.before for one in begun] == [Usage(), used]
    assert made.usage == Usage(50, 5, model="m-1", request="req-1")


@virtual
async def test_an_answer_that_does_not_fit_was_used_up_all_the_same(lab: Lab):
    begun, made = await decided(lab, *[GOOD] * 5, returns=int)
    assert made.status == "failed"
    assert [one.before.input_tokens for one in begun] == [0, 50, 50, 50, 50]
    assert made.usage == Usage(50, 5, model="m-1", request="req-1")


@virtual
async def test_an_approver_sees_the_tokens_of_calls_that_were_not_used(lab: Lab):
    script = iter([cut_off(), GOOD])

    async def rule(_: str) -> dict[str, Any]:
        answer = next(script)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @tool(gate="true")
    async def pay(name: str) -> str:
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.decide(rule, name)
        return await pay(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        found = await dossier(app.service, "r-ann/pay#1")
    assert found.cost.tokens == 50 + 5 + 40 + 2


@virtual
async def test_a_failed_call_records_its_only_model_and_a_question_that_was_never_sent_none(lab: Lab):
    async def rule(name: str) -> int:
        raise ModelError("lost", code="unavailable") if name == "ann" else UsageError("too long for it")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with pytest.raises(DecisionFailed):
            await run.options(model="m-1", retry=Retry(attempts=2)).decide(rule, name)
        return "done"

    async with lab.app(desk) as app:
        for name in ("ann", "ben"):
            await app.run(desk, name)
    models = [(one.before.model, one.number) for one in lab.of("r-ann", r.DecisionStarted)]
    assert models == [("", 1), ("m-1", 2)]
    assert [one.model for run in ("r-ann", "r-ben") for one in lab.of(run, r.DecisionRecorded)] == ["m-1", ""]
