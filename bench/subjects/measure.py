"""What every subject shares: the work unit, the stopwatch and the one line of JSON that it prints."""

import contextlib
import json
import resource
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

PAYLOAD_BYTES = 205
ARGUMENT_BYTES = len('{"index":123}')


def payload(index: int) -> dict[str, object]:
    """What one step returns; `PAYLOAD_BYTES` as compact JSON for an index of three digits."""
    return {
        "ok": True,
        "index": index,
        "tool": "look_up_order",
        "text": "One parcel was found for this customer; it left the depot on Tuesday morning by lorry.",
        "score": 0.8125,
        "tags": ["parcel", "due on Saturday"],
        "next": None,
    }


@dataclass(frozen=True)
class Mark:
    """A moment on three clocks, in seconds: the wall's, this process's processor time, its wait for a processor."""

    wall: float
    cpu: float
    queued: float

    @classmethod
    def now(cls) -> "Mark":
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.perf_counter(), used.ru_utime + used.ru_stime, queued_s())


def rates(steps: int, start: Mark, end: Mark) -> dict[str, float]:
    """The figures that every timed subject reports."""
    return {
        "steps": steps,
        "seconds": end.wall - start.wall,
        "steps_per_s": steps / (end.wall - start.wall),
        "cpu_us_per_step": (end.cpu - start.cpu) / steps * 1e6,
        "queued": (end.queued - start.queued) / (end.wall - start.wall),
    }


def queued_s() -> float:
    """How long the threads of this process were ready and had no processor; 0 where the system does not say."""
    waited = 0
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            waited += int(thread.read_text().split()[1])
    return waited / 1e9


def peak_mib() -> float:
    """The largest resident set of this process so far, MiB; 0 where the system does not say.

    Read from /proc: `ru_maxrss` also remembers the parent that forked us.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0.0
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def settled_size(path: Path) -> int:
    """The bytes of a closed SQLite database once its write-ahead log is folded back into the file."""
    connection = sqlite3.connect(path)
    try:
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    finally:
        connection.close()
    return sum(found.stat().st_size for found in path.parent.iterdir() if found.name.startswith(path.name))


def report(**figures: object) -> None:
    """Print the result as the last line of standard output, where the driver reads it."""
    print(json.dumps(figures), flush=True)
