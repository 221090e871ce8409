"""Print what holds on this system of what Beforehand relies on. To be run once on a system that no test covers.

    python scripts/platform_check.py

It needs an environment with `packages/beforehand`, with its extra `demo` for the last check, and a minute. It works in
a temporary directory and sends nothing to other machines. The exit status is 1 where something does not hold.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from beforehand.journal import host, macos
from beforehand.journal.port import Fate, Worker
from beforehand.journal.sqlite.lock import FileLock
from beforehand.journal.sqlite.opening import FileSettings, open_files

PATIENCE_S: Final = 60
DEATHS: Final = 3
WORDS: Final = {True: "holds", False: "FAILS", None: "unproven"}
SYNCS: Final = 20
PROMPT_S: Final = 10
"""A takeover within this time did not wait for a lease, which takes 15 seconds by default."""

A_WORKER: Final = """
import msgspec, sys
from beforehand.journal import host
print(msgspec.json.encode(host.this_process("child")).decode(), host.uptime_ms(), flush=True)
sys.stdin.read()
"""
A_HOLDER: Final = """
import sys
from pathlib import Path
from beforehand.journal.sqlite.lock import FileLock
lock = FileLock(Path("lock"))
lock.open()
print(lock.try_take(), flush=True)
sys.stdin.read()
"""
A_DESK: Final = """
import os, signal
from pathlib import Path
from beforehand import Beforehand, Key, Run, agent, current_operation, tool

