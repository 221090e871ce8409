"""Passes of the monitors: each record is counted once, however a pass ends and in whatever portions it reads."""

import asyncio
import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Rejected, Run, agent, tool
from holdfast.errors import JournalUnavailable
from holdfast.inspect.monitors import FINDINGS, passes
from holdfast.inspect.monitors.observations import Observation, RunReading
from holdfast.inspect.monitors.passes import (
    Acknowledgement,
    JudgedFindings,
    Readings,
    StoredTallies,
    acknowledge,
    catch_up,
    monitor_pass,
    present,
    stored_tallies,
    watch,
    watched,
    with_acknowledged,
)
from holdfast.inspect.monitors.rules import MonitorSettings
from holdfast.inspect.monitors.tallies import DAY_MS, HOUR_MS, AgentTallies, total
from holdfast.inspect.reader import JournalReader
from tests.unit.engine.lab import Lab, virtual

SETTINGS = MonitorSettings()


@tool
async def pay(cents: int) -> int:
    if cents > 900:
        raise Rejected("over the limit")
    return cents


@tool(effect="read")
async def look(name: str) -> str:
    return name


@agent(run_id="{name}", version="7")
async def desk(run: Run, name: str) -> int:
    for _ in range(len(name) % 7):
        await look(name)
    await run.sleep(timedelta(hours=1 + len(name) % 5))
    return (await pay.outcome(1000 if "dear" in name else 5)).attempts


async def history(lab: Lab, seed: int, runs: int = 12) -> None:
    """Runs that overlap, so that the records of each are apart."""
    rng = random.Random(seed)
    async with lab.app(desk, recover=True, poll_ms=600_000) as app:
        started = [
            asyncio.create_task(app.run(desk, f"{number}{'-dear' * rng.randrange(2)}{'x' * rng.randrange(9)}"))
            for number in range(runs)
        ]
        await asyncio.gather(*started, return_exceptions=True)
        await asyncio.sleep(6 * HOUR_MS / 1000)


async def whole(reader: JournalReader) -> StoredTallies:
    tallies = StoredTallies(reader.identity.incarnation)
    await catch_up(reader, tallies, Readings())
    return tallies


def plain(agents: dict[str, AgentTallies]) -> object:
    return msgspec.to_builtins({name: dict(sorted(one.hours.items())) for name, one in agents.items()})


@pytest.mark.parametrize("processes", [0, 1, 2], ids=["none kept", "kept", "by turns"])
@pytest.mark.parametrize("at_once", [1, 3, 17, 2000])
@virtual
async def test_tallies_do_not_depend_on_the_portions(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, at_once: int, processes: int
):
    """Nor on the readings that processes keep, and on which of them makes a pass."""
    await history(lab, at_once)
    kept = [Readings() for _ in range(processes)]
    async with lab.app(desk) as app:
        reader = app.service.reader
        expected = await whole(reader)
        assert expected.through > 100
        monkeypatch.setattr(passes, "AT_ONCE", at_once)
        portions = await whole(reader)
        now, read, turn = lab.clock.wall_ms(), 0, random.Random(at_once)
        while more := await monitor_pass(
            reader, now, SETTINGS, turn.choice(kept) if kept else Readings(), most=at_once
        ):
            read += more
        stored, _ = await stored_tallies(reader)
    assert plain(portions.agents) == plain(expected.agents)
    assert (stored.through, read) == (expected.through, expected.through)
    assert plain(stored.agents) == plain(expected.agents)
    topics = total(topics for one in stored.agents.values() for topics in one.hours.values())
    assert topics["versions"]["7"].number == 12
    assert sum(one.number for one in topics["writes"].values()) == 12


class Forgetful(Readings):
    """Readings that keep two of three, so that some runs go on beside others that are read from the start."""

    def keep(self, reading: RunReading) -> None:
        if reading.length % 3:
            super().keep(reading)


