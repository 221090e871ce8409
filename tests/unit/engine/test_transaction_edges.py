"""The edges of a transaction: what begins in one that is not open any more, how it is left, and what replay gives."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from beforehand import Key, Natural, NotSent, Operation, Run, TransactionAborted, agent, current_operation, tool
from beforehand.engine.active_run.scopes import SCOPE
from beforehand.errors import ReplayDiverged, RunStopped, RunSuspended
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

STEADY = Key.forever(stores="all")
HOUR = timedelta(hours=1)


class Desk:
    """A tool that takes and puts back, one that reads, and one that cannot leave yet."""

    def __init__(self, lab: Lab) -> None:
        @tool(idempotency=STEADY)
        async def take(item: str) -> str:
            _ = current_operation().key
            lab.sent.append(f"take {item}")
            return item

        @take.compensate(restores=True)
        @tool(idempotency=Natural(within=HOUR))
        async def put_back(operation: Operation[str]) -> None:
            lab.sent.append(f"put back {operation.result}")

        @tool(effect="read")
        async def look(item: str) -> str:
            lab.sent.append(f"look {item}")
            return item

        @tool(idempotency=STEADY, retry=Retry(attempts=5, elapsed=10 * HOUR, base=HOUR, cap=HOUR))
        async def ship(item: str) -> str:
            raise NotSent("the office is closed")

        self.take, self.put_back, self.look, self.ship = take, put_back, look, ship
        self.tools = [take, look, ship]

    async def begin(self, run: Run, what: str) -> None:
        """Begin something new at this point."""
        match what:
            case "a read":
                await self.look("pen")
            case "a write":
                await self.take("pen")
            case _:
                async with run.transaction("new"):
                    pass


NEW = ["a read", "a write", "a transaction"]


@pytest.mark.parametrize("what", NEW)
@virtual
async def test_nothing_new_begins_in_a_transaction_that_was_called_off(lab: Lab, what: str):
    desk, reached = Desk(lab), list[str]()

    @agent(run_id="r-{name}", tools=desk.tools)
    async def order(run: Run, name: str) -> str:
        try:
            async with run.transaction("t"):
                await desk.take("book")
                await run.sleep(HOUR)
                await desk.begin(run, what)
                reached.append(what)
        except TransactionAborted as gone:
            return gone.reason
        return "done"

    async with lab.app(order) as app:
        with pytest.raises(RunSuspended):
            await app.run(order, "ann")
        await app.service.call_off("r-ann", "t", by="eve", why="enough")
        await lab.pass_time(hours=1)
        assert await app.run(order, "ann") == "enough"
    assert (reached, lab.sent) == ([], ["take book", "put back book"])
    assert [one.transaction for one in lab.of("r-ann", r.TransactionOpened)] == ["t"]


@pytest.mark.parametrize("swallowed", [False, True], ids=["raised", "swallowed"])
@pytest.mark.parametrize("phase", ["committing", "committed"])
@pytest.mark.parametrize("what", [*NEW, "an error"])
@virtual
async def test_the_body_of_a_committed_transaction_only_replays(lab: Lab, what: str, phase: str, swallowed: bool):
    desk = Desk(lab)

    @agent(run_id="r-{name}", tools=desk.tools)
    async def order(run: Run, name: str) -> str:
        try:
            async with run.transaction("t") as boundary:
                await desk.take("book")
                if phase == "committing":
                    await boundary.on_commit(desk.ship, "book")
                if lab.changed and what == "an error":
                    raise ValueError("only now")
                if lab.changed:
                    await desk.begin(run, what)
        except ReplayDiverged:
            if not swallowed:
                raise
            return "as if nothing had been"
        raise KeyError("a bug")

    async with lab.app(order) as app:
        with pytest.raises(RunSuspended if phase == "committing" else KeyError):
            await app.run(order, "ann")
        lab.changed = True
        says = "where the record has t/" if phase == "committed" else "begins in the transaction t"
        says = "its body raised ValueError" if what == "an error" else says
        with pytest.raises((ReplayDiverged, RunStopped)) as error:
            await app.resume("r-ann", by="eve")
        assert swallowed or says in str(error.value)
    assert lab.sent == ["take book"]
    assert [one.transaction for one in lab.of("r-ann", r.TransactionOpened)] == ["t"]
    assert lab.of("r-ann", r.RunStoppedRecord)[-1].reason == "diverged"


@virtual
async def test_code_that_cleans_up_after_a_suspension_enters_no_transaction(lab: Lab):
    desk = Desk(lab)

    @agent(run_id="r-{name}", tools=desk.tools)
    async def order(run: Run, name: str) -> str:
        try:
            await run.sleep(HOUR)
        finally:
            async with run.transaction("t"):
                lab.sent.append("inside")
        return "done"

    async with lab.app(order) as app:
        with pytest.raises(RunSuspended):
            await app.run(order, "ann")
        assert (lab.sent, lab.of("r-ann", r.TransactionOpened)) == ([], [])
        await lab.pass_time(hours=1)
        assert await app.run(order, "ann") == "done"
    assert lab.sent == ["inside"]


@pytest.mark.parametrize("waits_in", ["inner", "outer"])
@pytest.mark.parametrize("called_off", ["outer", "outer/inner"])
@virtual
async def test_an_inner_transaction_ends_with_the_outer_one(lab: Lab, waits_in: str, called_off: str):
    """The inner one raises what called it off, once; one that had ended before ends on replay as it did."""
    desk, passes = Desk(lab), list[list[str]]()
    if (waits_in, called_off) == ("outer", "outer/inner"):
        return  # it has committed by then

    @agent(run_id="r-{name}", tools=desk.tools)
    async def order(run: Run, name: str) -> str:
        told: list[str] = []
        passes.append(told)
        try:
            async with run.transaction("outer"):
                try:
                    async with run.transaction("inner"):
                        await desk.take("book")
                        if waits_in == "inner":
                            await run.sleep(HOUR)
                    told.append("inner ended")
                except TransactionAborted as gone:
                    told.append(gone.transaction)
                    raise
                if waits_in == "outer":
                    await run.sleep(HOUR)
                told.append("outer goes on")
        except TransactionAborted as gone:
            told.append(gone.transaction)
            await desk.take("pen")
        return "done"

    async with lab.app(order) as app:
        with pytest.raises(RunSuspended):
            await app.run(order, "ann")
        await app.service.call_off("r-ann", called_off, by="eve", why="enough")
        await lab.pass_time(hours=1)
        assert await app.run(order, "ann") == "done"
    committed = [one.transaction for one in lab.of("r-ann", r.TransactionCommitted)]
    assert committed == (["outer/inner"] if waits_in == "outer" else [])
    assert lab.sent == ["take book", "put back book", "take pen"]
    expected = {
        ("inner", "outer"): ["outer", "outer"],
        ("inner", "outer/inner"): ["outer/inner", "outer"],
        ("outer", "outer"): ["inner ended", "outer"],
    }
    assert passes[-1] == expected[waits_in, called_off]


@virtual
async def test_a_new_transaction_does_not_commit_before_recorded_writes_came_back(lab: Lab):
    desk = Desk(lab)

    @agent(run_id="r-{name}", tools=desk.tools)
    async def order(run: Run, name: str) -> str:
        if lab.changed:
            async with run.transaction("t"):
                pass
        await desk.take("book")
        raise KeyError("a bug")

    async with lab.app(order) as app:
        with pytest.raises(KeyError):
            await app.run(order, "ann")
        lab.changed = True
        with pytest.raises(ReplayDiverged):
            await app.resume("r-ann", by="eve")
    assert lab.of("r-ann", r.TransactionCommitted) == []


@pytest.mark.parametrize("way", ["plain", "held", "called off"])
@virtual
async def test_the_end_of_a_transaction_is_durable_when_code_receives_it(lab: Lab, way: str):
    desk, stored = Desk(lab), list[str]()

    @agent(run_id="r-{name}", tools=desk.tools)
    async def order(run: Run, name: str) -> str:
        try:
            async with run.transaction("t") as boundary:
                if way == "held":
                    await boundary.on_commit(desk.take, "book")
                else:
                    await desk.take("book")
                if way == "called off":
                    boundary.abort("no")
        except TransactionAborted:
            pass
        stored.extend(r.kind_of(one) for one in lab.durable("r-ann") if isinstance(one, r.TransactionRecord))
        return "done"

    async with lab.app(order) as app:
        assert await app.run(order, "ann") == "done"
    assert stored[-1] == ("TransactionAborted" if way == "called off" else "TransactionCommitted")


@pytest.mark.parametrize("nested", [False, True], ids=["outermost", "inner"])
@virtual
async def test_what_ended_in_a_transaction_is_forgotten_with_the_outermost(lab: Lab, nested: bool):
    """A long run does not grow with its transactions; an outer one may still have to undo what an inner one did."""
    desk, kept = Desk(lab), list[set[str]]()

    @agent(run_id="r-{name}", tools=desk.tools)
    async def order(run: Run, name: str) -> str:
        async def inner() -> None:
            async with run.transaction("t"):
                await desk.take("book")

        scope = SCOPE.get()
        assert scope is not None
        operations = scope.active.history.operations
        if nested:
            async with run.transaction("outer"):
                await inner()
                kept.append(set(operations))
        else:
            await inner()
        kept.append(set(operations))
        return "done"

    async with lab.app(order) as app:
        assert await app.run(order, "ann") == "done"
    assert kept == ([{"outer/t/take#1"}, set()] if nested else [set()])


@virtual
async def test_code_inside_receives_the_end_in_the_order_of_the_first_pass(lab: Lab):
    """A step of the body raises what called the transaction off, after all that was told before, on replay too."""
    desk, passes = Desk(lab), list[list[str]]()

    @agent(run_id="r-{name}", tools=desk.tools)
    async def order(run: Run, name: str) -> str:
        told: list[str] = []
        passes.append(told)

        async def inside() -> None:
            try:
                async with run.transaction("t"):
                    await desk.take("book")
                    try:
                        await run.sleep(2 * HOUR)
                    except TransactionAborted:
                        told.append("inside")
                        raise
            except TransactionAborted:
                told.append("ended")

        async def beside() -> None:
            await run.sleep(HOUR)
            await desk.take("cup")
            told.append("beside")
            await run.sleep(2 * HOUR)
            await desk.take("jar")
            told.append("beside again")

        await run.gather(inside(), beside())
        if len(passes) == 2:
            raise KeyError("a bug")
        return "done"

    async with lab.app(order, hold_ms=10**9) as app:
        handle = app.start(order, "ann")
        await lab.pass_time(minutes=90)
        await app.service.call_off("r-ann", "~1/t", by="eve", why="enough")
        with pytest.raises(RunSuspended):
            await handle.result()
        with pytest.raises(KeyError):
            await app.run(order, "ann")
        assert await app.resume("r-ann", by="eve") == "done"
    assert passes[1:] == [["beside", "inside", "ended", "beside again"]] * 2


@virtual
async def test_the_end_of_an_inner_transaction_that_outlives_the_outer_one_is_durable(lab: Lab):
    desk, stored = Desk(lab), list[str]()

    @agent(run_id="r-{name}", tools=desk.tools)
    async def order(run: Run, name: str) -> str:
        async def inside() -> None:
            async with run.transaction("inner"):
                await desk.take("book")
                await asyncio.sleep(5)
            stored.extend(one.transaction for one in lab.durable("r-ann") if isinstance(one, r.TransactionCommitted))

        async with run.transaction("outer"):
            task = asyncio.create_task(inside())
            await asyncio.sleep(1)
        await task
        return "done"

    async with lab.app(order, hold_ms=10**9) as app:
        assert await app.run(order, "ann") == "done"
    assert stored == ["outer", "outer/~1/inner"]


@virtual
async def test_a_message_does_not_interrupt_a_commit_that_was_begun_before_it(lab: Lab):
    """Code hears it behind the transaction: replay reaches the same commit, and goes on with it."""
    desk = Desk(lab)

    @agent(run_id="r-{name}", tools=desk.tools)
    async def order(run: Run, name: str) -> str:
        async with run.transaction("t") as boundary:
            await boundary.on_commit(desk.ship, "book")
        return "shipped"

    async with lab.app(order) as app:
        with pytest.raises(RunSuspended):
            await app.run(order, "ann")
        await app.service.tell("r-ann", "not any more", by="ann")
        await lab.pass_time(hours=1)
        with pytest.raises(RunSuspended, match="before the next attempt"):
            await app.run(order, "ann")
    assert len(lab.of("r-ann", r.AttemptStarted)) == 2
    assert (len(lab.of("r-ann", r.MessageReceived)), lab.of("r-ann", r.MessageHeard)) == (1, [])
