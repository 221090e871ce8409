"""A worker of the soak: keeps so many runs alive until it is killed or asked to stop; a witness receives every effect.

With `--weigh` it reports what it keeps in memory. With `--audit` it starts none, drives what is left until nothing goes
on, and reports how every run stands.
"""

import argparse
import asyncio
import contextlib
import ctypes
import gc
import itertools
import json
import os
import resource
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.engine.settings import Settings
from beforehand.policies import Retry

KEYED: Final = 6
PLAIN: Final = 1
PAUSE: Final = timedelta(seconds=2)
SETTINGS: Final = Settings(recover_every_ms=1_000, grace_ms=2_000)
BEAT_S: Final = 1.0
WEIGHED_EVERY: Final = 10
"""In how many beats memory is weighed once: a full collection takes some of the worker's time."""
QUIET_LOOKS: Final = 3
AGAIN: Final = Retry(attempts=6, base=timedelta(milliseconds=5), cap=timedelta(milliseconds=50))


class Line:
    """The connection to the witness: many calls at once, each with the answer to its number."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, path: Path) -> None:
        reader, self._writer = await asyncio.open_unix_connection(str(path))
        self._reading = asyncio.create_task(self._read(reader))

    async def send(self, **what: object) -> None:
        """Return when the witness has counted it."""
        assert self._writer is not None
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps({"number": number, "pid": os.getpid(), **what}).encode() + b"\n")
        await answer

    async def close(self) -> None:
        assert self._writer is not None
        assert self._reading is not None
        self._reading.cancel()
        self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while answer := await reader.readline():
            self._answers.pop(int(answer)).set_result(None)


line = Line()


@tool(idempotency=Key(ttl=timedelta(days=1)), retry=AGAIN)
async def keyed(step: int) -> int:
    operation = current_operation()
    await line.send(effect="keyed", run=operation.run, key=operation.key)
    return step


@tool
async def plain(step: int) -> int:
    operation = current_operation()
    await line.send(effect="plain", run=operation.run, key=f"{operation.run}/{step}")
    return step


@agent(run_id="{name}")
async def soaked(run: Run, name: str) -> str:
    for step in range(KEYED):
        await keyed(step)
        await run.sleep(PAUSE)
    for step in range(PLAIN):
        await plain(step)
    return name


class Heap(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library: what is in use outside the arenas that Python has for small objects."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    )]  # fmt: skip


def weighed() -> dict[str, float]:
    """What this process keeps after a collection, and what remains resident once the heap is trimmed."""
    gc.collect()
    kept: dict[str, float] = {"blocks": sys.getallocatedblocks(), "objects": len(gc.get_objects())}
    library = ctypes.CDLL(None)
    if hasattr(library, "mallinfo2"):
        library.mallinfo2.restype = Heap
        library.malloc_trim(0)
        heap: Heap = library.mallinfo2()
        kept["heap_kib"] = (heap.uordblks + heap.hblkhd) / 1024
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {**kept, "resident_kib": pages * resource.getpagesize() / 1024}


async def work(directory: Path, runs: int, *, weigh: bool) -> None:
    """Keep so many runs alive until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    names, beats = itertools.count(), itertools.count()
    async with Beforehand(directory / "soak.db", agents=[soaked], settings=SETTINGS) as desk:
        active = desk.engine.active_runs
        while not stop.is_set():
            for _ in range(min(runs - len(active), runs // 4 + 1)):  # not all at the same moment
                desk.start(soaked, f"soak-{os.getpid()}-{next(names)}")
            await line.send(live=len(active))
            if weigh and next(beats) % WEIGHED_EVERY == 0:
                await line.send(weighed={"live": len(active), **weighed()})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), BEAT_S)


async def audit(directory: Path) -> dict[str, Any]:
    """Drive what is left until nothing goes on, and tell how every run stands."""
    async with Beforehand(directory / "soak.db", agents=[soaked], settings=SETTINGS) as desk:
        journal, quiet = desk.engine.journal, 0
        while quiet < QUIET_LOOKS:
            await asyncio.sleep(BEAT_S)
            going = await journal.runs(status="running", limit=1) or await journal.runs(wakeable=True, limit=1)
            quiet = 0 if going or desk.engine.active_runs else quiet + 1
        found: dict[str, str] = {}
        after = ""
        while rows := await journal.runs(after=after):
            found |= {row.run: row.status for row in rows}
            after = rows[-1].run
    return {"keyed": KEYED, "plain": PLAIN, "runs": found}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--weigh", action="store_true")
    parser.add_argument("--audit", action="store_true")
    options = parser.parse_args()
    await line.open(options.directory / "witness")
    if options.audit:
        print(json.dumps(await audit(options.directory)))
    else:
        await work(options.directory, options.runs, weigh=options.weigh)
    await line.close()


if __name__ == "__main__":
    asyncio.run(main())