@pytest.mark.parametrize("stored", [False, True])
@virtual
async def test_a_pass_that_fails_at_any_call_neither_loses_nor_doubles(lab: Lab, stored: bool):
    await history(lab, 5, runs=6)
    async with lab.app(desk) as app:
        reader, now, call, readings = app.service.reader, lab.clock.wall_ms(), 0, Forgetful()
        expected = await whole(reader)
        failed = 1
        while failed:
            call, failed = call + 1, 0
            lab.journal._hints.pop(passes.NOTE, None)
            lab.journal.fail_next(call, JournalUnavailable("the disk"), stored=stored)
            while True:
                try:
                    if await monitor_pass(reader, now, SETTINGS, readings, most=11) == 0:
                        break
                except JournalUnavailable:
                    failed += 1
            lab.journal._faults.clear()  # the call did not come: this was the last round
            found, _ = await stored_tallies(reader)
            assert (found.through, plain(found.agents)) == (expected.through, plain(expected.agents)), call
    assert call > 15


@virtual
async def test_of_two_passes_at_once_one_counts(lab: Lab):
    await history(lab, 6)
    lab.lag_s = 0.01  # so that each comes between the calls of the other
    async with lab.app(desk) as app, lab.app(desk) as other:
        now = lab.clock.wall_ms()
        expected = await whole(app.service.reader)
        counted = await asyncio.gather(*(
            monitor_pass(one.service.reader, now, SETTINGS, Readings(), most=10**6) for one in (app, other)
        ))  # fmt: skip
        assert sorted(counted, key=str) == sorted([expected.through, None], key=str)
        found, _ = await stored_tallies(app.service.reader)
    assert plain(found.agents) == plain(expected.agents)


@pytest.mark.parametrize("note", [b"{", b"[]", b'{"version":99}', b'{"through":1000000,"incarnation":"1"}'])
@virtual
async def test_a_note_that_cannot_be_used_is_counted_again(lab: Lab, note: bytes):
    await history(lab, 7, runs=3)
    async with lab.app(desk) as app:
        reader, expected = app.service.reader, await whole(app.service.reader)
        lab.journal._hints[passes.NOTE] = note
        assert await monitor_pass(reader, lab.clock.wall_ms(), SETTINGS, Readings(), most=10**6) == expected.through
        found, _ = await stored_tallies(reader)
    assert plain(found.agents) == plain(expected.agents)


HOURS = st.dictionaries(st.integers(0, 400), st.integers(1, 9), max_size=30)


@given(HOURS, st.integers(0, 10), st.integers(0, 400), st.integers(0, 400))
def test_what_is_kept_by_the_day_gives_the_same_sums(hours: dict[int, int], days: int, fine: int, border: int):
    tallies = AgentTallies()
    for hour, number in hours.items():
        for one in range(number):
            tallies.add(observed(hour, one))
    first, border = days * 24, max(border, fine, days * 24)
    kept = tallies.shortened(first, fine)
    for low, high in ((first, border), (border + 1, 10**6)):
        assert numbers(kept, low, high) == numbers(tallies, low, high)
    assert plain({"": kept.shortened(first, fine)}) == plain({"": kept})


def observed(hour: int, number: int) -> Observation:
    return Observation("writes", f"{number % 2}", f"run-{number}", hour * HOUR_MS + number)


def numbers(tallies: AgentTallies, first: int, last: int) -> dict[str, int]:
    return {value: one.number for value, one in tallies.between(first, last).get("writes", {}).items()}


