"""RunLog: numbering, chaining, and what it does after each kind of refusal."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from msgspec.structs import replace

from beforehand.errors import JournalUnavailable, LeaseLost, LedgerTaken, RecordRefused
from beforehand.journal.backend_rules import MAX_BODY
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import ClaimRequest, Post, Row
from beforehand.journal.run_log import genesis, verify_chain
from tests.unit.journal.journal_helpers import body, error_of, start_log, stored


def memory() -> MemoryJournal:
    clock = itertools.count()
    return MemoryJournal(lambda: next(clock))


def test_chains_of_other_namespaces_and_runs_start_elsewhere() -> None:
    starts = {genesis(namespace, run) for namespace in ("a", "b") for run in ("r", "s", "")}
    assert len(starts) == 6
    assert genesis("a", "b") != genesis("ab", "")


def test_a_chain_shows_the_first_change() -> None:
    async def main() -> list[Row]:
        journal = memory()
        await journal.open()
        log = await start_log(journal)
        await log.append([body(number) for number in range(5)])
        return await journal.read("r")

    rows = asyncio.run(main())
    start = genesis("n", "r")
    assert verify_chain(rows, start) is None
    assert verify_chain(rows[2:], rows[1].hash, first=3) is None
    assert verify_chain(rows[:2] + rows[3:], start) == 3
    assert verify_chain([rows[1], rows[0], *rows[2:]], start) == 1
    assert verify_chain([*rows[:3], replace(rows[3], body=body(9)), rows[4]], start) == 4
    assert verify_chain([*rows[:3], replace(rows[3], hash=b"0" * 32), rows[4]], start) == 4
    assert verify_chain(rows, genesis("n", "other")) == 1


def test_a_refusal_leaves_the_log_where_it_was() -> None:
    async def main() -> None:
        journal = memory()
        await journal.open()
        await journal.commit(Post("s", "taken", b"1"))
        log = await start_log(journal)
        place = (log.seq, log.head)
        assert isinstance(await error_of(log.append([body(1)], posts=(Post("s", "taken", b"2"),))), LedgerTaken)
        assert isinstance(await error_of(log.append([b"x" * (MAX_BODY + 1)])), RecordRefused)
        assert (log.seq, log.head) == place
        await log.append([body(1)])
        assert verify_chain(await journal.read("r"), genesis("n", "r")) is None

    asyncio.run(main())


@pytest.mark.parametrize("stored_anyway", [False, True])
def test_an_unavailable_journal_breaks_the_log_until_the_next_claim(stored_anyway: bool) -> None:
    async def main() -> None:
        journal = memory()
        await journal.open()
        log = await start_log(journal)
        await log.append([body(1)])
        journal.fail_next(1, stored=stored_anyway)
        assert isinstance(await error_of(log.append([body(2)])), JournalUnavailable)
        log.ride([body(3)])
        for call in (log.append([body(3)]), log.flush()):
            assert isinstance(await error_of(call), JournalUnavailable)
        assert await stored(journal) == [body(1), body(2)][: 1 + stored_anyway]
        journal.kill("w")
        again = await start_log(journal, worker="v")
        await again.append([body(4)])
        assert verify_chain(await journal.read("r"), genesis("n", "r")) is None

    asyncio.run(main())


def test_a_lost_lease_is_heard_again_and_again() -> None:
    async def main() -> None:
        journal = memory()
        await journal.open()
        log = await start_log(journal)
        journal.kill("w")
        await journal.commit(ClaimRequest("r", "v"))
        log.ride([body(1)])
        assert isinstance(await error_of(log.flush()), LeaseLost)
        assert isinstance(await error_of(log.append([body(1)])), LeaseLost)
        assert isinstance(await error_of(log.append([body(1)], posts=(Post("s", "", b"1"),))), LeaseLost)

    asyncio.run(main())


def test_a_cancelled_caller_of_a_refusable_append_does_not_let_others_in_early() -> None:
    async def main() -> None:
        journal = memory()
        await journal.open()
        await journal.commit(Post("s", "taken", b"1"))
        log = await start_log(journal)
        for key, kept in (("taken", []), ("free", [body(1)])):
            caller = asyncio.ensure_future(log.append([body(1)], posts=(Post("s", key, b"2"),)))
            await asyncio.sleep(0)
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
            log.ride([body(2)])
            await log.flush()
            assert (await stored(journal))[-1 - len(kept) :] == [*kept, body(2)]
        assert verify_chain(await journal.read("r"), genesis("n", "r")) is None

    asyncio.run(main())


def test_the_next_rows_take_the_place_of_refused_ones() -> None:
    async def main() -> None:
        journal = memory()
        await journal.open()
        log = await start_log(journal)
        journal.fail_next(1, RecordRefused("planned"))
        first, second = await asyncio.gather(log.append([body(1)]), log.append([body(2)]), return_exceptions=True)
        assert isinstance(first, RecordRefused)
        assert not isinstance(second, Exception)
        assert await stored(journal) == [body(2)]
        assert verify_chain(await journal.read("r"), genesis("n", "r")) is None

    asyncio.run(main())
