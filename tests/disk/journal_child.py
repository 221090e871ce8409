"""A small journal workload for tests that watch or spoil its system calls.

    python journal_child.py JOURNAL COMMITS [MODE] [APPENDS]

Says on standard output what it knows: `acknowledged N` once append N returned, `refused TEXT` when one failed.
Every third record rides, and every fifth append changes the listing.
"""

from __future__ import annotations

import asyncio
import os
import sys

from beforehand.errors import BeforehandError
from beforehand.journal.port import ClaimRequest, LeaseGranted, NewRun, Post, RunChange, Worker
from beforehand.journal.run_log import RunLog, genesis
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts


def say(text: str) -> None:
    """One line by one system call, so that it also marks its place in a trace."""
    os.write(1, f"{text}\n".encode())


async def main(path: str, commits: str, mode: str = "auto", appends: str = "12") -> None:
    parts = Parts(commits="thread" if commits == "thread" else "loop")
    journal = SqliteJournal(path, mode="rollback" if mode == "rollback" else "auto", parts=parts)
    identity = await journal.open()
    say(f"open {identity.namespace}")
    number = 1
    for attempt in range(6):
        try:
            number = await work(journal, identity.namespace, f"w{attempt}", range(number, number + int(appends)))
        except BeforehandError as error:
            say(f"refused {type(error).__name__} {error}")
    await journal.close()
    say("closed")


async def work(journal: SqliteJournal, namespace: str, worker: str, numbers: range) -> int:
    """Go on with the run as a new worker, as one does after a refusal."""
    await journal.beat(Worker(worker), -1)
    claimed = await journal.commit(ClaimRequest("r", worker, NewRun("disk")))
    assert isinstance(claimed, LeaseGranted)
    log = RunLog(journal, claimed.lease, claimed.last, genesis(namespace, "r"))
    for number in numbers:
        if number % 3 == 0:
            log.ride([b'{"rode":%d}' % number])
        change = RunChange("running", f"step {number}") if number % 5 == 0 else None
        posts = (Post("claims", f"{worker}-{number}", b"1"),) if number % 4 == 0 else ()
        filling = b"x" * (20_000 if number % 7 == 0 else 100)
        await log.append([b'{"number":%d,"filling":"%s"}' % (number, filling)], change, posts)
        say(f"acknowledged {number}")
    await log.flush()
    return numbers.stop


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