@virtual
async def test_what_is_acknowledged_is_shown_again_with_new_evidence(lab: Lab):
    async def ran(names: list[str]) -> None:
        await asyncio.gather(*(app.run(desk, name) for name in names), return_exceptions=True)
        await asyncio.sleep(8 * HOUR_MS / 1000)

    tuned = MonitorSettings(chance=0.01)
    async with lab.app(desk, recover=True, poll_ms=600_000) as app:
        reader, readings = app.service.reader, Readings()
        await ran([f"n{number}" for number in range(30)])
        await asyncio.sleep(DAY_MS / 1000)
        await ran([f"dear{number}" for number in range(5)])
        (found,) = (await present(reader, lab.clock.wall_ms(), tuned)).findings
        await watch(reader, lab.clock.wall_ms(), tuned, readings)
        began = lab.clock.wall_ms()
        assert await watched(reader, began) == JudgedFindings(began, [found], {found.id: began})
        await asyncio.sleep(60)
        await watch(reader, lab.clock.wall_ms(), tuned, readings)
        assert (await watched(reader, began + 60_000)).since == {found.id: began}
        lab.journal._hints[FINDINGS] = b"{"
        assert (await watched(reader, began)).findings == []
        await acknowledge(lab.journal, Acknowledgement(found.id, found.newest_ms, "ann", "known", began + DAY_MS))
        await watch(reader, lab.clock.wall_ms(), tuned, readings)
        assert (await watched(reader, began + DAY_MS - 1)).findings == []
        ended = await watched(reader, began + DAY_MS)
        assert ([one.id for one in ended.findings], ended.since) == ([found.id], {found.id: began + DAY_MS})
        await acknowledge(lab.journal, Acknowledgement(found.id, found.newest_ms, "ann", "known"))
        assert (await watched(reader, began + DAY_MS)).findings == []
        quiet = await present(reader, lab.clock.wall_ms(), tuned)
        assert (quiet.findings, quiet.acknowledged) == ([], 1)
        assert [one.id for one in (await with_acknowledged(reader, lab.clock.wall_ms(), tuned)).findings] == [found.id]
        await ran(["dear-again"])
        (again,) = (await present(reader, lab.clock.wall_ms(), tuned)).findings
    assert (again.id, again.rule) == (found.id, "refusals")


@virtual
async def test_a_run_that_goes_on_is_read_once(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """However long it is; without what is kept, each pass would read it from the start."""
    await history(lab, 8, runs=3)
    async with lab.app(desk) as app:
        reader, read = app.service.reader, list[str]()
        records_between = JournalReader.records_between

        def noted(self: JournalReader, run: str, after: int, last: int) -> Any:
            read.append(run)
            return records_between(self, run, after, last)

        monkeypatch.setattr(JournalReader, "records_between", noted)
        readings = Readings()
        while await monitor_pass(reader, lab.clock.wall_ms(), SETTINGS, readings, most=1):
            pass
        assert read == []
        monkeypatch.setattr(passes, "KEPT_RECORDS", 0)
        lab.journal._hints.pop(passes.NOTE)
        while await monitor_pass(reader, lab.clock.wall_ms(), SETTINGS, readings, most=1):
            pass
        assert len(read) > 20


@virtual
async def test_a_full_pass_is_followed_by_another(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    await history(lab, 9, runs=3)
    async with lab.app(desk) as app:
        reader, readings = app.service.reader, Readings()
        total_read = (await whole(reader)).through
        monkeypatch.setattr(passes, "A_PASS", total_read - 1)
        monkeypatch.setattr(monitor_pass, "__defaults__", (total_read - 1,))
        assert not await watch(reader, lab.clock.wall_ms(), SETTINGS, readings)
        assert (await watched(reader, lab.clock.wall_ms())).at_ms == 0, "much is uncounted"
        assert await watch(reader, lab.clock.wall_ms(), SETTINGS, readings)
        assert (await watched(reader, lab.clock.wall_ms())).at_ms == lab.clock.wall_ms()


@agent(run_id="{name}", version="7")
async def long(run: Run, name: str) -> None:
    for number in range(30):
        await pay(number)
        await run.sleep(timedelta(minutes=1))
    await run.sleep(timedelta(days=30))


@pytest.mark.parametrize("case", ["restarted", "evicted", "by turns"])
@virtual
async def test_runs_that_have_not_ended_are_counted_once_whatever_is_kept(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, case: str
):
    """What is read of a run to go on with it ends where the portion begins, however many records it has by then."""
    async with lab.app(long, recover=True) as app:
        begun = [asyncio.create_task(app.run(long, f"r{number}")) for number in range(3)]
        await asyncio.sleep(3600)
        reader, now = app.service.reader, lab.clock.wall_ms()
        expected = await whole(reader)
        monkeypatch.setattr(passes, "AT_ONCE", 20)
        monkeypatch.setattr(passes, "KEPT_RECORDS", 50 if case == "evicted" else 10_000)
        await monitor_pass(reader, now, SETTINGS, Readings(), most=100)
        kept, turn = [Readings(), Readings()], 0
        while await monitor_pass(reader, now, SETTINGS, kept[turn % 2 if case == "by turns" else 0], most=40):
            turn += 1
        stored, _ = await stored_tallies(reader)
        for one in begun:
            one.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
    assert turn > 5
    assert plain(stored.agents) == plain(expected.agents)
