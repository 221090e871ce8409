"""`on_error=`: what becomes of an exception that would stop a run."""

from __future__ import annotations

import pytest

from beforehand import Key, Rejected, Run, agent, current_operation, tool
from beforehand.errors import ContractError, ReplayDiverged
from tests.unit.engine.lab import Lab, virtual


@tool(idempotency=Key.forever())
async def apologize(to: str) -> str:
    return f"{current_operation().key[:0]}sorry {to}"


@tool(idempotency=Key.forever())
async def refund(to: str) -> str:
    raise Rejected(f"no account{current_operation().key[:0]}", code="no_account")


async def say_sorry(run: Run, name: str, error: Exception) -> str:
    return f"{type(error).__name__}: {await apologize(name)}"


def desk(on_error, *, wrong: bool = False):
    @agent(run_id="desk-{name}", tools=[refund, apologize], on_error=on_error)
    async def serve(run: Run, name: str) -> str:
        if wrong:
            raise KeyError(name)
        return await refund(name)

    return serve


@virtual
async def test_its_result_is_the_result_of_the_run_and_its_steps_are_recorded(lab: Lab):
    serve = desk(say_sorry)
    async with lab.app(serve) as app:
        assert await app.run(serve, "ann") == "Rejected: sorry ann"
        assert await app.run(serve, "ann") == "Rejected: sorry ann"
        history = await app.service.history("desk-ann")
        assert list(history.operations) == ["refund#1", "apologize#1"]
        assert history.lifecycle.status == "completed"


@virtual
async def test_where_it_raises_the_run_stops_as_without_it(lab: Lab):
    async def gives_up(run: Run, name: str, error: Exception) -> str:
        raise ValueError("no way out") from error

    serve = desk(gives_up, wrong=True)
    async with lab.app(serve) as app:
        with pytest.raises(ValueError, match="no way out"):
            await app.run(serve, "ann")
        assert (await app.service.history("desk-ann")).lifecycle.status == "stopped"


@virtual
async def test_a_divergence_is_not_its_business(lab: Lab):
    calls: list[str] = []

    async def handler(run: Run, name: str, error: Exception) -> str:
        calls.append(type(error).__name__)
        return "hidden"

    @agent(run_id="odd-{name}", tools=[apologize], on_error=handler)
    async def odd(run: Run, name: str) -> str:
        await apologize("bea" if lab.changed else name)
        return await run.ask("and?")

    await lab.until_suspended(odd, "ann")
    lab.changed = True
    async with lab.app(odd) as app:
        with pytest.raises(ReplayDiverged):
            await app.run(odd, "ann")
    assert calls == []


@pytest.mark.parametrize("wrong", [lambda run, name, error: "x", "undo"])
def test_what_is_no_handler_is_refused(wrong):
    with pytest.raises(ContractError, match="on_error= of agent serve is not an async function of three parameters"):
        desk(wrong)
