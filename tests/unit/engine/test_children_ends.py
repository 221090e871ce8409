"""A run and its children end together: cancellation and deadlines flow down, and what may not be started is refused."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Run, agent
from beforehand.errors import (
    BeforehandError,
    ChildStopped,
    Interrupted,
    ParameterMismatch,
    RunStopped,
    RunSuspended,
    UsageError,
)
from beforehand.model import records as r
from beforehand.model.children import DEEPEST
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from tests.unit.engine.family import CHILD, Family
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt

RUN = "trip-ann"


async def _asks_first(run: Run, what: str, book: Any) -> str:
    await run.ask("May I?")
    return str(await book(what))


async def _grandchild(run: Run, what: str, book: Any) -> str:
    """Starts itself once more, then asks a person."""
    if what == "hotel":
        return str(await run.join(await run.start(run_agent[0], "room")))
    return await _asks_first(run, what, book)


run_agent: list[Any] = []


async def _statuses(app: Any) -> dict[str, str]:
    return {row.run: f"{row.status} {row.reason.partition(':')[0]}".strip() for row in await app.service.runs()}


async def _start_suspended(lab: Lab, app: Any, family: Family) -> asyncio.Future[Any]:
    """The parent waits for its child, which waits for a person."""
    driving = asyncio.ensure_future(app.run(family.parent, "ann"))
    await lab.pass_time(seconds=20)
    assert (await app.service.row(RUN)).status == "suspended"
    return driving


@virtual
async def test_cancelling_a_run_cancels_the_whole_tree(lab: Lab):
    family = Family(lab, child=_grandchild)
    run_agent[:] = [family.child]
    async with lab.app(*family.agents, recover=True) as app:
        driving = await _start_suspended(lab, app, family)
        await app.service.cancel(RUN, by="bea", why="not needed")
        with pytest.raises(RunStopped, match="cancelled"):
            await driving
        await lab.pass_time(seconds=30)
        assert set((await _statuses(app)).values()) == {"stopped cancelled"}
        assert len(await app.service.runs()) == 3
        (told,) = [one for one in lab.of(CHILD, r.CommandApplied) if one.command == "cancel"]
        assert (told.by, told.note) == ("bea", f"the run {RUN} that started it was cancelled")
    assert lab.sent == []


@virtual
async def test_a_crash_between_a_run_and_its_child_loses_no_cancellation(lab: Lab):
    """The process that cancels the parent dies right after the commit: house-keeping of another one brings it."""
    family = Family(lab, child=_asks_first)
    async with lab.app(*family.agents, recover=True) as app:
        driving = await _start_suspended(lab, app, family)
        driving.cancel()
    crash = DiesAt("after_told", 1)
    other = lab.make(*family.agents, crash=crash)
    process = crash.process = lab.processes[-1]
    await other.open()
    cancelling = asyncio.ensure_future(other.service.cancel(RUN, by="bea"))
    await asyncio.wait({cancelling, crash.over}, return_when=asyncio.FIRST_COMPLETED)
    assert process.dead
    await lab.bury(other, process)
    await asyncio.gather(cancelling, return_exceptions=True)
    assert lab.of(CHILD, r.CommandApplied) == []
    async with lab.app(*family.agents, recover=True) as app:
        await lab.pass_time(minutes=2)
        assert set((await _statuses(app)).values()) == {"stopped cancelled"}
    assert lab.sent == []


@virtual
async def test_a_child_that_is_not_stored_yet_is_not_begun_after_a_cancellation(lab: Lab):
    family, crash = Family(lab), DiesAt("after_start", 1)
    app = lab.make(*family.agents, crash=crash, recover=True)
    process = crash.process = lab.processes[-1]
    await app.open()
    driving = asyncio.ensure_future(app.run(family.parent, "ann"))
    await crash.over
    await lab.bury(app, process)
    await asyncio.gather(driving, return_exceptions=True)
    async with lab.app(*family.agents) as other:
        await other.service.cancel(RUN, by="bea")
    async with lab.app(*family.agents, recover=True) as other:
        await lab.pass_time(minutes=5)
        assert await _statuses(other) == {RUN: "stopped cancelled"}
    assert lab.sent == []


class StopsAt:
    """Stops its process, as SIGSTOP does, when a point is reached."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.process: Any = None

    def reached(self, point: str) -> None:
        if point == self.point and self.process.awake.is_set():
            self.process.awake.clear()
            self.point = ""


