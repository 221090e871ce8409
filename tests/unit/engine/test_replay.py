"""A run that is driven again: everything recorded is given back, and the world is not touched."""

import dataclasses
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import msgspec
import pydantic
import pytest

from beforehand import Key, Rejected, Run, agent, current_operation, tool
from beforehand.errors import OperationFailed, ResultLost, RunStopped, RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


@dataclasses.dataclass(frozen=True)
class Receipt:
    amount: Decimal
    at: datetime
    tags: tuple[str, ...]


class Invoice(pydantic.BaseModel):
    number: int
    total: Decimal


class Parcel(msgspec.Struct, frozen=True):
    code: str
    weight: float


RECEIPT = Receipt(Decimal("1.10"), datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1))), ("a", "b"))
INVOICE = Invoice(number=1, total=Decimal("9.99"))
PARCEL = Parcel("x", 1.5)


@virtual
async def test_a_finished_run_gives_its_result_again_and_calls_nothing(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return f"sent to {to}"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    for _ in range(2):
        async with lab.app(desk) as app:
            for _ in range(2):
                assert await app.run(desk, "ann") == "sent to ann"
    assert lab.sent == ["ann"]


@virtual
async def test_a_run_that_was_interrupted_goes_on_without_repeating_anything(lab: Lab):
    asked: list[str] = []

    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return to

    @tool(effect="read")
    async def look(at: str) -> int:
        lab.sent.append(f"read {at}")
        return 7

    async def choose(name: str) -> str:
        asked.append(name)
        return "bob"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        chosen = await run.decide(choose, name)
        seen = await look(chosen)
        sent = await send(chosen)
        await run.sleep(timedelta(hours=2))
        return f"{seen} {sent} {await send('last')}"

    await lab.until_suspended(desk, "ann")
    await lab.pass_time(hours=2)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "7 bob last"
    assert (lab.sent, asked) == (["read bob", "bob", "last"], ["ann"])


@virtual
async def test_results_have_their_annotated_type_live_and_on_replay(lab: Lab):
    told: list[object] = []

    @tool
    async def pay() -> Receipt:
        return RECEIPT

    @tool
    async def bill() -> Invoice:
        return INVOICE

    @tool(effect="read")
    async def weigh() -> Parcel:
        return PARCEL

    @tool
    async def price() -> Decimal:
        return Decimal("3.50")

    @tool
    async def loose() -> object:
        return {"tuple": (1, 2)}

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        told.append([await pay(), await bill(), await weigh(), await price(), await loose()])
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    expected = [RECEIPT, INVOICE, PARCEL, Decimal("3.50"), {"tuple": [1, 2]}]
    assert told == [expected, expected]


@virtual
async def test_a_result_that_cannot_be_read_back_is_lost_live_and_on_replay_and_the_effect_counts(lab: Lab):
    lost: list[str] = []

    @tool
    async def pay() -> int:
        lab.sent.append("paid")
        return "not a number"  # type: ignore[return-value]  # the bug under test

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            await pay()
        except ResultLost as error:
            lost.append(str(error))
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    assert lab.sent == ["paid"]
    assert len(lost) == 2
    assert lost[0] == lost[1]
    assert "the effect is done" in lost[0]
    assert [settled.status for settled in lab.of("r-ann", r.OperationSettled)] == ["succeeded"]


@virtual
async def test_a_read_whose_result_cannot_be_read_back_is_lost_live_and_on_replay(lab: Lab):
    told: list[str] = []

    @tool(effect="read")
    async def look() -> int:
        lab.sent.append("look")
        return "seven"  # type: ignore[return-value]  # the bug under test

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            await look()
        except ResultLost as error:
            told.append(str(error))
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    assert lab.sent == ["look"]
    assert len(told) == 2
    assert told[0] == told[1]


@virtual
async def test_refusals_arrive_as_the_same_error_live_and_on_replay(lab: Lab):
    told: list[tuple[str, str, str]] = []

    @tool
    async def pay() -> None:
        lab.sent.append("asked")
        raise Rejected("the card is closed", code="card_declined")

    @tool(effect="read")
    async def look() -> None:
        raise Rejected("no such order", code="404")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        for step in (pay, look):
            try:
                await step()
            except Rejected as no:
                told.append((no.message, no.code, no.outcome.status if no.outcome else ""))
        outcome = await pay.outcome()
        told.append((outcome.reason, outcome.code, outcome.status))
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        await app.run(desk, "ann")
    first = [
        ("the card is closed", "card_declined", "failed"),
        ("no such order", "404", "failed"),
        ("the card is closed", "card_declined", "failed"),
    ]
    assert told == first * 2
    assert lab.sent == ["asked", "asked"]


@virtual
async def test_journaled_values_are_the_same_on_replay(lab: Lab):
    told: list[object] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        told.append([await run.now(), await run.random(), await run.uuid(), await run.random()])
        await run.sleep(timedelta(hours=1))

    await lab.until_suspended(desk, "ann")
    await lab.pass_time(hours=1)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert told[0] == told[1]
    assert len(set(map(str, told[0]))) == 4


@virtual
async def test_a_run_that_a_bug_stopped_goes_on_after_the_fix_under_the_same_id(lab: Lab):
    fixed: list[bool] = []

    @tool(idempotency=Key(ttl=timedelta(hours=24)))
    async def refund(order: str) -> str:
        lab.sent.append(current_operation().key)
        return "r1"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        number = await refund(name)
        if not fixed:
            raise KeyError("a bug")
        return number

    async with lab.app(desk) as app:
        with pytest.raises(KeyError, match="a bug"):
            await app.run(desk, "ann")
        with pytest.raises(RunStopped, match="the run can continue under the same id") as stopped:
            await app.run(desk, "ann")
        assert stopped.value.reason == "error"
        fixed.append(True)
        assert await app.resume("r-ann") == "r1"
        assert await app.run(desk, "ann") == "r1"
    assert len(lab.sent) == 1
    assert len(lab.of("r-ann", r.RunReopened)) == 1


@virtual
async def test_a_second_caller_joins_the_run_that_is_under_way(lab: Lab):
    @tool
    async def send(to: str) -> str:
        await lab.pass_time(seconds=5)
        lab.sent.append(to)
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        handles = [app.start(desk, "ann"), app.start(desk, "ann")]
        assert [await handle.result() for handle in handles] == ["ann", "ann"]
        assert all(handle.done() and handle.run == "r-ann" for handle in handles)
    assert lab.sent == ["ann"]


@virtual
async def test_what_an_original_exception_said_is_kept_in_the_reason(lab: Lab):
    @tool(effect="read")
    async def look() -> int:
        raise ValueError("the file is empty")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        await look()

    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match="ValueError: the file is empty"):
            await app.run(desk, "ann")
