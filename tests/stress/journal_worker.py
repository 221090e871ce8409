"""One process of the stress test: appends, rides, posts and claims on a shared file, and says what was acknowledged.

    python journal_worker.py JOURNAL NAME RUNS APPENDS MODE

Each line on standard output is a fact that the journal must keep: `run number`, written once it is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys

from beforehand.journal import host
from beforehand.journal.port import ClaimRequest, LeaseGranted, NewRun, Post
from beforehand.journal.run_log import RunLog, genesis
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts


async def main(path: str, name: str, runs: int, appends: int, commits: str) -> None:
    journal = SqliteJournal(path, parts=Parts(commits="thread" if commits == "thread" else "loop"))
    identity = await journal.open()
    await journal.beat(host.this_process(name), 3_600_000)

    async def work(run: str) -> None:
        claimed = await journal.commit(ClaimRequest(run, name, NewRun("stress")))
        assert isinstance(claimed, LeaseGranted)
        log = RunLog(journal, claimed.lease, claimed.last, genesis(identity.namespace, run))
        filling = "x" * 300
        for number in range(appends):
            await log.append([b'{"number":%d,"filling":"%s"}' % (number, filling.encode())])
            os.write(1, f"{run} {number}\n".encode())
            if number % 5 == 0:
                log.ride([b'{"rode":%d}' % number])
            if number % 7 == 0:
                entry = await journal.commit(Post("claims", f"k{number}", f'"{run}"'.encode()))
                os.write(1, f"claim {entry.key} {entry.body.decode()}\n".encode())
        await log.flush()

    await asyncio.gather(*(work(f"{name}-{number}") for number in range(runs)))
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