@virtual
async def test_a_process_that_stood_still_cannot_begin_a_child_of_a_cancelled_run(lab: Lab):
    """It was stopped between the two commits; another one has cancelled the parent before it continues."""
    family, stop = Family(lab), StopsAt("after_start")
    app = lab.make(*family.agents, crash=stop, recover=True)
    process = stop.process = lab.processes[-1]
    await app.open()
    driving = asyncio.ensure_future(app.run(family.parent, "ann"))
    await lab.pass_time(minutes=10)
    async with lab.app(*family.agents, recover=True) as other:
        await other.service.cancel(RUN, by="bea")
        await lab.pass_time(minutes=2)
        process.awake.set()
        await lab.pass_time(minutes=5)
        assert set((await _statuses(other)).values()) == {"stopped cancelled"}
    await asyncio.gather(driving, return_exceptions=True)
    await app.aclose()
    assert lab.sent == []


@virtual
async def test_a_child_sends_nothing_after_the_deadline_of_its_parent(lab: Lab):
    family = Family(lab, child=_asks_first, deadline=timedelta(hours=1))
    async with lab.app(*family.agents, recover=True) as app:
        driving = await _start_suspended(lab, app, family)
        parent = lab.of(CHILD, r.RunStarted)[0].parent
        assert parent.until == lab.of(RUN, r.RunStarted)[0].at + 3_600_000
        await lab.pass_time(hours=1, minutes=1)
        await app.service.answer(f"{CHILD}/ask#1", "yes", by="bea")
        with pytest.raises((ChildStopped, RunStopped), match="deadline"):
            await driving
    assert lab.sent == []


async def _start_only(run: Run, name: str, booking: Any) -> str:
    await run.start(booking, "hotel")
    return "left"


async def _start_and_let_go(run: Run, name: str, booking: Any) -> str:
    await run.start(booking, "hotel", when_parent_ends="continue")
    return "left"


@virtual
async def test_a_child_that_was_not_joined_is_cancelled_when_the_run_completes(lab: Lab):
    family = Family(lab, code=_start_only, child=_asks_first)
    async with lab.app(*family.agents, recover=True) as app:
        assert await app.run(family.parent, "ann") == "left"
        await lab.pass_time(minutes=1)
        assert (await _statuses(app))[CHILD] == "stopped cancelled"
        assert lab.of(CHILD, r.CommandApplied)[0].note == f"the run {RUN} that started it has ended"


