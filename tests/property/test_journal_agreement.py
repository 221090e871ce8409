"""Memory and SQLite answer every sequence of calls alike, and every chain holds or shows where it was broken."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from beforehand.errors import BeforehandError
from beforehand.journal.cells import read_hint
from beforehand.journal.host import HostFacts
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import (
    ClaimRequest,
    HintRequest,
    Journal,
    Lease,
    LeaseGranted,
    Post,
    Row,
    RunChange,
    RunStatus,
    Worker,
)
from beforehand.journal.run_log import RunLog, beginning, genesis, verify_chain
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts

IN_MEMORY = Path("/dev/shm")
RUNS = st.sampled_from(["r1", "r2"])
WORKERS = st.sampled_from(["w1", "w2", "w3"])
KEYS = st.sampled_from(["", "k1", "k2"])
STATUSES: st.SearchStrategy[RunStatus] = st.sampled_from(["running", "suspended", "completed", "stopped"])
BODIES = st.sampled_from([b'{"n":1}', b'"' + b"x" * 9000 + b'"', b'{"payload":"' + b"a" * 64 + b'"}'])
CALLS = st.one_of(
    st.tuples(st.just("beat"), WORKERS, st.sampled_from([-5, 50, 1000])),
    st.tuples(st.just("claim"), WORKERS, RUNS, st.sampled_from(["desk", None])),
    st.tuples(st.just("append"), RUNS, st.lists(BODIES, max_size=3)),
    st.tuples(st.just("change"), RUNS, BODIES, STATUSES, st.sampled_from([None, 5]), st.booleans()),
    st.tuples(st.just("append with post"), RUNS, BODIES, KEYS),
    st.tuples(st.just("ride"), RUNS, BODIES),
    st.tuples(st.just("flush"), RUNS),
    st.tuples(st.just("post"), KEYS),
    st.tuples(st.just("put_hint"), st.sampled_from([None, b"1"]), st.sampled_from([b"1", b"2"])),
    st.tuples(st.just("pass"), st.integers(1, 100)),
)

BEGINNING: list[tuple[object, ...]] = [
    ("beat", "w1", 1000),
    ("beat", "w2", 50),
    ("claim", "w1", "r1", "desk"),
    ("claim", "w2", "r2", "desk"),
]


@dataclass
class Player:
    """Plays calls on one journal and notes every answer. A claim replaces the run's log."""

    journal: Journal
    clock: list[int]
    logs: dict[str, list[RunLog]] = field(default_factory=dict[str, "list[RunLog]"])

    async def play(self, call: tuple[object, ...]) -> object:
        try:
            return await self._play(call)
        except BeforehandError as error:
            return type(error).__name__

    async def _play(self, call: tuple[object, ...]) -> object:
        journal = self.journal
        match call:
            case ("beat", str(worker), int(lease)):
                await journal.beat(Worker(worker, machine="m"), lease)
            case ("claim", str(worker), str(run), agent):
                new = beginning("n", run, agent, [b"1"]) if isinstance(agent, str) else None
                claimed = await journal.commit(ClaimRequest(run, worker, new))
                if isinstance(claimed, LeaseGranted):
                    log = RunLog(journal, claimed.lease, claimed.last, genesis("n", run))
                    self.logs.setdefault(run, []).insert(0, log)
                return claimed
            case ("post", str(key)):
                return await journal.commit(Post("s", key, b'"outside"'))
            case ("put_hint", previous, bytes(body)):
                return await journal.commit(HintRequest("h", body, previous if isinstance(previous, bytes) else None))
            case ("pass", int(time)):
                self.clock[0] += time
            case (str(verb), str(run), *rest):
                # The last owner goes first; the one before it, fenced out, tries the same afterwards.
                return [await self._drive(log, verb, rest) for log in self.logs.get(run, [])[:2]]
        return None

    async def _drive(self, log: RunLog, verb: str, rest: list[object]) -> object:
        try:
            match (verb, *rest):
                case ("append", list(bodies)):
                    return await log.append([body for body in bodies if isinstance(body, bytes)])
                case ("change", bytes(body), status, due, bool(release)):
                    change = RunChange(status, "why", due, b'["x"]', release)  # type: ignore[arg-type]  # drawn from the right ones
                    return await log.append([body], change)
                case ("append with post", bytes(body), str(key)):
                    return await log.append([body], posts=(Post("s", key, b'"inside"'),))
                case ("ride", bytes(body)):
                    log.ride([body])
                    await log.flush()
                case ("flush",):
                    await log.flush()
        except BeforehandError as error:
            return type(error).__name__
        return None

    async def everything(self) -> object:
        journal = self.journal
        lines = [await journal.runs(), await journal.runs(wakeable=True), await journal.due([("desk", "")], 5)]
        rows = {line.run: await journal.read(line.run) for line in lines[0]}
        for run, found in rows.items():
            assert verify_chain(found, genesis("n", run)) is None
        fates = [await journal.fate(worker) for worker in ("w1", "w2", "w3", "nobody")]
        return lines, rows, fates, await journal.entries("s"), await read_hint(journal, "h")


@settings(max_examples=100)
@given(st.lists(CALLS, min_size=5, max_size=40))
def test_memory_and_sqlite_agree(calls: list[tuple[object, ...]]) -> None:
    async def main(place: str) -> None:
        clock = [0]
        memory = MemoryJournal(lambda: clock[0])
        here = HostFacts("m", "b", lambda: clock[0], lambda: clock[0], lambda _: "alive")
        sqlite = SqliteJournal(Path(place) / "journal.db", parts=Parts(here=here, commits="loop"))
        await memory.open()
        await sqlite.open()
        players = (Player(memory, clock), Player(sqlite, [0]))
        try:
            for call in [*BEGINNING, *calls]:
                answers = [await player.play(call) for player in players]
                assert answers[0] == answers[1], call
            assert await players[0].everything() == await players[1].everything()
        finally:
            await sqlite.close()

    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as place:
        asyncio.run(main(place))


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=8), st.data())
def test_any_change_of_a_chain_shows(bodies: list[bytes], data: st.DataObject) -> None:
    start = genesis("n", "r")
    log = RunLog(MemoryJournal(lambda: 0), Lease("r", 1, 1, "w"), None, start)
    rows = list(log.rows(bodies))
    place = data.draw(st.integers(0, len(rows) - 1))
    assert verify_chain(rows, start) is None
    change = data.draw(st.sampled_from(["body", "hash", "drop", "twice", "swap"]))
    broken = _changed(rows, place, change)
    if broken is not None:
        assert verify_chain(broken, start) == place + 1


def _changed(rows: list[Row], place: int, change: str) -> list[Row] | None:
    before, row, after = rows[:place], rows[place], rows[place + 1 :]
    if change == "body":
        return [*before, replace(row, body=row.body + b"x"), *after]
    if change == "hash":
        return [*before, replace(row, hash=bytes(32)), *after]
    if change == "twice":
        return [*before, replace(row, seq=row.seq + 1), *after]
    if not after:
        return None  # that the end is missing, a chain cannot show; its head is kept elsewhere
    return [*before, *after] if change == "drop" else [*before, after[0], row, *after[1:]]