@tool(idempotency=Key.forever())
def pay(number: int) -> str:
    with open("service.txt", "a") as service:
        service.write(f"{number} {current_operation().key}\\n")
    if not Path(f"died-{number}").exists():
        Path(f"died-{number}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

@agent(run_id="desk-{payments}")
async def desk(run: Run, payments: int) -> int:
    for number in range(payments):
        await pay(number)
    return payments

with Beforehand("runs.db", agents=[desk]) as app:
    app.run(desk, PAYMENTS)
"""


class Finding(NamedTuple):
    """What was found. `holds` is None where the system gives no answer, so that the time bound stands in for it."""

    name: str
    holds: bool | None
    detail: str


def main() -> int:
    """Make all checks and print each result as it comes; 1 where something does not hold."""
    print(f"{platform.platform()}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}")
    checks: list[Callable[[Path], Iterator[Finding]]] = [names, deaths, locks, syncs, kills]
    checks += [] if "--without-demo" in sys.argv[1:] else [demo]
    seen = set[bool | None]()
    for check in checks:
        with tempfile.TemporaryDirectory() as directory:
            for name, holds, detail in made(check, Path(directory)):
                seen.add(holds)
                print(f"{WORDS[holds]:<9} {name}: {detail}", flush=True)
    if False in seen:
        print("Something that Beforehand relies on does not hold here.")
    elif None in seen:
        print("Nothing fails. What is unproven costs time: takeovers wait for leases, and calls count as over later.")
    else:
        print("All that was checked holds.")
    return int(False in seen)


def made(check: Callable[[Path], Iterator[Finding]], place: Path) -> Iterator[Finding]:
    """The findings of a check. One that ends in an error is a finding as well, and the others are still made."""
    try:
        yield from check(place)
    except Exception as error:  # noqa: BLE001 - a report that ends in the middle tells less
        yield Finding(check.__name__, False, f"{type(error).__name__}: {error}")


def names(_place: Path) -> Iterator[Finding]:
    """The names of machine and boot."""
    named = bool(host.machine_id())
    yield Finding("machine", named or None, "has a name that stays" if named else "has no name")
    known = host.boot_is_known(host.boot_id())
    yield Finding("boot", known or None, "has a name of its own" if known else "no name: deaths cannot be proven")


def deaths(place: Path) -> Iterator[Finding]:
    """The fate of a process, as another one sees it; and the clock that both read."""
    before = host.uptime_ms()
    with child(A_WORKER, place) as (process, line):
        described, _, uptime = line.rpartition(" ")
        worker = msgspec.json.decode(described, type=Worker)
        yield Finding("clock", before <= int(uptime) <= host.uptime_ms(), "two processes read the same uptime")
        yield fate_is("alive", worker, "a process that waits")
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        yield fate_is("alive", worker, "a stopped process")
        yield fate_is("dead", msgspec.structs.replace(worker, started=worker.started - 1), "a number given away")
        process.kill()
        end = time.monotonic() + PROMPT_S
        while host.fate(worker) == "alive" and time.monotonic() < end:
            time.sleep(0.01)
        yield fate_is("dead", worker, "a killed process, not reaped yet")
        process.wait()
        yield fate_is("dead", worker, "a killed process")


def fate_is(expected: Fate, worker: Worker, what: str) -> Finding:
    """The finding about one process. An unknown fate is never wrong: it means that the time bound counts."""
    found = host.fate(worker)
    return Finding("proof of death", None if found == "unknown" else found == expected, f"{what} is {found}")


def locks(place: Path) -> Iterator[Finding]:
    """The lock of a journal excludes another process, and ends with its holder."""
    lock = FileLock(place / "lock")
    lock.open()
    with child(A_HOLDER, place) as (process, line):
        yield Finding("lock", line == "True\n" and not lock.try_take(), "excludes a second process")
        process.kill()
        process.wait()
        yield Finding("lock", lock.take(PROMPT_S), "is free once its holder was killed")
    lock.close()


def syncs(place: Path) -> Iterator[Finding]:
    """Syncs that reach the disk: those of SQLite, and ours of a file and of a directory."""
    files = open_files(FileSettings(place / "journal.db", place / "journal.db.anchor"))
    for name in ("fullfsync", "checkpoint_fullfsync"):
        ((found,),) = files.writer.rows(f"pragma {name}")
        yield Finding(f"pragma {name}", found == 1, f"is {found!r} on the connection that writes")
    files.reader.close()
    files.writer.close()
    for path, what in ((place / "journal.db", "a file"), (place, "a directory")):
        descriptor = os.open(path, os.O_RDONLY)
        wanted = sys.platform == "darwin"
        full = macos.full_sync(descriptor)
        started = time.perf_counter()
        for _ in range(SYNCS):
            host.sync(descriptor)
        spent_ms = (time.perf_counter() - started) * 1000 / SYNCS
        os.close(descriptor)
        way = "F_FULLFSYNC" if full else "fsync"
        yield Finding("sync", full or not wanted, f"{what} by {way}, {spent_ms:.2f} ms each")


def kills(place: Path) -> Iterator[Finding]:
    """A process that is killed between the intent of a call and its outcome, and what its successors make of it."""
    program = A_DESK.replace("PAYMENTS", str(DEATHS))
    killed, slowest, end = 0, 0.0, time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        started = time.monotonic()
        ended = subprocess.run([sys.executable, "-c", program], cwd=place, capture_output=True, text=True, check=False)
        slowest = max(slowest, time.monotonic() - started)
        if ended.returncode != -signal.SIGKILL:
            break
        killed += 1
    else:
        ended = subprocess.CompletedProcess([], 1, "", "it did not end")
    yield Finding("kill -9", killed == DEATHS, f"{killed} processes died between intent and outcome")
    said = ended.stderr.strip().splitlines()[-1:] or ["completed"]
    yield Finding("recovery", ended.returncode == 0, said[0])
    sent = (place / "service.txt").read_text().splitlines()
    again = sorted(sent) == sorted(sorted(set(sent)) * 2) and len(set(sent)) == DEATHS
    yield Finding("recovery", again, f"{len(sent)} requests of {len(set(sent))} payments, each repeated under its key")
    how = "without waiting for a lease" if slowest < PROMPT_S else "after a lease"
    yield Finding("takeover", slowest < PROMPT_S or None, f"{how}, in {slowest:.1f} s at most")


def demo(place: Path) -> Iterator[Finding]:
    """The demo of the command line: a desk under faults and kills, counted at the services."""
    command = [sys.executable, "-m", "beforehand", "demo", "--seed", "7", "--no-ask"]
    ended = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    said = [line for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
    missing = "which is not installed" in ended.stderr
    detail = "no effect twice, lost or misreported" if not ended.returncode else " ".join(said[-3:])
    yield Finding("demo", None if missing else not ended.returncode, detail)


@contextlib.contextmanager
def child(code: str, place: Path) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A process that runs `code` until its input ends, and the first line that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