@virtual
async def test_a_child_may_outlive_a_run_that_completes_and_not_one_that_is_cancelled(lab: Lab):
    family = Family(lab, code=_start_and_let_go, child=_asks_first)
    async with lab.app(*family.agents, recover=True) as app:
        assert await app.run(family.parent, "ann") == "left"
        await lab.pass_time(minutes=1)
        await app.service.answer(f"{CHILD}/ask#1", "yes", by="bea")
        await lab.pass_time(minutes=1)
        assert (await _statuses(app))[CHILD] == "completed"
    assert lab.sent == ["book hotel"]

    async def code(run: Run, name: str, booking: Any) -> str:
        await run.start(booking, "hotel", when_parent_ends="continue")
        return await run.ask("And now?")

    alone = Lab()
    family = Family(alone, code=code, child=_asks_first)
    async with alone.app(*family.agents, recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(family.parent, "ann")
        await app.service.cancel(RUN, by="bea")
        await alone.pass_time(minutes=1)
        assert set((await _statuses(app)).values()) == {"stopped cancelled"}


@virtual
async def test_the_children_of_a_run_that_failed_go_on_and_are_joined_when_it_is_resumed(lab: Lab):
    fails = True

    async def code(run: Run, name: str, booking: Any) -> str:
        hotel = await run.start(booking, "hotel")
        if fails:
            raise ValueError("a bug")
        return str(await run.join(hotel))

    family = Family(lab, code=code)
    async with lab.app(*family.agents, recover=True) as app:
        with pytest.raises(ValueError, match="a bug"):
            await app.run(family.parent, "ann")
        await lab.pass_time(minutes=1)
        assert (await _statuses(app))[CHILD] == "completed"
        fails = False
        assert await app.resume(RUN, by="bea") == "book hotel"
    assert lab.sent == ["book hotel"]


@virtual
async def test_a_message_interrupts_a_join_and_a_time_limit_ends_it(lab: Lab):
    async def code(run: Run, name: str, booking: Any) -> str:
        hotel = await run.start(booking, "hotel")
        try:
            async with run.timeout(timedelta(hours=1)):
                await run.join(hotel)
        except TimeoutError:
            pass
        try:
            await run.join(hotel)
        except Interrupted as told:
            return f"told {told.text}"
        return "?"

    family = Family(lab, code=code, child=_asks_first)
    async with lab.app(*family.agents, recover=True) as app:
        driving = await _start_suspended(lab, app, family)
        await lab.pass_time(hours=1, minutes=1)
        await app.service.tell(RUN, "come home", by="bea")
        assert await driving == "told come home"


# --- bad input -------------------------------------------------------------------------------------------------------


async def _refused(
    lab: Lab, family: Family, match: str, kind: type[BeforehandError] = UsageError, **options: Any
) -> None:
    """Starting the child is refused, and nothing of it is stored."""
    async with lab.app(*family.agents, recover=True, **options) as app:
        before = len(await app.service.runs())
        with pytest.raises(kind, match=match) as refused:
            await app.run(family.parent, "ann")
        assert len(await app.service.runs()) == before + 1
        assert "nothing was stored" in str(refused.value) or refused.value.next_step
    assert lab.of(RUN, r.ChildStarted) == []


def _starting(**options: Any) -> Any:
    async def code(run: Run, name: str, booking: Any) -> str:
        return str(await run.join(await run.start(booking, "hotel", **options)))

    return code


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"queue": "nowhere"}, "nowhere"),
        ({"priority": 10}, "priority=10 is not from -9 to 9"),
        ({"tenant": "a/b"}, "cannot name a tenant"),
        ({"budget": 7}, "budget=7 is not a RunBudget"),
        ({"when_parent_ends": "wait"}, "neither of cancel, continue"),
    ],
    ids=str,
)
@virtual
async def test_options_that_mean_nothing_are_refused(lab: Lab, options: dict[str, Any], match: str):
    await _refused(lab, Family(lab, code=_starting(**options)), match)


@virtual
async def test_an_agent_that_the_app_does_not_have_is_not_started(lab: Lab):
    @agent(name="stranger")
    async def stranger(run: Run, what: str) -> str:
        return what

    async def code(run: Run, name: str, booking: Any) -> str:
        return str(await run.start(stranger, "hotel"))

    await _refused(lab, Family(lab, code=code), "the agent stranger is not among the agents of this app")


@virtual
async def test_the_id_of_another_run_is_not_taken(lab: Lab):
    family = Family(lab)
    async with lab.app(*family.agents) as app:
        await app.run(family.child, "boat", run_id=CHILD)
    await _refused(
        lab, family, f"another run, which it did not start, has that id.*beforehand show {CHILD}", ParameterMismatch
    )


@virtual
async def test_a_child_is_not_started_inside_a_transaction(lab: Lab):
    async def code(run: Run, name: str, booking: Any) -> str:
        async with run.transaction("all"):
            return str(await run.start(booking, "hotel"))

    async with lab.app(*(family := Family(lab, code=code)).agents) as app:
        with pytest.raises(BeforehandError) as refused:
            await app.run(family.parent, "ann")
        assert "inside a transaction" in f"{refused.value} {refused.value.__cause__}"
        assert [row.run for row in await app.service.runs()] == [RUN]


@virtual
async def test_agents_that_start_each_other_without_end_are_stopped(lab: Lab):
    async def deeper(run: Run, what: str, book: Any) -> str:
        return str(await run.join(await run.start(run_agent[0], what)))

    family = Family(lab, child=deeper)
    run_agent[:] = [family.child]
    async with lab.app(*family.agents, recover=True) as app:
        with pytest.raises((ChildStopped, RunStopped)):
            await app.run(family.parent, "ann")
        rows = await app.service.runs()
    assert len(rows) == DEEPEST + 1
    deepest = max(rows, key=lambda row: len(row.run))
    assert f"has {DEEPEST} runs above it" in deepest.reason


