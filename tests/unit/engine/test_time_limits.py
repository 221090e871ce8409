"""Time limits in branches, around branches and around each other: a replay ends each body where it was ended before."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from beforehand import Key, Run, agent, tool
from beforehand.agent.tool import Tool
from beforehand.errors import RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)
Mail: TypeAlias = Tool[Any, str]


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def mailing(lab: Lab) -> Mail:
    @tool(idempotency=Key.forever(stores="all"))
    async def mail(text: str, takes: float = 0) -> str:
        await asyncio.sleep(takes)
        lab.sent.append(text)
        return text

    return mail


async def told_twice(lab: Lab, body: Callable[[Run, list[str], Mail], Awaitable[object]]) -> list[str]:
    """What code is told, live and by a replay an hour later: both have to be the same, and to take the same time."""
    told: list[list[str]] = []
    mail = mailing(lab)

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> None:
        told.append([])
        try:
            await body(run, told[-1], mail)
        except TimeoutError as over:
            told[-1].append(str(over))
        replayed.append(lab.loop.time())
        await run.sleep(HOUR)

    replayed: list[float] = []
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        begun = lab.loop.time()
        await app.run(desk, "ann")
    assert told[0] == told[1]
    assert replayed[1] - begun < 1, "the replay waited for something"
    return told[0]


async def killed(lab: Lab, desk: Any, after_s: float) -> None:
    """Drive the run in a process that dies so long after."""
    async with lab.app(desk) as app:
        running = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=after_s)
        await lab.bury(app, lab.processes[-1])
        running.cancel()


OVER = "the time limit of 0:00:03 ended this part of run r-ann"


@virtual
async def test_a_branch_that_ended_in_time_is_not_limited_where_its_turn_comes_later(lab: Lab):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def limited() -> None:
            async with run.timeout(seconds(3)):
                told.append(await mail("limited", 2))

        async def free() -> None:
            told.append(await mail("free", 1))

        await run.gather(limited(), free())

    assert await told_twice(lab, body) == ["free", "limited"]
    assert lab.sent == ["free", "limited"]


@virtual
async def test_a_pause_and_its_limit_that_end_at_once_end_alike_on_replay(lab: Lab):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async with run.timeout(seconds(3)):
            await run.sleep(seconds(3))
            told.append("slept")
        told.append("in time")

    told = await told_twice(lab, body)
    assert told in ([OVER], ["slept", OVER])
    assert "in time" not in told


@virtual
async def test_an_answer_that_was_recorded_before_the_end_is_received_before_it(lab: Lab):
    """It is durable, and with that received, only after the time is over."""

    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async with run.timeout(seconds(3)):
            await run.sleep(seconds(2.995))
            told.append("slept")
            await run.sleep(seconds(1))
            told.append("not reached")

    lab.lag_s = 0.01
    assert await told_twice(lab, body) == ["slept", OVER]


@virtual
async def test_an_answer_that_is_recorded_while_its_caller_is_cancelled_keeps_nothing_waiting(lab: Lab):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def fails() -> None:
            await mail("quick", 0.985)
            raise KeyError("no such thing")

        with contextlib.suppress(KeyError):
            await run.gather(run.sleep(seconds(1)), fails())
        told.append(await mail("after"))

    lab.lag_s = 0.01
    assert await told_twice(lab, body) == ["after"]
    assert [one.step for one in lab.of("r-ann", r.CallerLeft)] == ["~1/sleep#1"]


@virtual
async def test_branches_under_a_limit_are_left_where_they_were(lab: Lab):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def one(text: str, takes: float) -> None:
            told.append(await mail(text, takes))

        async with run.timeout(seconds(3)):
            await run.gather(one("quick", 1), one("slow", 20), one("quicker", 0.5))
            told.append("not reached")

    assert await told_twice(lab, body) == ["quicker", "quick", OVER]
    assert sorted(lab.sent) == ["quick", "quicker", "slow"]


@virtual
async def test_a_body_that_ends_a_while_after_its_last_step_is_not_ended_on_replay(lab: Lab):
    """Nothing on record says that the body has ended, but the limit comes only when the code has had the time to."""

    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def fails() -> None:
            await mail("a", 1)
            raise KeyError("a")

        async with run.timeout(seconds(3)):
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(fails())
            except* KeyError:
                told.append("failed")
        told.append("in time")

    assert await told_twice(lab, body) == ["failed", "in time"]


@pytest.mark.parametrize("hours", [-1, 1])
@virtual
async def test_a_clock_that_is_set_while_a_body_goes_on_does_not_end_it(lab: Lab, hours: int):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async with run.timeout(seconds(30)):
            told.append(await mail("before", 1))
            if not lab.changed:
                lab.clock.skew_ms, lab.changed = hours * 3_600_000, True
            told.append(await mail("after", 1))
            await run.sleep(seconds(1))
            told.append("slept")

    assert await told_twice(lab, body) == ["before", "after", "slept"]


@virtual
async def test_no_step_begins_in_a_body_whose_time_was_over_before_the_run_continued(lab: Lab):
    @tool
    async def send(text: str) -> str:
        lab.sent.append(text)
        return text

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def limited() -> str:
            try:
                async with run.timeout(timedelta(minutes=5)):
                    await send("first")
                    if lab.changed:  # the process dies before this
                        await send("too late")
            except TimeoutError:
                return "over"
            return "in time"

        said, _ = await run.gather(limited(), run.sleep(timedelta(minutes=10)))
        return said

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        lab.changed = True
        await lab.pass_time(minutes=10)
        assert await app.run(desk, "ann") == "over"
    assert lab.sent == ["first"]


@virtual
async def test_a_limit_that_came_after_another_cancelled_call_ends_the_body_in_its_turn(lab: Lab):
    """A call is left because its sibling failed; only later is the time over."""

    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def fails() -> None:
            await mail("short", 0.5)
            raise KeyError("no such thing")

        async with run.timeout(seconds(3)):
            try:
                await run.gather(mail("left", 1), fails())
            except KeyError as error:
                told.append(str(error))
            told.append(await mail("later"))
            await run.sleep(seconds(60))
            told.append("not reached")

    assert await told_twice(lab, body) == ["'no such thing'", "later", OVER]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("back", [0, 1])
@virtual
async def test_a_process_that_dies_while_it_ends_a_body_ends_it_later(lab: Lab, back: int, beside: bool):
    """The cancelled call is on record, and the clock may be set back to before the limit."""
    mail, told = mailing(lab), []

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> list[str]:
        async def leaves(text: str) -> None:
            try:
                await mail(text, 20)
            finally:
                await asyncio.sleep(1)

        async def limited() -> str:
            with pytest.raises(TimeoutError, match="the time limit of 0:00:03"):
                async with run.timeout(seconds(3)):
                    await (run.gather(leaves("a"), leaves("b"), mail("quick", 1)) if beside else leaves("a"))
            told.append("over")
            return await mail("after")

        async with run.timeout(HOUR):
            return await run.gather(limited(), mail("free", 3.5))

    await killed(lab, desk, 3.7)
    kinds = [type(one) for one in lab.records("r-ann") if isinstance(one, (r.CallerLeft, r.TimerFired))]
    assert kinds == [r.TimerFired, *[r.CallerLeft] * (1 + beside)]
    lab.clock.skew_ms = -back * 60_000
    begun = lab.loop.time()
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == ["after", "free"]
    assert told == ["over"]
    assert lab.loop.time() - begun < 25
    assert len(lab.of("r-ann", r.TimerFired)) == 1


@virtual
async def test_a_call_that_is_cancelled_on_the_way_out_of_an_ended_body_cuts_nothing_that_follows(lab: Lab):
    mail = mailing(lab)

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> list[str]:
        mine: list[str] = []

        async def fails() -> None:
            await mail("quick", 1)
            raise KeyError

        async def leaves() -> None:
            try:
                await mail("a", 5)
            finally:
                with contextlib.suppress(KeyError):
                    await run.gather(mail("x", 5), fails())
                mine.append("gathered")
                mine.append(await mail("slow", 10))

        try:
            async with run.timeout(seconds(3)):
                await leaves()
        except TimeoutError:
            mine.append("over")
        return mine

    await killed(lab, desk, 13)
    assert len(lab.of("r-ann", r.CallerLeft)) == 2
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == ["gathered", "slow", "over"]


@pytest.mark.parametrize("waits_in", ["a pause", "a call", "branches", "another branch"])
@virtual
async def test_steps_on_the_way_out_of_an_ended_body_are_made_again_on_replay(lab: Lab, waits_in: str):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def waits(name: str) -> None:
            try:
                await (run.sleep(seconds(20)) if waits_in == "a pause" else mail(name, 20))
            finally:
                told.append(await mail(f"unlock {name}", 1))

        async with run.timeout(seconds(3)):
            try:
                match waits_in:
                    case "branches":
                        await run.gather(waits("a"), waits("b"), mail("quick", 1))
                    case "another branch":
                        await run.gather(run.gather(waits("a"), mail("quick", 1)), mail("quicker", 0.5))
                    case _:
                        await waits("a")
            finally:
                told.append(await mail("last"))

    told = await told_twice(lab, body)
    assert told[-2:] == ["last", OVER]
    assert lab.sent.count("unlock a") == lab.sent.count("last") == 1


@virtual
async def test_a_run_is_suspended_on_the_way_out_of_an_ended_body(lab: Lab):
    mail, told = mailing(lab), []

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(seconds(3)):
                try:
                    await mail("a", 20)
                finally:
                    told.append("out")
                    await run.sleep(HOUR)
                    told.append(await mail("unlock"))
        except TimeoutError as over:
            return str(over)
        return "in time"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        assert await app.run(desk, "ann") == OVER
    assert told == ["out", "out", "unlock"]
    assert lab.sent == ["a", "unlock"]


@pytest.mark.parametrize("back", [0, 1])
@virtual
async def test_a_process_that_dies_on_the_way_out_of_an_ended_body_goes_on_there(lab: Lab, back: int):
    """The clock may be set back to before the limit meanwhile."""
    mail = mailing(lab)

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(seconds(3)):
                try:
                    await run.sleep(seconds(20))
                finally:
                    await mail("first", 1)
                    await mail("second", 1)
        except TimeoutError as over:
            return str(over)
        return "in time"

    await killed(lab, desk, 4.5)
    lab.clock.skew_ms = -back * 60_000
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == OVER
    assert lab.sent == ["first", "second"]


@virtual
async def test_what_is_answered_after_the_end_of_a_body_reaches_none_of_its_branches(lab: Lab):
    """The cancellation passes many joins before it reaches the branch whose call ends at that moment."""

    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def nested(depth: int) -> None:
            if depth:
                await run.gather(nested(depth - 1))
            else:
                told.append(await mail("a", 3))

        async with run.timeout(seconds(3)):
            await nested(8)

    assert await told_twice(lab, body) == [OVER]


@virtual
async def test_a_limit_ends_the_way_out_of_branches_that_were_cancelled_by_another(lab: Lab):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def leaves() -> None:
            try:
                await mail("a", 5)
            finally:
                told.append("out")
                await run.sleep(seconds(20))
                told.append("not reached")

        async def fails() -> None:
            await mail("b", 1)
            raise KeyError

        async with run.timeout(seconds(3)):
            await run.gather(leaves(), fails())

    assert await told_twice(lab, body) == ["out", OVER]


@virtual
async def test_a_branch_that_was_cancelled_twice_is_cancelled_twice_on_replay(lab: Lab):
    """By another branch, and then by a limit around its way out: no step begins there that did not begin before."""

    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def leaves() -> None:
            async with run.timeout(seconds(3)):
                try:
                    await mail("a", 20)
                finally:
                    await mail("waits for the first one")
                    told.append("not reached")

        async def fails() -> None:
            raise KeyError("no such thing")

        try:
            await run.gather(leaves(), fails())
        except KeyError as error:
            told.append(str(error))

    assert await told_twice(lab, body) == ["'no such thing'"]
    assert lab.sent == ["a"]


@virtual
async def test_branches_that_the_end_of_a_limit_does_not_reach_go_on_after_a_crash(lab: Lab):
    """A task group cancels its tasks once. Those on the way out since then outlive the end of a limit around it."""
    mail = mailing(lab)

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        async def leaves() -> None:
            try:
                await mail("a", 20)
            finally:
                await run.gather(mail("x"), mail("y"))

        async def fails() -> None:
            raise KeyError

        with contextlib.suppress(ExceptionGroup):
            async with run.timeout(seconds(3)), run.task_group() as group:
                group.create_task(leaves())
                group.create_task(fails())
        return "over"

    await killed(lab, desk, 4)
    async with lab.app(desk) as app:
        assert await asyncio.wait_for(app.run(desk, "ann"), 3600) == "over"
    assert lab.sent[-2:] == ["x", "y"]


@virtual
async def test_a_pause_of_a_branch_that_was_cancelled_is_not_over_on_replay(lab: Lab):
    """Its time has passed by then, and code after it would go on, to its next effect."""

    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def waits() -> None:
            await run.sleep(seconds(3))
            told.append("not reached")

        async def fails() -> None:
            raise KeyError("no such thing")

        with contextlib.suppress(KeyError):
            await run.gather(waits(), fails())

    assert await told_twice(lab, body) == []


@virtual
async def test_a_limit_ends_a_body_in_which_a_task_group_failed(lab: Lab):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async def fails() -> None:
            raise KeyError

        async with run.timeout(seconds(3)):
            try:
                async with run.task_group() as group:
                    group.create_task(fails())
            except* KeyError:
                told.append("failed")
            await run.sleep(seconds(20))
            told.append("not reached")

    assert await told_twice(lab, body) == ["failed", OVER]


@virtual
async def test_of_two_limits_that_ended_the_later_one_ends_the_way_out(lab: Lab):
    mail = mailing(lab)

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        async def leaves() -> None:
            try:
                await mail("b", 20)
            finally:
                await asyncio.sleep(2)

        try:
            async with run.timeout(seconds(8)):
                try:
                    async with run.timeout(seconds(3)):
                        try:
                            await mail("a", 5)
                        finally:
                            await leaves()
                except TimeoutError:
                    return await mail("after the inner one")
        except TimeoutError:
            return "over"
        return "in time"

    await killed(lab, desk, 9)
    lab.clock.skew_ms = -60_000
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "over"
    assert "after the inner one" not in lab.sent


@virtual
async def test_an_inner_limit_ends_its_own_body_only(lab: Lab):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async with run.timeout(seconds(30)):
            try:
                async with run.timeout(seconds(3)):
                    told.append(await mail("in time", 1))
                    told.append(await mail("left", 10))
            except TimeoutError as over:
                told.append(str(over))
            told.append(await mail("after"))

    assert await told_twice(lab, body) == ["in time", OVER, "after"]


@virtual
async def test_the_timeout_of_a_wait_in_the_body_is_told_as_it_is(lab: Lab):
    async def body(run: Run, told: list[str], mail: Mail) -> None:
        async with run.timeout(seconds(30)):
            await run.wait_for("go", timeout=seconds(3))

    assert await told_twice(lab, body) == ["no event 'go' came within 0:00:03"]
