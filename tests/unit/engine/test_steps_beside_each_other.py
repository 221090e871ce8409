"""A step that waits for the journal is at work: another task of its body whose step is recorded meanwhile waits its turn.

Each body is driven live with a slow journal, and again from its record by another process: both times its code has to
receive the same in the same order.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Natural, Operation, Run, TransactionAborted, agent, current_operation, tool
from beforehand.errors import MustHold, RunSuspended, UsageError
from beforehand.inspect.timeline import timeline
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)
STEADY = Key.forever(stores="all")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


class Office:
    """Tools that take a while: a read, a call with a compensation, and one that cannot be undone."""

    def __init__(self, lab: Lab, undoing_s: float = 0) -> None:
        @tool(effect="read")
        async def look(text: str, takes: float = 0) -> str:
            await asyncio.sleep(takes)
            return text

        @tool(idempotency=STEADY)
        async def book(text: str, takes: float = 0) -> str:
            _ = current_operation().key
            await asyncio.sleep(takes)
            lab.sent.append(text)
            return text

        @book.compensate(restores=True)
        @tool(idempotency=Natural(within=HOUR))
        async def unbook(operation: Operation[str]) -> None:
            await asyncio.sleep(undoing_s)
            lab.sent.append(f"no {operation.result}")

        @tool(idempotency=STEADY)
        async def mail(text: str, takes: float = 0) -> str:
            _ = current_operation().key
            await asyncio.sleep(takes)
            lab.sent.append(text)
            return text

        self.look, self.book, self.mail = look, book, mail
        self.tools = [look, book, mail]


@agent(name="kid")
async def kid(run: Run, name: str) -> str:
    return name


@agent(name="slow kid")
async def slow_kid(run: Run, name: str) -> str:
    await run.sleep(HOUR)
    return name


Body = Callable[[Run, list[Any], Office], Awaitable[object]]


async def told_twice(
    lab: Lab, body: Body, office: Office, *, signals: bool = False, held_s: float | None = None
) -> list[Any]:
    """What code is told live, and by a replay an hour later. The disk stands still for a second after `held_s`."""
    told: list[list[Any]] = []

    @agent(run_id="r-{name}", tools=office.tools)
    async def desk(run: Run, name: str) -> None:
        told.append([])
        await body(run, told[-1], office)
        await run.sleep(HOUR)

    async with lab.app(desk, kid, hold_ms=60_000) as app:
        running = asyncio.create_task(app.run(desk, "ann"))
        if signals:
            await lab.pass_time(seconds=2.5)
            await app.service.signal("r-ann", "news", payload="good")
        if held_s is not None:
            await lab.pass_time(seconds=held_s)
            lab.processes[-1].awake.clear()
            await lab.pass_time(seconds=1)
            lab.processes[-1].awake.set()
        with pytest.raises(RunSuspended):
            await running
    await lab.pass_time(hours=1)
    async with lab.app(desk, kid) as app:
        await app.run(desk, "ann")
    assert told[0] == told[1]
    return told[0]


async def sleeps(run: Run, office: Office) -> None:
    await run.sleep(seconds(1))


async def receives(run: Run, office: Office) -> None:
    await run.wait_for("news", timeout=seconds(30))


async def runs_out(run: Run, office: Office) -> None:
    with pytest.raises(TimeoutError):
        await run.wait_for("no news", timeout=seconds(1))


async def starts(run: Run, office: Office) -> None:
    await run.start(kid, "kid")


async def commits(run: Run, office: Office) -> None:
    async with run.transaction("trip"):
        await office.book("flight")


async def reads_messages(run: Run, office: Office) -> None:
    await run.messages()


async def remembers(run: Run, office: Office) -> None:
    await run.memory("ann").recall()


WAITS = [sleeps, receives, runs_out, starts, commits, reads_messages, remembers]


@pytest.mark.parametrize("takes", [0.5, 1, 1.5, 2, 2.5, 3, 4, 5])
@pytest.mark.parametrize("wait", WAITS, ids=lambda one: one.__name__)
@virtual
async def test_a_step_that_waits_for_the_journal_is_at_work(
    lab: Lab, wait: Callable[[Run, Office], Awaitable[None]], takes: float
):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        async def look() -> None:
            told.append(await office.look("seen", takes))

        async with run.task_group() as group:
            group.create_task(look())
            await wait(run, office)
            told.append("over")

    lab.lag_s = 1.0
    assert sorted(await told_twice(lab, body, Office(lab), signals=wait is receives)) == ["over", "seen"]


@virtual
async def test_a_body_that_awaits_its_tasks_after_a_step_is_suspended_all_the_same(lab: Lab):
    """Its last step ends after everything else has come to rest."""
    office = Office(lab)

    @agent(run_id="r-{name}", tools=office.tools)
    async def desk(run: Run, name: str) -> None:
        async with run.task_group() as group:
            group.create_task(run.join(await run.start(slow_kid, "kid")))
            await office.book("flight", 5)

    async with lab.app(desk, slow_kid, hold_ms=1000) as app:
        running = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=60)
        assert running.done()
        assert isinstance(running.exception(), RunSuspended)


# --- answers that become durable together ------------------------------------------------------------------------------


@pytest.mark.parametrize("takes", [1.2, 1.4, 1.8])
@virtual
async def test_an_answer_is_not_received_beside_the_failure_that_cancels_its_caller(lab: Lab, takes: float):
    """On a slow disk one commit holds both answers. A replay lets the failure have its effect between them."""

    async def body(run: Run, told: list[Any], office: Office) -> None:
        async def fails() -> None:
            await run.sleep(seconds(1.1))
            raise KeyError("bad news")

        async def books() -> None:
            await run.sleep(seconds(takes))
            told.append(await office.book("flight"))

        try:
            await run.gather(run.gather(fails(), run.sleep(HOUR)), books())
        except KeyError as error:
            told.append(str(error))

    assert await told_twice(lab, body, Office(lab), held_s=1.0) == ["'bad news'"]


@virtual
async def test_code_that_asks_who_came_first_is_told_the_same_twice(lab: Lab):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        async with run.task_group() as group:
            first, second = (group.create_task(run.sleep(seconds(number))) for number in (1.1, 1.2))
            await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
            told.append((first.done(), second.done()))

    assert await told_twice(lab, body, Office(lab), held_s=1.0) == [(True, False)]


@virtual
async def test_an_answer_that_is_recorded_while_a_failure_has_its_effect_waits_for_that(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    """On a busy loop milliseconds pass between its passes: here one at each look at the clock."""
    looks, wall_ms = itertools.count(), lab.clock.wall_ms
    monkeypatch.setattr(lab.journal, "_wall", lambda: wall_ms() + next(looks))
    failing = asyncio.Event()

    @tool(idempotency=Natural(within=HOUR))
    async def ship(text: str) -> str:
        await failing.wait()
        lab.sent.append(text)
        return text

    async def body(run: Run, told: list[Any], office: Office) -> None:
        async def fails() -> None:
            await run.sleep(seconds(1))
            failing.set()
            raise KeyError("bad news")

        async def ships() -> None:
            await ship("box")
            told.append(await office.look("label"))

        try:
            await run.gather(run.gather(run.gather(run.gather(fails(), run.sleep(HOUR)))), ships())
        except KeyError as error:
            told.append(str(error))

    office = Office(lab)
    office.tools.append(ship)
    assert await told_twice(lab, body, office) == ["'bad news'"]


# --- refusals that have no record ----------------------------------------------------------------------------------


@virtual
async def test_a_refusal_inside_a_limit_is_made_again_at_the_same_point(lab: Lab):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        try:
            async with run.transaction("trip"), run.timeout(seconds(5)):
                await run.gather(office.mail("not undoable"))
        except TransactionAborted as gone:
            told.append(gone.reason)
        told.append(await office.mail("after it"))

    told = await told_twice(lab, body, Office(lab))
    assert "cannot be undone" in told[0]
    assert told[1:] == ["after it"]
    assert lab.sent == ["after it"]


@virtual
async def test_a_refusal_that_code_handles_is_made_again_in_a_committed_transaction(lab: Lab):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        async with run.transaction("trip") as trip:
            await office.book("flight")
            try:
                await office.mail("now")
            except MustHold as refused:
                told.append(refused.message)
                await trip.on_commit(office.mail, "later")

    assert len(await told_twice(lab, body, Office(lab))) == 1
    assert lab.sent == ["flight", "later"]


@virtual
async def test_a_child_that_is_refused_in_a_transaction_is_refused_again(lab: Lab):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        async with run.transaction("trip"):
            await office.book("flight")
            try:
                await run.start(kid, "kid")
            except UsageError as refused:
                told.append(refused.message)
        told.append(await office.book("hotel"))

    told = await told_twice(lab, body, Office(lab))
    assert "inside a transaction" in told[0]
    assert told[1:] == ["hotel"]


# --- callers that are cancelled while their transaction closes -----------------------------------------------------


async def commit(run: Run, told: list[Any], office: Office) -> None:
    async with run.transaction("trip") as trip:
        await office.book("flight")
        await trip.on_commit(office.mail, "tickets", 10)
    told.append("committed")


async def abort(run: Run, told: list[Any], office: Office) -> None:
    async with run.transaction("trip"):
        await office.book("flight")
        raise ValueError("no seat")


async def inner_abort(run: Run, told: list[Any], office: Office) -> None:
    async with run.transaction("whole"):
        await office.book("car")
        async with run.transaction("trip"):
            await office.book("flight")
            raise ValueError("no seat")


async def cancelled_body(run: Run, told: list[Any], office: Office) -> None:
    async with run.transaction("trip"):
        await office.book("flight")
        async with run.timeout(seconds(1)):
            await run.sleep(HOUR)


CLOSES = [commit, abort, inner_abort, cancelled_body]


@pytest.mark.parametrize("lag_s", [0, 0.3])
@pytest.mark.parametrize("after", [0, 3, 20])
@pytest.mark.parametrize("close", CLOSES, ids=lambda one: one.__name__)
@virtual
async def test_a_limit_that_ends_while_a_transaction_closes(lab: Lab, close: Body, after: float, lag_s: float):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        try:
            async with run.timeout(seconds(5)):
                await close(run, told, office)
        except (TimeoutError, TransactionAborted) as error:
            told.append(type(error).__name__)
        told.append(await office.book("call", after))
        told.append(await office.look("seen"))

    lab.lag_s = lag_s
    told = await told_twice(lab, body, Office(lab, undoing_s=10))
    assert told[-2:] == ["call", "seen"]
    assert lab.of("r-ann", r.RunCompleted)
    if close is not commit:
        assert "no flight" in lab.sent


@pytest.mark.parametrize("after", [0, 3, 20])
@pytest.mark.parametrize("close", CLOSES, ids=lambda one: one.__name__)
@virtual
async def test_a_sibling_that_fails_while_a_transaction_closes(lab: Lab, close: Body, after: float):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        async def fails() -> None:
            await run.sleep(seconds(5))
            raise KeyError("the other part")

        try:
            await run.gather(close(run, told, office), fails())
        except KeyError as error:
            told.append(str(error))
        told.append(await office.book("call", after))
        told.append(await office.look("seen"))

    told = await told_twice(lab, body, Office(lab, undoing_s=10))
    assert told[-2:] == ["call", "seen"]


@pytest.mark.parametrize("outer", [3, 5, 7])
@pytest.mark.parametrize("inner", [3, 5, 7])
@pytest.mark.parametrize("close", CLOSES, ids=lambda one: one.__name__)
@virtual
async def test_nested_limits_that_end_while_a_transaction_closes(lab: Lab, close: Body, inner: float, outer: float):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        try:
            async with run.timeout(seconds(outer)):
                try:
                    async with run.timeout(seconds(inner)):
                        await close(run, told, office)
                except TimeoutError as over:
                    told.append(str(over))
                    told.append(await office.book("inner", 1))
        except (TimeoutError, TransactionAborted) as error:
            told.append(str(error))
        told.append(await office.book("call", 3))

    told = await told_twice(lab, body, Office(lab, undoing_s=10))
    assert told[-1] == "call"


@pytest.mark.parametrize("takes", [0, 1.5, 2.5])
@virtual
async def test_a_limit_that_ends_while_a_commit_becomes_durable(lab: Lab, takes: float):
    """The call, and then the end of the limit, wait for their turn behind a pause of another task."""

    async def body(run: Run, told: list[Any], office: Office) -> None:
        async def short() -> None:
            try:
                async with run.timeout(seconds(5)), run.transaction("trip"):
                    await office.book("flight", takes)
            except (TimeoutError, TransactionAborted) as error:
                told.append(type(error).__name__)

        await run.gather(run.sleep(seconds(3.5)), short())
        told.append(await office.book("call"))

    lab.lag_s = 2.0
    assert (await told_twice(lab, body, Office(lab)))[-1] == "call"
    assert lab.of("r-ann", r.RunCompleted)


@pytest.mark.parametrize("reads", [False, True])
@virtual
async def test_a_step_that_a_failing_part_cancelled_is_cancelled_again_in_a_committed_transaction(
    lab: Lab, reads: bool
):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        async def fails() -> None:
            await run.sleep(seconds(5))
            raise KeyError("the other part")

        async with run.transaction("trip"):
            await office.book("flight")
            try:
                await run.gather(office.look("seen", 60) if reads else run.sleep(seconds(20)), fails())
            except KeyError as error:
                told.append(str(error))
        told.append(await office.book("call"))

    assert (await told_twice(lab, body, Office(lab)))[-1] == "call"


@pytest.mark.parametrize("ends", ["commits", "aborts", "in time"])
@virtual
async def test_a_transaction_ends_after_an_inner_one_that_its_caller_left(lab: Lab, ends: str):
    async def body(run: Run, told: list[Any], office: Office) -> None:
        try:
            async with run.timeout(seconds(30 if ends == "commits" else 5)), run.transaction("whole") as whole:
                await office.book("car")
                try:
                    async with run.timeout(seconds(2)), run.transaction("trip"):
                        await office.book("flight")
                        raise ValueError("no seat")
                except TimeoutError:
                    told.append("inner")
                await whole.on_commit(office.mail, "tickets")
                if ends == "aborts":
                    raise ValueError("no car")
        except (TimeoutError, TransactionAborted) as error:
            told.append(str(error))
        told.append(await office.book("call", 3))

    told = await told_twice(lab, body, Office(lab, undoing_s=10))
    assert told[-1] == "call"
    assert lab.sent.count("no flight") == 1
    assert ("tickets" in lab.sent) == (ends == "commits")
    assert ("no car" in lab.sent) == (ends != "commits")
    if ends == "commits":
        assert lab.sent.index("no flight") < lab.sent.index("tickets")


@pytest.mark.parametrize("dies_at", [3, 5.5, 6.5, 9, 12, 16])
@pytest.mark.parametrize("close", CLOSES, ids=lambda one: one.__name__)
@virtual
async def test_a_process_dies_around_a_limit_that_ends_while_a_transaction_closes(
    lab: Lab, close: Body, dies_at: float
):
    office = Office(lab, undoing_s=10)
    told: list[list[Any]] = []

    @agent(run_id="r-{name}", tools=office.tools)
    async def desk(run: Run, name: str) -> str:
        told.append([])
        try:
            async with run.timeout(seconds(5)):
                await close(run, told[-1], office)
        except (TimeoutError, TransactionAborted) as error:
            told[-1].append(type(error).__name__)
        told[-1].append(await office.book("call", 3))
        await run.sleep(seconds(10))
        return "done"

    async with lab.app(desk) as app:
        running = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=dies_at)
        await lab.bury(app, lab.processes[-1])
        running.cancel()
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "done"
    assert told[0] == told[1][: len(told[0])]
    assert lab.of("r-ann", r.RunCompleted)


@virtual
async def test_a_limit_that_is_over_ends_its_body_on_a_replay_whose_journal_is_slow(lab: Lab):
    """Its end is recorded behind the end of a pause, and so comes later than a replay waits for a cancellation."""
    office = Office(lab)

    @agent(run_id="r-{name}", tools=office.tools)
    async def desk(run: Run, name: str) -> str:
        async def short() -> str:
            try:
                async with run.timeout(seconds(5)):
                    return await office.look("seen", 60)
            except TimeoutError:
                return "over"

        _, told = await run.gather(run.sleep(seconds(4)), short())
        return told

    async with lab.app(desk) as app:
        running = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=2)
        await lab.bury(app, lab.processes[-1])
        running.cancel()
    await lab.pass_time(minutes=1)
    lab.lag_s = 15.0
    async with lab.app(desk, lease_ms=600_000) as app:
        assert await app.run(desk, "ann") == "over"


@virtual
async def test_the_timeline_shows_that_the_caller_left_a_transaction(lab: Lab):
    office = Office(lab, undoing_s=10)

    @agent(run_id="r-{name}", tools=office.tools)
    async def desk(run: Run, name: str) -> None:
        async with run.timeout(seconds(5)):
            await abort(run, [], office)

    async with lab.app(desk) as app:
        with pytest.raises(TimeoutError):
            await app.run(desk, "ann")
        shown = [entry.text for entry in timeline("r-ann", lab.records("r-ann")).entries]
    assert "trip: the caller was cancelled before it ended; it is closed without it" in shown


@virtual
async def test_a_reopened_run_goes_past_a_transaction_that_its_caller_left(lab: Lab):
    office = Office(lab, undoing_s=10)

    @agent(run_id="r-{name}", tools=office.tools)
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(seconds(2)):
                await abort(run, [], office)
        except TimeoutError:
            pass
        await office.book("call", 20)
        async with run.transaction("trip"):
            await office.book("second")
            if not lab.changed:
                raise ValueError("a bug")
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(Exception, match="a bug"):
            await app.run(desk, "ann")
    lab.changed = True
    async with lab.app(desk) as app:
        assert await app.resume("r-ann") == "done"
    assert lab.sent == ["flight", "no flight", "call", "second", "no second", "second"]