@virtual
async def test_a_run_joins_only_what_it_started(lab: Lab):
    async def code(run: Run, name: str, booking: Any) -> str:
        return str(await run.join("trip-ann~booking.1"))  # type: ignore[arg-type]  # what is tried

    await _refused(lab, Family(lab, code=code), "which it did not start")


@virtual
async def test_another_input_at_the_same_step_is_a_divergence(lab: Lab):
    async def code(run: Run, name: str, booking: Any) -> str:
        hotel = await run.start(booking, "boat" if lab.changed else "hotel")
        return str(await run.join(hotel))

    family = Family(lab, code=code, child=_asks_first)
    async with lab.app(*family.agents, recover=True) as app:
        driving = await _start_suspended(lab, app, family)
        lab.changed = True
        await app.service.answer(f"{CHILD}/ask#1", "yes", by="bea")
        with pytest.raises(BeforehandError, match="starts another child than when it was recorded"):
            await driving


# --- queues ----------------------------------------------------------------------------------------------------------

ONE = DeclaredLimits(
    {
        "desk": QueueLimits(concurrency=1, capacity=1),
        "keyed": QueueLimits(key="{input}"),
        "elsewhere": QueueLimits(),
    }
)


@virtual
async def test_a_child_waits_in_its_queue_and_a_full_one_takes_it(lab: Lab):
    """Parent and children share a queue with one slot and one place: a parent that waits has no slot."""

    async def code(run: Run, name: str, booking: Any) -> str:
        some = [await run.start(booking, what, queue="desk", tenant="acme", priority=2) for what in "abc"]
        return " ".join(await run.gather(*(run.join(one) for one in some)))

    family = Family(lab, code=code)
    async with lab.app(*family.agents, recover=True, queues=ONE) as app:
        await app.submit(family.parent, "ann", queue="desk")
        assert await app.run(family.parent, "ann") == "book a book b book c"
        rows = {row.run: (row.queue, row.tenant) for row in await app.service.runs()}
    assert rows[CHILD] == ("desk", "acme")
    assert sorted(lab.sent) == ["book a", "book b", "book c"]


@virtual
async def test_a_queue_with_a_key_does_not_make_a_run_wait_for_itself(lab: Lab):
    family = Family(lab, code=_starting(queue="keyed"))
    async with lab.app(*family.agents, recover=True, queues=ONE) as app:
        await app.submit(family.parent, "ann", queue="keyed")
        with pytest.raises(UsageError, match="the child could wait for ever"):
            await app.run(family.parent, "ann")
        assert [row.run for row in await app.service.runs()] == [RUN]


@pytest.mark.parametrize("queue", ["keyed", "desk"])
@pytest.mark.parametrize("holder", [1, 2, 3], ids=["directly above", "two above", "three above"])
@pytest.mark.parametrize("others", [{}, {"queue": "elsewhere"}], ids=["the others in none", "the others in another"])
@virtual
async def test_no_run_is_started_in_a_queue_with_a_key_that_a_run_above_it_is_in(
    lab: Lab, queue: str, holder: int, others: dict[str, Any]
):
    """In a queue without a key it is started: a run that waits for its child holds no slot."""

    def place(number: int) -> dict[str, Any]:
        return {"queue": queue} if number in {0, holder} else others

    @agent(name="link", run_id="link-{number}")
    async def link(run: Run, number: int) -> str:
        if not number:
            return "the last"
        return str(await run.join(await run.start(link, number - 1, **place(number - 1))))

    async with lab.app(link, recover=True, queues=ONE) as app:
        await app.submit(link, 3, **place(3))
        await lab.pass_time(minutes=5)
        rows = {row.run: row for row in await app.service.runs()}
    if queue == "desk":
        assert [row.status for row in rows.values()] == ["completed"] * 4
    else:
        assert [row.status for row in rows.values()] == ["stopped"] * 3, "the last one was not stored"
        assert any("the child could wait for ever" in row.reason for row in rows.values())
