"""Deferred outcomes: accepted now, answered later, under a key; nothing is repeated meanwhile."""

import asyncio
import contextlib
import itertools
from datetime import timedelta

import msgspec
import pytest

from beforehand import (
    DidNotHappen,
    Happened,
    Key,
    Operation,
    OperationFailed,
    Rejected,
    Run,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.deferred import ArrivedAnswer, AwaitingOperation, arrived_stream, awaited_stream, forward
from beforehand.errors import Deferred, RunSuspended, UsageError
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Post, Write
from beforehand.model import records as r
from beforehand.model.commands import command_stream
from beforehand.model.records import Raw
from tests.commits import Commit, intercept
from tests.unit.engine.lab import DAYS, Lab, virtual

DAY = timedelta(days=1)


def result(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def booking(lab: Lab, key: str = "B-7"):
    @tool
    async def book(room: str) -> str:
        lab.sent.append(room)
        raise Deferred("the hotel confirms by mail", within=DAY, key=key)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            return await book(name)
        except Rejected as no:
            return f"refused: {no.message}"

    return desk


@virtual
async def test_a_deferred_operation_holds_no_process_and_is_settled_by_its_answer(lab: Lab):
    desk = booking(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="beforehand deliver B-7"):
            await app.run(desk, "ann")
        row = await app.service.row("r-ann")
        assert row.due_ms is not None
        assert abs(row.due_ms - lab.clock.wall_ms() - 86_400_000) < 5_000
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        done = await app.service.deliver("B-7", ArrivedAnswer("m1", result=result("room 12")))
        assert done.operation == "r-ann/book#1"
        assert await app.run(desk, "ann") == "room 12"
    assert lab.sent == ["ann"]


@virtual
async def test_a_refusal_that_comes_later_fails_it(lab: Lab):
    desk = booking(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.deliver("B-7", ArrivedAnswer("m1", "failed", why="fully booked"))
        assert await app.run(desk, "ann") == "refused: fully booked"
    assert lab.sent == ["ann"]


@virtual
async def test_an_answer_that_comes_before_our_own_response_is_kept_for_it(lab: Lab):
    desk = booking(lab)
    async with lab.app(desk) as app:
        early = await app.service.deliver("B-7", ArrivedAnswer("m1", result=result("room 12")))
        assert (early.fresh, early.operation) == (True, "")
        assert await app.run(desk, "ann") == "room 12"
    assert lab.sent == ["ann"]


@virtual
async def test_without_a_key_of_its_own_the_answer_comes_under_the_idempotency_key(lab: Lab):
    keys: list[str] = []

    @tool
    async def pay(to: str) -> str:
        keys.append(current_operation().key)
        raise Deferred

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.deliver(keys[0], ArrivedAnswer("m1", result=result("paid")))
        assert await app.run(desk, "ann") == "paid"


@virtual
async def test_an_answer_wakes_a_run_whose_process_died_after_it_was_accepted(lab: Lab):
    desk = booking(lab)
    first = lab.make(desk)
    process = lab.processes[-1]
    await first.open()
    with pytest.raises(RunSuspended):
        await first.run(desk, "ann")
    await lab.bury(first, process)
    async with lab.app(desk, recover=True) as app:
        await app.service.deliver("B-7", ArrivedAnswer("m1", result=result("room 12")))
        await lab.pass_time(seconds=30)
        assert (await app.service.row("r-ann")).status == "completed"
    assert lab.sent == ["ann"]


@virtual
async def test_no_answer_is_never_a_failure_by_time_alone(lab: Lab):
    desk = booking(lab)
    async with lab.app(desk, **DAYS) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(days=2)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        _, operation = await app.service.operation("r-ann/book#1")
        assert operation.phase == "unknown"
        # It comes after all: late is evidence.
        await app.service.deliver("B-7", ArrivedAnswer("m1", result=result("room 12")))
        assert await app.run(desk, "ann") == "room 12"
    assert lab.sent == ["ann"]


@pytest.mark.parametrize("there", [True, False])
@virtual
async def test_when_the_deadline_passes_the_world_is_read_back(lab: Lab, there: bool):
    looks: list[str] = []

    @tool
    async def book(room: str) -> str:
        lab.sent.append(room)
        raise Deferred("confirmation comes", within=DAY, key="B-7")

    @book.verify(settle_window=timedelta(0))
    async def in_the_book(operation: Operation[str], room: str) -> Verdict[str]:
        looks.append(room)
        return Happened("room 12") if there else DidNotHappen()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            return await book(name)
        except OperationFailed:
            return "it is proven absent"

    async with lab.app(desk, **DAYS) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert looks == []
        await lab.pass_time(days=1, seconds=10)
        assert await app.run(desk, "ann") == ("room 12" if there else "it is proven absent")
    assert looks
    assert lab.sent == ["ann"]


@virtual
async def test_one_key_stands_for_one_operation(lab: Lab):
    desk = booking(lab)
    async with lab.app(desk) as app:
        for name in ("ann", "bob"):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
        await app.service.deliver("B-7", ArrivedAnswer("m1", result=result("room 12")))
        assert await app.run(desk, "ann") == "room 12"
        with pytest.raises(RunSuspended):
            await app.run(desk, "bob")
        _, operation = await app.service.operation("r-bob/book#1")
    assert operation.phase == "awaiting"
    assert operation.deferral.key == ""
    (deferred,) = lab.of("r-bob", r.OperationDeferred)
    assert "belongs to r-ann/book#1" in deferred.evidence


@virtual
async def test_another_message_under_a_known_id_is_refused_and_has_no_effect(lab: Lab):
    desk = booking(lab)
    async with lab.app(desk) as app:
        await app.service.deliver("B-7", ArrivedAnswer("m1", "pending"))
        with pytest.raises(UsageError, match="another message"):
            await app.service.deliver("B-7", ArrivedAnswer("m1", result=result("room 12")))
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")


@virtual
async def test_news_against_a_final_outcome_opens_a_review(lab: Lab):
    desk = booking(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.deliver("B-7", ArrivedAnswer("m1", "failed", why="fully booked"))
        assert await app.run(desk, "ann") == "refused: fully booked"
        await app.service.deliver("B-7", ArrivedAnswer("m2", result=result("room 12")))
        _, operation = await app.service.operation("r-ann/book#1")
    assert operation.phase == "failed"
    assert len(operation.links.contradicted) == 1


EVENTS = (ArrivedAnswer("m1", "pending"), ArrivedAnswer("m2", result=result("room 12")), ArrivedAnswer("m3", "pending"))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("before", [0, 1, 3])
@virtual
async def test_any_order_and_repetition_of_messages_ends_the_same(lab: Lab, order: tuple[int, ...], before: int):
    desk = booking(lab)
    queue = [EVENTS[place] for place in order for _ in range(2)]
    async with lab.app(desk) as app:
        for arrival in queue[:before]:
            await app.service.deliver("B-7", arrival)
        app.start(desk, "ann")
        await lab.pass_time(minutes=1)
        for arrival in queue[before:]:
            await app.service.deliver("B-7", arrival)
        assert await app.run(desk, "ann") == "room 12"
        _, operation = await app.service.operation("r-ann/book#1")
    assert (operation.phase, operation.links.contradicted) == ("succeeded", ())
    assert lab.sent == ["ann"]


@virtual
async def test_an_answer_that_two_look_at_while_another_write_is_checked_is_taken_once(lab: Lab):
    @tool
    async def ask(room: str) -> str:
        raise Deferred("they will call", within=DAY, key="B-7")

    @tool(claim="room", idempotency=Key.forever())
    async def reserve(room: str) -> str:
        return f"{room} under {current_operation().key}"

    @agent(run_id="r-{name}", tools=[ask, reserve])
    async def desk(run: Run, name: str) -> str:
        await run.call("ask", {"room": name})
        intercept(lab.journal, Write, slowly)  # from here on the disk takes its time
        return await reserve(name)

    async def slowly(write: Write, commit: Commit) -> None:
        await lab.clock.sleep(1)
        await commit(write)

    async with lab.app(desk) as app:
        started = app.start(desk, "ann")
        await lab.pass_time(seconds=0.5)
        answer = ArrivedAnswer("m1", result=result("room 12"))
        await asyncio.gather(*(app.service.deliver("B-7", answer) for _ in range(2)))
        assert (await started.result()).startswith("ann under")
    assert len(lab.of("r-ann", r.LateReport)) == 1
    assert len([one for one in lab.of("r-ann", r.CommandApplied) if "m1" in one.note]) == 1


@virtual
async def test_a_model_that_was_told_is_not_told_again_when_it_is_sent_again(lab: Lab):
    """The first request is proven to have come to nothing; what the second one's answer says is the outcome."""

    @tool
    async def book(room: str) -> str:
        lab.sent.append(room)
        raise Deferred("they will call", within=timedelta(minutes=5), key=f"B-{len(lab.sent)}")

    @book.verify(settle_window=timedelta(0))
    async def in_the_book(operation: Operation[str], room: str) -> Verdict[str]:
        return DidNotHappen()

    @agent(run_id="r-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        return (await run.call("book", {"room": name})).status

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(minutes=6)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert lab.sent == ["ann", "ann"]
        await app.service.deliver("B-2", ArrivedAnswer("m1", result=result("room 12")))
        assert await app.run(desk, "ann") == "pending"
        _, operation = await app.service.operation("r-ann/book#1")
    assert operation.phase == "succeeded"
    assert len(lab.of("r-ann", r.Delivered)) == 1


@virtual
async def test_models_are_told_when_a_new_owner_sends_their_calls_again(lab: Lab):
    """Code comes back while its calls are being sent: their acceptances reach it as they come, in that order."""
    heard: list[str] = []
    seconds = {"ann": 1, "bob": 2}

    @tool(idempotency=Key.forever(stores="all"))
    async def book(room: str) -> str:
        lab.sent.append(f"{room} {current_operation().key}")
        await asyncio.sleep(3_600 if len(lab.sent) <= 2 else seconds[room])  # the first two outlive their process
        raise Deferred("they will call", within=DAY, key=f"B-{room}")

    @agent(run_id="r-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        async def one(room: str) -> str:
            outcome = await run.call("book", {"room": room})
            heard.append(f"{room} {outcome.status} after {lab.loop.time() - begun:.0f} s")
            return outcome.status

        return ", ".join(await run.gather(one("ann"), one("bob")))

    first = lab.make(desk)
    process = lab.processes[-1]
    await first.open()
    begun = lab.loop.time()
    under_way = asyncio.ensure_future(first.run(desk, "x"))
    await lab.pass_time(seconds=5)
    await lab.bury(first, process)
    under_way.cancel()
    async with lab.app(desk) as app:
        begun = lab.loop.time()
        with pytest.raises(RunSuspended):
            await app.resume("r-x")
        assert heard == ["ann pending after 1 s", "bob pending after 2 s"]
        for room in seconds:
            await app.service.deliver(f"B-{room}", ArrivedAnswer(f"m {room}", result=result("room 12")))
        assert await app.resume("r-x") == "pending, pending"
    assert len(lab.sent) == 4
    assert len(set(lab.sent)) == 2


def counting(lab: Lab):
    @tool
    async def book(room: str) -> int:
        lab.sent.append(room)
        raise Deferred("the hotel confirms by mail", within=DAY, key="B-7")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return await book(name)

    return desk, book


WRONG = ArrivedAnswer("m1", result=result({"room": "twelve"}))


@virtual
async def test_an_answer_that_is_not_what_the_tool_returns_is_kept_and_a_person_reads_it(lab: Lab):
    desk, _ = counting(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert (await app.service.deliver("B-7", WRONG)).fresh
        with pytest.raises(RunSuspended, match="is not what book returns; expected int"):
            await app.run(desk, "ann")
        _, operation = await app.service.operation("r-ann/book#1")
        assert operation.phase == "unknown"
        (end,) = (report.end for report in lab.of("r-ann", r.LateReport))
        assert (end.unfit, bytes(end.result)) == (True, b'{"room":"twelve"}'), "nothing is lost"
        await app.service.resolve("r-ann/book#1", "happened", by="bea", result=12)
        assert await app.run(desk, "ann") == 12
    assert lab.sent == ["ann"]


@pytest.mark.parametrize("status", ["succeeded", "failed"])
@virtual
async def test_a_sender_may_mend_what_did_not_fit(lab: Lab, status: str):
    desk, _ = counting(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.deliver("B-7", WRONG)
        if status == "succeeded":
            await app.service.deliver("B-7", ArrivedAnswer("m2", result=result(12)))
            assert await app.run(desk, "ann") == 12
        else:
            await app.service.deliver("B-7", ArrivedAnswer("m2", "failed", why="fully booked"))
            with pytest.raises(Rejected, match="fully booked"):
                await app.run(desk, "ann")


@virtual
async def test_a_verifier_reads_what_an_unfit_answer_could_not_say(lab: Lab):
    desk, book = counting(lab)

    @book.verify(settle_window=timedelta(0))
    async def in_the_book(operation: Operation[int], room: str) -> Verdict[int]:
        return Happened(12)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.deliver("B-7", WRONG)
        assert await app.run(desk, "ann") == 12


@virtual
async def test_whoever_brings_it_needs_no_code_and_whoever_has_the_code_checks_it(lab: Lab):
    desk, _ = counting(lab)
    await lab.until_suspended(desk, "ann")
    async with lab.app() as bare:
        done = await bare.service.deliver("B-7", WRONG)
        assert done.applied is not None
        assert (done.applied.at_once, done.applied.lacks) == (False, "book")
        assert (await bare.service.row("r-ann")).due_ms == lab.clock.wall_ms(), "it is due at once"
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="is not what book returns"):
            await app.run(desk, "ann")


class PowerCut(Exception):
    """The process ends before this write."""


@pytest.mark.parametrize("writes", range(3))
@virtual
async def test_messages_that_came_early_become_commands_together_or_not_at_all(lab: Lab, writes: int):
    """Once the first is applied, nothing waits for the key any more, and no process would look for the second."""
    journal = lab.journal
    await journal.open()
    messages = (ArrivedAnswer("m1", result=result("room 12")), ArrivedAnswer("m2", "failed", why="flooded"))
    for message in messages:
        await journal.commit(Post(arrived_stream("B-7"), message.entry, written(message)))
    await journal.commit(Post(awaited_stream("B-7"), "owner", written(AwaitingOperation("r-ann/book#1", 1, "book"))))
    left = writes

    class Cut:
        def __getattr__(self, name: str) -> object:
            nonlocal left
            if name == "commit":
                if not left:
                    raise PowerCut
                left -= 1
            return getattr(journal, name)

    with contextlib.suppress(PowerCut):
        assert await forward(Cut(), "B-7") == "r-ann/book#1"  # type: ignore[arg-type]  # the same, but for what it refuses
    assert len(await journal.entries(command_stream("r-ann"))) == (2 if writes else 0)
    assert await forward(journal, "B-7") == "r-ann/book#1"
    assert len(await journal.entries(command_stream("r-ann"))) == 2, "each once"
