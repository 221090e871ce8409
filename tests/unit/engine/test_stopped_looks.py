"""A stopped run with an unknown effect: it is read back on a slow schedule, and nothing is sent."""

from datetime import timedelta

import pytest

from beforehand import Ambiguous, DidNotHappen, Happened, Key, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.engine.recovery import verify_stopped_run
from beforehand.errors import Deferred, OutcomeUnknown, ReplayDiverged, RunStopped, RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

DAY_MS = 86_400_000
SECOND = timedelta(seconds=1)


class Post:
    """A system that loses its answers: `calls` counts what was sent to it, `reads` when it was read back."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.calls = 0
        self.reads: list[float] = []
        self.there = False


def desk(lab: Lab, *, settle: timedelta | None, keyed: bool = False, raises: bool = False):
    """An agent whose one write is never answered, and what it writes to."""
    post = Post(lab)

    @tool(idempotency=Key.forever() if keyed else None, on_unknown="raise" if raises else "suspend")
    async def send(to: str) -> str:
        post.calls += 1
        raise Ambiguous(f"no answer about {to} ({current_operation().key[:0]})")

    @send.verify(settle_window=settle)
    async def look(operation: Operation[str]) -> Verdict[str]:
        post.reads.append(lab.loop.time())
        return Happened("sent") if post.there else DidNotHappen()

    @agent(run_id="r-{to}")
    async def writer(run: Run, to: str) -> str:
        return await send(to)

    return writer, post


async def cancelled(lab: Lab, writer, **settings: int) -> None:
    """The run, called off while it is not known whether its effect happened."""
    async with lab.app(writer, poll_ms=600_000, **settings) as app:
        with pytest.raises(RunSuspended):
            await app.run(writer, "x")
        await app.service.cancel("r-x", by="eve")
        with pytest.raises(RunStopped, match="cancelled"):
            await app.run(writer, "x")


async def due(lab: Lab) -> int | None:
    (row,) = await lab.journal.runs(run="r-x")
    assert row.status == "stopped"
    return row.due_ms


async def looks(lab: Lab, app, days: float) -> None:
    """Look again whenever it is due, as a worker does, for so many days."""
    until = lab.clock.wall_ms() + int(days * DAY_MS)
    while (at := await due(lab)) is not None and at < until:
        await lab.pass_time(milliseconds=max(0, at - lab.clock.wall_ms()))
        await verify_stopped_run(app.engine, "r-x")


@virtual
async def test_what_shows_up_after_the_run_was_cancelled_is_found_and_nothing_is_sent(lab: Lab):
    writer, post = desk(lab, settle=None)
    await cancelled(lab, writer)
    assert await lab.journal.runs(status="stopped", wakeable=True) == [], "not yet"
    await lab.pass_time(hours=1)
    assert [row.run for row in await lab.journal.runs(status="stopped", wakeable=True)] == ["r-x"]
    assert await lab.journal.runs(wakeable=True) == [], "it is not driven like a run that goes on"
    async with lab.app(writer, poll_ms=600_000) as app:
        await looks(lab, app, 0.5)
        post.there = True
        await looks(lab, app, 1)
        operation = (await app.service.operation("r-x/send#1"))[1]
        assert (operation.phase, str(operation.settlement.basis)) == ("succeeded", "evidence(read back)")
        assert await due(lab) is None, "nothing is left to look at"
    assert post.calls == 1
    assert lab.of("r-x", r.Verified)[-1].verdict == "happened"


@virtual
async def test_the_looks_back_off_and_end(lab: Lab):
    writer, post = desk(lab, settle=None)
    await cancelled(lab, writer, watch_stopped_ms=DAY_MS)
    post.reads.clear()
    async with lab.app(writer, watch_stopped_ms=DAY_MS, poll_ms=600_000) as app:
        await looks(lab, app, 2)
        assert await due(lab) is None
        assert (await app.service.operation("r-x/send#1"))[1].phase == "unknown", "it is never guessed"
    gaps = [later - earlier for earlier, later in zip(post.reads, post.reads[1:], strict=False)]
    assert len(post.reads) <= 12
    assert gaps[-1] > 3 * gaps[0] > 0, gaps
    assert post.calls == 1


@virtual
async def test_an_absence_that_may_be_believed_settles_a_cancelled_one(lab: Lab):
    writer, post = desk(lab, settle=60 * SECOND)
    post.there = False
    async with lab.app(writer) as app:
        handle = app.start(writer, "x")
        await lab.pass_time(seconds=5)
        await app.service.cancel("r-x", by="eve")
        with pytest.raises(RunStopped):
            await handle.result()
        assert (await app.service.operation("r-x/send#1"))[1].phase == "verifying"
        await looks(lab, app, 1)
        operation = (await app.service.operation("r-x/send#1"))[1]
    assert operation.phase == "failed"
    assert post.calls == 1


@virtual
async def test_a_run_that_diverged_is_only_read_for(lab: Lab):
    """Its keyed write could be sent again; a run that has stopped sends nothing, and leaves that to its reopening."""
    writer, post = desk(lab, settle=60 * SECOND, keyed=True)
    (send,) = writer.tools

    @agent(run_id="r-{to}", tools=[send], name="writer")
    async def changed(run: Run, to: str) -> str:
        return await send(to + "!")

    app = lab.make(writer)
    process = lab.processes[-1]
    await app.open()
    handle = app.start(writer, "x")
    await lab.pass_time(milliseconds=10)
    await lab.bury(app, process)
    assert not handle.done() or post.calls == 1
    async with lab.app(changed, poll_ms=600_000) as app:
        with pytest.raises(ReplayDiverged):
            await app.run(changed, "x")
        sent = post.calls
        await looks(lab, app, 1)
        operation = (await app.service.operation("r-x/send#1"))[1]
        assert await due(lab) is None
    assert (operation.phase, operation.verification.absent_through) == ("verifying", len(operation.attempts)), (
        "absent, and not settled"
    )
    assert post.calls == sent


@virtual
async def test_an_unknown_that_was_raised_into_the_code_is_read_back_too(lab: Lab):
    writer, post = desk(lab, settle=None, raises=True)
    async with lab.app(writer, poll_ms=600_000) as app:
        with pytest.raises(OutcomeUnknown):
            await app.run(writer, "x")
        post.there = True
        await looks(lab, app, 1)
        assert (await app.service.operation("r-x/send#1"))[1].phase == "succeeded"
    assert post.calls == 1


@virtual
async def test_reopening_ends_the_looking_and_a_word_of_a_person_too(lab: Lab):
    writer, post = desk(lab, settle=None)
    await cancelled(lab, writer)
    async with lab.app(writer, poll_ms=600_000) as app:
        await app.service.resolve("r-x/send#1", "happened", by="ann", result="sent")
        await looks(lab, app, 1)
        reads = len(post.reads)
        assert await due(lab) is None
        assert await app.resume("r-x") == "sent"
        await verify_stopped_run(app.engine, "r-x")
        assert (await app.service.row("r-x")).status == "completed"
    assert (post.calls, len(post.reads)) == (1, reads)


def booking(lab: Lab):
    """An agent whose one write is accepted, and answered later under a key of its own."""

    @tool
    async def book(room: str) -> str:
        lab.sent.append(room)
        raise Deferred("the hotel confirms by mail", within=timedelta(days=1), key="B-7")

    @agent(run_id="r-{to}")
    async def booker(run: Run, to: str) -> str:
        return await book(to)

    return booker


@pytest.mark.parametrize(
    ("answer", "phase"),
    [
        (ArrivedAnswer("m1", result=r.Raw(b'"room 12"')), "succeeded"),
        (ArrivedAnswer("m1", "failed", why="fully booked"), "failed"),
        (ArrivedAnswer("m1", result=r.Raw(b"12")), "unknown"),
    ],
)
@virtual
async def test_an_answer_that_comes_after_the_run_was_cancelled_settles_its_operation(lab: Lab, answer, phase: str):
    booker = booking(lab)
    await cancelled(lab, booker)
    async with lab.app(booker, poll_ms=600_000) as app:
        await app.service.deliver("B-7", answer)
        assert [row.run for row in await lab.journal.runs(status="stopped", wakeable=True)] == ["r-x"]
        await looks(lab, app, 0.1)
        assert (await app.service.operation("r-x/book#1"))[1].phase == phase
        assert await due(lab) is None
    assert lab.sent == ["x"]


@virtual
async def test_an_answer_that_never_comes_leaves_the_operation_of_a_stopped_run_unknown(lab: Lab):
    booker = booking(lab)
    await cancelled(lab, booker)
    async with lab.app(booker, poll_ms=600_000) as app:
        await looks(lab, app, 0.9)
        assert (await app.service.operation("r-x/book#1"))[1].phase == "awaiting", "it still has time"
        await looks(lab, app, 2)
        assert (await app.service.operation("r-x/book#1"))[1].phase == "unknown"
        assert await due(lab) is None
    assert lab.sent == ["x"]


@virtual
async def test_a_sender_may_mend_an_answer_that_did_not_fit_after_the_run_stopped(lab: Lab):
    booker = booking(lab)
    await cancelled(lab, booker)
    async with lab.app(booker, poll_ms=600_000) as app:
        for answer in (ArrivedAnswer("m1", result=r.Raw(b"12")), ArrivedAnswer("m2", result=r.Raw(b'"room 12"'))):
            await app.service.deliver("B-7", answer)
            await looks(lab, app, 0.1)
        assert (await app.service.operation("r-x/book#1"))[1].phase == "succeeded"
