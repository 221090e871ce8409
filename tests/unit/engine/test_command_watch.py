"""The watch that finds commands for the runs of a process: one read for all of them, and no command is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from beforehand import Run, agent
from beforehand.engine.commands import command_post
from beforehand.engine.engine import Engine
from beforehand.engine.suspension import LedgerWatch
from beforehand.errors import RunStopped
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import ClaimRequest, Post
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, virtual


def watching(*runs: str) -> Callable[[str], bool]:
    return set(runs).__contains__


async def command(journal: MemoryJournal, run: str) -> None:
    await journal.commit(command_post(run, b"{}"))


@virtual
async def test_it_finds_commands_of_its_own_runs_since_it_began(lab: Lab):
    journal = lab.journal
    await journal.open()
    await command(journal, "a")
    watch = LedgerWatch(journal, watching("a", "b"))
    await watch.begin()
    await watch.look()
    assert watch.pending == set(), "a run reads at its claim what came before"
    for run in ("b", "elsewhere", "b"):
        await command(journal, run)
    await journal.commit(Post("event/a/paid/", "", b"1"))
    await watch.look()
    assert watch.pending == {"b"}
    await watch.look()
    assert watch.pending == {"b"}, "until its commands are taken"


@virtual
async def test_a_run_that_is_driven_no_more_is_dropped(lab: Lab):
    journal, runs = lab.journal, {"a"}
    await journal.open()
    watch = LedgerWatch(journal, runs.__contains__)
    await watch.begin()
    await command(journal, "a")
    await watch.look()
    runs.clear()
    await watch.look()
    assert watch.pending == set()


@virtual
async def test_an_idle_journal_is_asked_for_nothing_but_its_last_entry(lab: Lab):
    journal = lab.journal
    await journal.open()
    watch = LedgerWatch(journal, watching("a"))
    await watch.begin()
    before = journal.calls
    await watch.look()
    assert journal.calls == before + 1


@virtual
async def test_the_reads_of_a_process_do_not_grow_with_its_runs(lab: Lab):
    @agent(run_id="{name}")
    async def idle(_run: Run, name: str) -> str:
        await asyncio.Event().wait()
        return name

    calls: list[int] = []
    async with lab.app(idle) as app:
        for runs in (1, 20):
            for number in range(runs):
                app.start(idle, f"r-{runs}-{number}")
            await lab.pass_time(seconds=10)
            before = lab.journal.calls
            await lab.pass_time(seconds=10)
            calls.append(lab.journal.calls - before)
    few, many = calls
    assert many <= few + 1, "a look may fall on the edge of the ten seconds"


@virtual
async def test_a_command_that_comes_while_the_run_is_claimed_is_taken(lab: Lab):
    @agent(run_id="{name}")
    async def idle(_run: Run, name: str) -> str:
        await asyncio.Event().wait()
        return name

    async with lab.app(idle, poll_ms=100) as owner:
        process: Any = lab.processes[-1]

        async def slow(request: ClaimRequest, commit: Commit) -> Any:
            found = await commit(request)
            await lab.journal.commit(command_post("a", b'{"word":"cancel","by":"ann"}'))
            await asyncio.sleep(1)  # the watch looks meanwhile: the run is held and not driven yet
            return found

        intercept(process, ClaimRequest, slow)
        handle = owner.start(idle, "a")
        await lab.pass_time(seconds=3)
        assert handle.done()
        with pytest.raises(RunStopped, match="cancelled"):
            await handle.result()


@virtual
async def test_an_unchanged_journal_is_read_rarely_and_a_changed_one_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    looks: list[bool] = []

    async def look(_: Engine, *, everything: bool = True) -> None:
        looks.append(everything)

    commits = [True]

    async def changed(pause: Callable[[], Awaitable[None]]) -> bool:
        await pause()
        return bool(commits) and commits.pop()

    monkeypatch.setattr(lab.journal, "changed", changed)
    monkeypatch.setattr(Engine, "look", look)
    async with lab.app(poll_ms=100) as app:
        await lab.pass_time(seconds=4)
        looks.clear()
        await lab.pass_time(seconds=20)
        assert len(looks) in (9, 10, 11), "once in two seconds"
        assert not any(looks), "the breakers are in the journal, too"
        looks.clear()
        commits.append(True)
        await lab.pass_time(milliseconds=100)
        assert looks, "within `poll_ms`"
        app.engine.ledger.pending.add("a")
        looks.clear()
        await lab.pass_time(seconds=1)
        assert len(looks) in (9, 10, 11), "what failed is tried again"
