"""The app: runs, handles, maps, the synchronous face, and what it refuses."""

import secrets
from pathlib import Path
from typing import Any

import pytest

from beforehand import Beforehand, Rejected, Run, agent, tool
from beforehand.app import RunResult
from beforehand.errors import (
    BeforehandError,
    JournalError,
    JournalUnavailable,
    ParameterMismatch,
    RunStopped,
    RunSuspended,
    UnknownRun,
    UsageError,
)
from tests.unit.engine.lab import Lab, virtual


@tool
def double(number: int) -> int:
    return 2 * number


@agent(run_id="n-{number}")
async def desk(run: Run, number: int) -> int:
    if number == 3:
        raise Rejected("three is refused")
    if number == 4:
        await run.wait_for("never")
    if number == 5:
        return "text"  # type: ignore[return-value]  # a result that its annotation does not fit
    return await double(number)


@agent(run_id="other-{number}")
async def other(run: Run, number: int) -> int:
    return number


@virtual
async def test_map_gives_every_end_and_never_raises_for_one_run(lab: Lab):
    async with lab.app(desk) as app:
        ends: dict[int, RunResult[int, int]] = {
            done.input: done async for done in app.map(desk, range(1, 7), concurrency=2)
        }
    assert {number: end.status for number, end in ends.items()} == {
        1: "completed", 2: "completed", 3: "stopped", 4: "suspended", 5: "stopped", 6: "completed",
    }  # fmt: skip
    assert (ends[1].result, ends[1].run, ends[1].error) == (2, "n-1", None)
    assert isinstance(ends[4].error, RunSuspended)
    assert "could not be stored" in str(ends[5].error)


@virtual
async def test_map_again_says_which_runs_stopped_before(lab: Lab):
    async with lab.app(desk) as app:
        _ = [done async for done in app.map(desk, [3])]
        again = [done async for done in app.map(desk, [3])]
    assert again[0].status == "stopped"
    assert isinstance(again[0].error, RunStopped)


@virtual
async def test_map_refuses_no_concurrency_and_stops_when_it_is_left(lab: Lab):
    async with lab.app(desk) as app:
        with pytest.raises(UsageError, match="give at least 1"):
            await anext(app.map(desk, [1], concurrency=0))
        ends = app.map(desk, [4, 1], concurrency=1)
        assert (await anext(ends)).status == "suspended"
        await ends.aclose()


@virtual
async def test_map_raises_when_the_journal_is_gone(lab: Lab):
    async with lab.app(desk) as app:
        lab.journal.fail_next(1)
        with pytest.raises(JournalUnavailable):
            _ = [done async for done in app.map(desk, [1])]


@virtual
async def test_inputs_that_name_no_run_are_refused_one_by_one(lab: Lab):
    @agent()
    async def nameless(run: Run, text: str) -> str:
        return text

    async with lab.app(nameless) as app:
        ends = [done async for done in app.map(nameless, ["a"])]
        assert (ends[0].status, ends[0].run) == ("refused", "")
        assert await app.run(nameless, "a", run_id="mine") == "a"
        with pytest.raises(UsageError, match="cannot name a run"):
            await app.run(nameless, "a", run_id="no spaces")


@agent(run_id="echo-{text}")
async def echo(run: Run, text: str) -> str:
    return text


@virtual
async def test_a_name_in_place_of_an_agent_is_refused_with_the_agents_that_exist(lab: Lab):
    async with lab.app(echo) as app:
        untyped: Any = app
        for given in ("echo", "ehco", echo.__wrapped__, None):
            with pytest.raises(
                UsageError, match=r"is not an agent. Known: nothing was stored; .* are echo. Next: give"
            ):
                await untyped.submit(given, "a")
            with pytest.raises(UsageError, match="is not an agent"):
                await untyped.run(given, "a")
            with pytest.raises(UsageError, match="is not an agent"):
                untyped.start(given, "a")
            with pytest.raises(UsageError, match="is not an agent"):
                untyped.stream(given, "a")
            assert [type(end.error) async for end in untyped.map(given, ["a"])] == [UsageError]


@virtual
async def test_a_key_that_is_not_text_is_refused_by_its_name(lab: Lab):
    async with lab.app(echo) as app:
        untyped: Any = app
        for key in (5, b"a", ""):
            with pytest.raises(UsageError, match=f"key={key!r} cannot name a run. .* Next: give a key of these"):
                await untyped.submit(echo, "a", key=key)
            with pytest.raises(UsageError, match=f"run_id={key!r} cannot name a run. .* Next: give a run_id of these"):
                await untyped.run(echo, "a", run_id=key)


