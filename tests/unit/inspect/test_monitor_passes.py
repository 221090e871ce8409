"""Looks of the monitors: each record is counted once, however a count ends and in whatever portions it reads."""

import asyncio
import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand import Rejected, Run, agent, tool
from beforehand.errors import JournalUnavailable
from beforehand.inspect.monitors import TALLIES, counting, passes
from beforehand.inspect.monitors.counting import Readings, RecordTallies
from beforehand.inspect.monitors.findings import Acknowledgement, FindingRaised, acknowledge, shown_findings
from beforehand.inspect.monitors.observations import Observation, RunReading
from beforehand.inspect.monitors.passes import present, watch, with_acknowledged
from beforehand.inspect.monitors.rules import MonitorSettings
from beforehand.inspect.monitors.tallies import DAY_MS, HOUR_MS, AgentTallies, total
from beforehand.inspect.reader import JournalReader
from beforehand.journal.port import Post
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


async def history(lab: Lab, seed: int, runs: int = 12, first: int = 0) -> None:
    """Runs that overlap, so that the records of each are apart."""
    rng = random.Random(seed)
    async with lab.app(desk, recover=True, poll_ms=600_000) as app:
        started = [
            asyncio.create_task(app.run(desk, f"{number}{'-dear' * rng.randrange(2)}{'x' * rng.randrange(9)}"))
            for number in range(first, first + runs)
        ]
        await asyncio.gather(*started, return_exceptions=True)
        await asyncio.sleep(6 * HOUR_MS / 1000)


async def counted(
    lab: Lab, reader: JournalReader, settings: MonitorSettings = SETTINGS, *, stores: bool = False
) -> RecordTallies:
    """The tallies of a process that starts."""
    tallies = RecordTallies()
    while not await tallies.count(reader, lab.clock.wall_ms(), settings, lab.journal if stores else None):
        pass
    return tallies


def plain(tallies: RecordTallies) -> object:
    """The numbers of each hour, and the newest subjects: rules see nothing else."""
    seen: dict[str, object] = {"through": tallies.through, "unreadable": tallies.counted.unreadable}
    for name, one in tallies.counted.agents.items():
        newest = total(one.hours.values())
        seen[name] = (newest, {hour: numbers(one, hour, hour) for hour in one.hours})
    return msgspec.to_builtins(seen)


async def portions(lab: Lab) -> list[int]:
    """The portions in the ledger, by number."""
    return [int(entry.key) for entry in await lab.journal.entries(f"{counting.TALLIES}/")]


