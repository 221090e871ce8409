"""One read of the ledger wakes everything that waits in a process, and loses nothing between a read and a wait."""

import asyncio

from beforehand.engine.suspension import LedgerWatch
from beforehand.journal.port import Post
from tests.unit.engine.lab import Lab, virtual


def waiter() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@virtual
async def test_an_entry_wakes_those_that_watch_its_stream_and_no_others(lab: Lab):
    journal = lab.journal
    await journal.open()
    await journal.commit(Post("paid", "", b"0"))
    ledger = LedgerWatch(journal, set().__contains__)
    await ledger.begin()
    with ledger.over("paid") as one, ledger.over("paid") as two, ledger.over("sent") as other:
        waits = [waiter() for _ in range(3)]
        for watch, wait in zip((one, two, other), waits, strict=True):
            assert watch.begin_read()
            watch.wake_at_news(wait)
        assert await ledger.look() == set(), "what was there at the start is not new"
        await journal.commit(Post("paid", "", b"1"))
        assert await ledger.look() == {"paid"}
        assert [wait.done() for wait in waits] == [True, True, False]
        assert [watch.begin_read() for watch in (one, two, other)] == [True, True, False]


@virtual
async def test_an_entry_between_a_read_and_its_wait_is_not_missed(lab: Lab):
    journal = lab.journal
    await journal.open()
    ledger = LedgerWatch(journal, set().__contains__)
    await ledger.begin()
    with ledger.over("paid") as watch:
        assert watch.begin_read()
        await journal.entries("paid")
        await journal.commit(Post("paid", "", b"1"))
        await ledger.look()
        wait = waiter()
        watch.wake_at_news(wait)
        assert wait.done()
        assert watch.begin_read()