@virtual
async def test_a_run_belongs_to_its_agent(lab: Lab):
    async with lab.app(desk, other) as app:
        await app.run(desk, 1)
        (before,) = await app.engine.journal.runs()
        with pytest.raises(ParameterMismatch, match="belongs to the agent desk, not other"):
            await app.run(other, 1, run_id="n-1")
        assert await app.engine.journal.runs() == [before]  # it is said before the run is taken
    async with lab.app(other) as app:
        with pytest.raises(UsageError, match="is not known to this app") as unknown:
            await app.drive("n-1")
        assert "known agents: other" in unknown.value.known


@virtual
async def test_resume_of_a_completed_run_gives_its_result_and_of_none_is_refused(lab: Lab):
    async with lab.app(desk) as app:
        await app.run(desk, 1)
        assert await app.resume("n-1") == 2
        with pytest.raises(UnknownRun):
            await app.resume("n-99")


@virtual
async def test_a_closed_app_refuses(lab: Lab):
    app = lab.make(desk)
    for call in (
        lambda: app.run(desk, 1), lambda: app.start(desk, 1), lambda: app.submit(desk, 1), lambda: app.resume("n-1"),
        lambda: app.undo("n-1", by="eve"), lambda: app.drive("n-1"), lambda: app.map(desk, [1]),
        lambda: app.stream(desk, 1),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="the app is not open") as refused:
            call()  # at the call: a coroutine that nothing awaits would say nothing
        assert "async with Beforehand(...) as app" in refused.value.next_step
    await app.aclose()
    await app.open()
    await app.aclose()
    await app.aclose()
    with pytest.raises(UsageError, match=r"the app is closed.*async with Beforehand"):
        await app.run(desk, 1)


@virtual
async def test_recovery_leaves_runs_of_agents_it_does_not_know_to_others(lab: Lab):
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, 4)
        await app.service.cancel("n-4", by="eve")
    async with lab.app(other, recover=True):
        await lab.pass_time(minutes=1)
    async with lab.app(desk, recover=True) as app:
        await lab.pass_time(minutes=1)
        assert (await app.service.row("n-4")).status == "stopped"


@virtual
async def test_recovery_that_meets_an_error_tries_again_later(lab: Lab, caplog: pytest.LogCaptureFixture):
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, 4)
        await app.service.cancel("n-4", by="eve")
    async with lab.app(desk, recover=True) as app:
        for n in range(1, 9):
            lab.journal.fail_next(n)
        await lab.pass_time(minutes=1)
        assert (await app.service.row("n-4")).status == "stopped"
    assert "the search for abandoned runs failed" in caplog.text


@virtual
async def test_a_result_whose_annotation_changed_is_reported(lab: Lab):
    @agent(run_id="n-{number}", name="desk")
    async def changed(run: Run, number: int) -> list[str]:
        return []

    async with lab.app(desk) as app:
        await app.run(desk, 1)
    async with lab.app(changed) as app:
        with pytest.raises(ValueError, match="former return annotation"):
            await app.run(changed, 1)


def test_journals_that_this_version_cannot_open_are_refused():
    with pytest.raises(UsageError, match=r"give a path such as desk\.db, sqlite:///"):
        Beforehand("postgresql://localhost/desk", agents=[desk])


def test_the_synchronous_face_runs_in_a_thread_of_its_own(journal_path: Path):
    with Beforehand(f"sqlite://{journal_path}", agents=[desk]) as app:
        assert app.run(desk, 21) == 42
        with pytest.raises(Rejected):
            app.run(desk, 3)
        assert sorted(done.result or 0 for done in app.map(desk, [1, 2])) == [2, 4]
        assert app.resume("n-21") == 42
    with Beforehand(journal_path, agents=[desk]) as app:
        assert app.run(desk, 21, run_id="n-21") == 42


def test_the_synchronous_face_ends_its_thread_when_it_cannot_open(tmp_path: Path):
    broken = tmp_path / "broken.db"
    broken.write_bytes(secrets.token_bytes(4096))
    app = Beforehand(broken, agents=[desk])
    with pytest.raises((JournalError, BeforehandError)), app:
        raise AssertionError("not reached")
    assert not app._sync._thread.is_alive()


def test_leaving_a_map_early_ends_it(journal_path: Path):
    with Beforehand(journal_path, agents=[desk]) as app:
        ends = app.map(desk, [1, 2, 6], concurrency=1)
        assert next(ends).status == "completed"
        ends.close()  # type: ignore[attr-defined]  # a generator, typed as an iterator
