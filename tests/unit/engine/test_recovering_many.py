"""How runs that are due get a worker: in order, as places become free, and whatever else lies in the journal."""

import asyncio
import contextlib
from datetime import timedelta
from types import SimpleNamespace

import pytest

from beforehand import Ambiguous, Key, Run, agent, current_operation, tool
from beforehand.engine.outbox import begin_asleep
from beforehand.engine.recovery import NOTICES_AT_ONCE, Recovery
from beforehand.engine.tool_protocol import Input
from beforehand.errors import RunSuspended
from beforehand.journal.port import RunRow
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

AT_ONCE = 20
ONE_LOOK_S = 5  # how often a worker looks for work by a timer


def slow(lab: Lab, name: str, seconds: float):
    """An agent whose runs sleep for an hour, and then take that long."""

    @agent(name=name, run_id=name + "-{number}")
    async def code(run: Run, number: int) -> int:
        await run.sleep(timedelta(hours=1))
        lab.sent.append(f"{name}-{number}")
        await asyncio.sleep(seconds)
        return number

    return code


async def asleep(lab: Lab, *runs: tuple[object, int]) -> None:
    """Begin these runs, one second after the other; they are due in that order, an hour later."""
    async with lab.app(*{code for code, _ in runs}) as app:
        for code, number in runs:
            with contextlib.suppress(RunSuspended):
                await app.run(code, number)
            await lab.pass_time(seconds=1)


@virtual
async def test_two_hundred_runs_are_recovered_in_the_time_that_they_take(lab: Lab):
    """Each takes 0.1 s, and so many at once do: a place that becomes free is taken at once, and not at the next look."""
    code = slow(lab, "desk", 0.1)
    await asleep(lab, *((code, number) for number in range(200)))
    await lab.pass_time(hours=1)
    async with lab.app(code, recover=True, hold_ms=0, recover_at_once=AT_ONCE) as app:
        await lab.pass_time(seconds=200 * 0.1 / AT_ONCE + 0.5)
        assert len(await app.service.runs(status="completed")) == 200


@virtual
async def test_runs_of_another_program_ahead_by_name_are_in_nobodys_way(lab: Lab):
    ours, theirs = slow(lab, "ours", 0), slow(lab, "a-program", 0)
    await asleep(lab, *((theirs, number) for number in range(230)), (ours, 1))
    await lab.pass_time(hours=1)
    read: list[RunRow] = []
    due = lab.journal.due

    async def counted(*asked: object) -> list[RunRow]:
        rows = await due(*asked)  # type: ignore[arg-type]  # passed on as it came
        read.extend(rows)
        return rows

    lab.journal.due = counted  # type: ignore[method-assign]  # the journal's own, counted
    async with lab.app(ours, recover=True) as app:
        await lab.pass_time(seconds=1)
        assert (await app.service.row("ours-1")).status == "completed"
    assert [row.run for row in read] == ["ours-1"], "a run of another program was read"


@virtual
async def test_the_run_that_is_due_first_is_driven_first(lab: Lab):
    code = slow(lab, "desk", 60)
    numbers = [*range(90, 60, -1), *range(30)]
    await asleep(lab, *((code, number) for number in numbers))
    await lab.pass_time(hours=1)
    async with lab.app(code, recover=True, recover_at_once=AT_ONCE):
        await lab.pass_time(seconds=1)
        assert lab.sent == [f"desk-{number}" for number in numbers[:AT_ONCE]]


@virtual
async def test_a_run_that_waits_for_a_retry_holds_no_place(lab: Lab):
    @tool(idempotency=Key.forever(), retry=Retry(base=timedelta(seconds=20), cap=timedelta(seconds=25)))
    async def pay(number: int) -> int:
        assert current_operation().key
        raise Ambiguous("no answer")

    @agent(run_id="pays-{number}", tools=[pay])
    async def pays(run: Run, number: int) -> int:
        await run.sleep(timedelta(hours=1))
        return await pay(number)

    code = slow(lab, "desk", 0)
    await asleep(lab, *((pays, number) for number in range(3 * AT_ONCE)), (code, 1))
    await lab.pass_time(hours=1)
    async with lab.app(pays, code, recover=True, hold_ms=3_600_000, recover_at_once=AT_ONCE) as app:
        await lab.pass_time(seconds=1)
        assert len(app.engine.active_runs) > 2 * AT_ONCE, "they all wait for their second attempt"
        assert (await app.service.row("desk-1")).status == "completed"


@virtual
async def test_an_agent_with_many_due_runs_does_not_starve_another(lab: Lab):
    many, few = slow(lab, "many", 60), slow(lab, "few", 60)
    await asleep(lab, *((many, number) for number in range(50)), *((few, number) for number in range(2)))
    await lab.pass_time(hours=1)
    async with lab.app(many, few, recover=True, recover_at_once=10):
        await lab.pass_time(seconds=1)
        assert sorted(lab.sent) == ["few-0", "few-1", *(f"many-{number}" for number in range(8))]
        await lab.pass_time(seconds=60)
        assert lab.sent[10:] == [f"many-{number}" for number in range(8, 18)]


@virtual
async def test_no_more_runs_are_held_than_there_is_room_for(lab: Lab):
    @tool(idempotency=Key.forever(), retry=Retry(base=timedelta(seconds=20), cap=timedelta(seconds=25)))
    async def pay(number: int) -> int:
        assert current_operation().key
        raise Ambiguous("no answer")

    @agent(run_id="pays-{number}", tools=[pay])
    async def pays(run: Run, number: int) -> int:
        await run.sleep(timedelta(hours=1))
        return await pay(number)

    await asleep(lab, *((pays, number) for number in range(50)))
    await lab.pass_time(hours=1)
    async with lab.app(pays, recover=True, hold_ms=3_600_000, recover_at_once=10, recover_held=30) as app:
        await lab.pass_time(seconds=1)
        assert len(app.engine.active_runs) == 30


@pytest.mark.parametrize("crowd", ["beforehand:notice", "desk"])
@virtual
async def test_notices_and_runs_do_not_starve_each_other(lab: Lab, crowd: str):
    """Fifty of one kind never end; the one of the other kind is driven at once."""
    driven: list[str] = []

    async def drive(run: str):
        driven.append(run)
        await asyncio.Event().wait()

    other = "desk" if crowd != "desk" else "beforehand:notice"
    async with lab.app(recover_at_once=AT_ONCE) as app:
        for number in range(50):
            await begin_asleep(app.engine, f"a-{number}", Input(b"1", "d"), crowd)
        await begin_asleep(app.engine, "z", Input(b"1", "d"), other)
        app.engine.agents = dict.fromkeys((crowd, other), SimpleNamespace(program=""))
        recovery = Recovery(app.engine, drive)
        await recovery.look()
        await lab.pass_time(seconds=1)
    assert driven.count("z") == 1
    assert len(driven) == 1 + (AT_ONCE if crowd == "desk" else NOTICES_AT_ONCE)