@pytest.mark.parametrize("processes", [0, 1, 2], ids=["restarted", "one", "by turns"])
@pytest.mark.parametrize("at_once", [1, 3, 17, 2000])
@virtual
async def test_tallies_do_not_depend_on_the_portions(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, at_once: int, processes: int
):
    """Nor on what processes keep, and on which of them counts."""
    await history(lab, at_once)
    kept, turn = [RecordTallies() for _ in range(processes)], random.Random(at_once)
    async with lab.app(desk) as app:
        reader = app.service.reader
        expected = await counted(lab, reader)
        assert expected.through > 100
        monkeypatch.setattr(counting, "AT_ONCE", at_once)
        monkeypatch.setattr(counting, "PORTION", 20)
        last = RecordTallies()
        while last.through < expected.through:
            last = turn.choice(kept) if kept else RecordTallies()
            await last.count(reader, lab.clock.wall_ms(), SETTINGS, lab.journal)
        for one in kept:
            while not await one.count(reader, lab.clock.wall_ms(), SETTINGS, lab.journal):
                pass
        restarted = await counted(lab, reader)
    assert await portions(lab) == list(range(expected.through // 20))
    for one in (*kept, last, restarted):
        assert plain(one) == plain(expected)
    topics = total(topics for one in restarted.counted.agents.values() for topics in one.hours.values())
    assert topics["versions"]["7"].number == 12
    assert sum(one.number for one in topics["writes"].values()) == 12


class Forgetful(Readings):
    """Readings that keep two of three, so that some runs go on beside others that are read from the start."""

    def keep(self, reading: RunReading) -> None:
        if reading.length % 3:
            super().keep(reading)


@pytest.mark.parametrize("stored", [False, True])
@virtual
async def test_a_count_that_fails_at_any_call_neither_loses_nor_doubles(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, stored: bool
):
    await history(lab, 5, runs=6)
    async with lab.app(desk) as app:
        reader, call = app.service.reader, 0
        expected = await counted(lab, reader)
        monkeypatch.setattr(counting, "PORTION", 11)
        failed = 1
        while failed:
            call, failed, tallies, ended = call + 1, 0, RecordTallies(), False
            tallies._readings = Forgetful()
            monkeypatch.setattr(counting, "TALLIES", f"tallies-of-{call}")
            lab.journal.fail_next(call, JournalUnavailable("the disk"), stored=stored)
            while not ended:
                try:
                    ended = await tallies.count(reader, lab.clock.wall_ms(), SETTINGS, lab.journal)
                except JournalUnavailable:
                    failed += 1
            lab.journal._faults.clear()  # the call did not come: this was the last round
            assert plain(tallies) == plain(expected), call
            assert await portions(lab) == list(range(expected.through // 11)), call
            assert plain(await counted(lab, reader)) == plain(expected), call
    assert call > 15


@virtual
async def test_of_two_processes_at_once_one_posts_a_portion(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    await history(lab, 6)
    monkeypatch.setattr(counting, "PORTION", 20)
    lab.lag_s = 0.01  # so that each comes between the calls of the other
    async with lab.app(desk) as app, lab.app(desk) as other:
        expected = await counted(lab, app.service.reader)
        both = await asyncio.gather(*(counted(lab, one.service.reader, stores=True) for one in (app, other)))
        restarted = await counted(lab, app.service.reader)
    assert await portions(lab) == list(range(expected.through // 20))
    for one in (*both, restarted):
        assert plain(one) == plain(expected)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"agents":7}'])
@pytest.mark.parametrize("number", [0, 2])
@virtual
async def test_a_portion_that_cannot_be_read_is_counted_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, number: int, body: bytes
):
    await history(lab, 7, runs=3)
    async with lab.app(desk) as app:
        reader = app.service.reader
        expected = await counted(lab, reader)
        monkeypatch.setattr(counting, "PORTION", 10)
        tallies = RecordTallies()
        while tallies.through < number * 10:
            await tallies.count(reader, lab.clock.wall_ms(), SETTINGS, lab.journal)
        await lab.journal.commit(Post(f"{TALLIES}/0", str(number), body))
        for _ in range(2):
            assert plain(await counted(lab, reader, stores=True)) == plain(expected)
    assert len(await portions(lab)) == expected.through // 10 > number


@virtual
async def test_portions_older_than_the_past_of_the_rules_are_not_read(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(counting, "PORTION", 10)
    monkeypatch.setattr(counting, "BLOCK", 2)
    settings = MonitorSettings(recent_ms=HOUR_MS, past_ms=DAY_MS)
    await history(lab, 8, runs=9)
    async with lab.app(desk) as app:
        old = (await counted(lab, app.service.reader, stores=True)).whole // 20
    await asyncio.sleep(3 * DAY_MS / 1000)
    await history(lab, 9, runs=4, first=9)
    async with lab.app(desk) as app:
        reader, read, entries = app.service.reader, list[str](), lab.journal.entries

        def noted(stream: str, after: int = 0) -> Any:
            read.append(stream)
            return entries(stream, after)

        whole = await counted(lab, reader, settings, stores=True)
        monkeypatch.setattr(lab.journal, "entries", noted)
        restarted = await counted(lab, reader, settings)
    assert plain(restarted) == plain(whole)
    assert old > 3
    assert not {f"{TALLIES}/{block}" for block in range(old)} & {*read}
    assert f"{TALLIES}/{whole.whole // 20}" in read


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
    assert kept.shortened(first, fine) == kept


def observed(hour: int, number: int) -> Observation:
    return Observation("writes", f"{number % 2}", f"run-{number}", hour * HOUR_MS + number)


def numbers(tallies: AgentTallies, first: int, last: int) -> dict[str, dict[str, int]]:
    between = tallies.between(first, last)
    return {topic: {value: one.number for value, one in values.items()} for topic, values in between.items()}


@pytest.mark.deep
@virtual
async def test_what_is_acknowledged_is_shown_again_with_new_evidence(lab: Lab):
    async def ran(names: list[str]) -> None:
        await asyncio.gather(*(app.run(desk, name) for name in names), return_exceptions=True)
        await asyncio.sleep(8 * HOUR_MS / 1000)

    async def looked(minutes: int = 0) -> list[FindingRaised]:
        """The findings that are shown after another look, so many minutes later."""
        await asyncio.sleep(60 * minutes)
        assert await watch(app.service.reader, lab.journal, app.engine.outbox, lab.clock.wall_ms(), tuned, tallies)
        return await shown_findings(lab.journal)

    async def seen(until_ms: int = 0) -> None:
        one = Acknowledgement(found.id, found.newest_ms, "ann", "known", until_ms)
        await acknowledge(lab.journal, app.engine.outbox, one, lab.clock.wall_ms())

    tuned, tallies = MonitorSettings(chance=0.01), RecordTallies()
    async with lab.app(desk, recover=True, poll_ms=600_000) as app:
        reader = app.service.reader
        await ran([f"n{number}" for number in range(30)])
        await asyncio.sleep(DAY_MS / 1000)
        await ran([f"dear{number}" for number in range(5)])
        (found,) = (await present(reader, lab.clock.wall_ms(), tuned)).findings
        assert await shown_findings(lab.journal) == [], "a command records nothing"
        began = lab.clock.wall_ms()
        assert await looked() == [FindingRaised(found, began)]
        assert await looked(minutes=1) == [FindingRaised(found, began)]
        await seen(until_ms=began + HOUR_MS)
        assert await shown_findings(lab.journal) == []
        assert await looked(minutes=58) == []
        ended = await looked(minutes=1)
        assert [(one.id, one.since_ms) for one in ended] == [(found.id, began + HOUR_MS)]
        await seen()
        assert await looked(minutes=5) == []
        quiet = await present(reader, lab.clock.wall_ms(), tuned)
        assert (quiet.findings, quiet.acknowledged) == ([], 1)
        assert [one.id for one in (await with_acknowledged(reader, lab.clock.wall_ms(), tuned)).findings] == [found.id]
        await ran(["dear-again"])
        (again,) = (await present(reader, lab.clock.wall_ms(), tuned)).findings
        assert [one.finding for one in await looked()] == [again]
    assert (again.id, again.rule) == (found.id, "refusals")


@virtual
async def test_a_run_that_goes_on_is_read_once(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """However long it is; without what is kept, each count would read it from the start."""
    await history(lab, 8, runs=3)
    async with lab.app(desk) as app:
        reader, read = app.service.reader, list[str]()
        records_between = JournalReader.records_between

        def noted(self: JournalReader, run: str, after: int, last: int) -> Any:
            read.append(run)
            return records_between(self, run, after, last)

        monkeypatch.setattr(JournalReader, "records_between", noted)
        monkeypatch.setattr(counting, "AT_ONCE", 1)
        await counted(lab, reader)
        assert read == []
        monkeypatch.setattr(counting, "KEPT_RECORDS", 0)
        await counted(lab, reader)
        assert len(read) > 20


@virtual
async def test_a_look_that_counts_its_fill_is_followed_by_another(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    await history(lab, 9, runs=3)
    async with lab.app(desk) as app:
        reader, outbox, tallies = app.service.reader, app.engine.outbox, RecordTallies()
        total_read, judged_at = (await counted(lab, reader)).through, list[int]()

        def judged(_agents: object, now_ms: int, _settings: object) -> list[Any]:
            judged_at.append(now_ms)
            return []

        monkeypatch.setattr(passes, "judged", judged)
        monkeypatch.setattr(counting, "PORTION", total_read - 1)
        assert not await watch(reader, lab.journal, outbox, lab.clock.wall_ms(), SETTINGS, tallies)
        assert judged_at == [], "much is uncounted"
        assert await watch(reader, lab.journal, outbox, lab.clock.wall_ms(), SETTINGS, tallies)
        assert judged_at == [lab.clock.wall_ms()]


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
        expected = await counted(lab, reader)
        monkeypatch.setattr(counting, "AT_ONCE", 20)
        monkeypatch.setattr(counting, "PORTION", 50)
        monkeypatch.setattr(counting, "KEPT_RECORDS", 50 if case == "evicted" else 10_000)
        await RecordTallies().count(reader, now, SETTINGS, lab.journal)
        kept, turn = [RecordTallies(), RecordTallies()], 0
        while not await kept[turn % 2 if case == "by turns" else 0].count(reader, now, SETTINGS, lab.journal):
            turn += 1
        await kept[0].count(reader, now, SETTINGS, lab.journal)
        for one in begun:
            one.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
    assert turn > 5
    assert plain(kept[0]) == plain(expected)
