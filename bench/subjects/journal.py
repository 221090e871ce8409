"""The journal without the runtime: records of a plausible size, appended through the port by hand.

What lies between these figures and those of `ours.py` is the engine's own work.
"""

import argparse
import asyncio
import json
from pathlib import Path

from measure import Mark, payload, rates, report, settled_size

from beforehand.journal.port import ClaimRequest, Journal, LeaseGranted, NewRun, Worker
from beforehand.journal.run_log import RunLog, genesis
from beforehand.journal.sqlite.journal import SqliteJournal

WARM_UP_STEPS = 20
LEASE_MS = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--kind", choices=("plain", "riding"), default="plain")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    path = options.directory / "journal.db"
    rides = options.kind == "riding"
    figures = asyncio.run(rate(path, rides=rides, steps=options.steps, runs=options.runs))
    total = options.steps * options.runs
    report(**figures, bytes_per_step=settled_size(path) / total)


async def rate(path: Path, *, rides: bool, steps: int, runs: int) -> dict[str, float]:
    await work(path, rides=rides, steps=WARM_UP_STEPS, runs=1)
    start = Mark.now()
    await work(path, rides=rides, steps=steps, runs=runs)
    return rates(steps * runs, start, Mark.now())


async def work(path: Path, *, rides: bool, steps: int, runs: int) -> None:
    """From opening the journal until it is closed."""
    journal = SqliteJournal(path)
    identity = await journal.open()
    worker = Worker("bench-worker", pid=1)
    await journal.beat(worker, LEASE_MS)
    logs = [await claim(journal, identity.namespace, worker, f"run-{runs}-{steps}-{number}") for number in range(runs)]
    await asyncio.gather(*(make_steps(log, steps, rides=rides) for log in logs))
    await journal.close()


async def claim(journal: Journal, namespace: str, worker: Worker, run: str) -> RunLog:
    claimed = await journal.commit(ClaimRequest(run, worker.id, NewRun("bench")))
    assert isinstance(claimed, LeaseGranted)
    return RunLog(journal, claimed.lease, claimed.last, genesis(namespace, run))


async def make_steps(log: RunLog, steps: int, *, rides: bool) -> None:
    for index in range(steps):
        await log.append([encoded({"kind": "attempt", "step": index, "arguments": {"index": index}})])
        outcome = encoded({"kind": "outcome", "step": index, "result": payload(index)})
        if rides:
            log.ride([outcome])
        else:
            await log.append([outcome])
    await log.flush()


def encoded(record: dict[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


if __name__ == "__main__":
    main()
