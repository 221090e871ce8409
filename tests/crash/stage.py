"""The driver's side: start workers, wait for their end, ask the witness, read the journal that they leave behind."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from beforehand.journal.port import Row
from beforehand.journal.record_codec import decode
from beforehand.journal.run_log import genesis, verify_chain
from beforehand.journal.sqlite.lock import FileLock
from beforehand.model.run_history import RunHistory

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30.0


def until(happened):
    """Look until it has happened. Raises `AssertionError` when that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "what the test waits for does not happen"


def _state(pid):
    """The letter by which the kernel calls what a process is doing."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@dataclass(frozen=True)
class Ended:
    """How one worker ended: its exit status (negative: the signal), and what it answered if it came to answer."""

    status: int | None
    answer: dict = field(default_factory=dict)
    log: str = ""

    @property
    def killed(self):
        return self.status == -signal.SIGKILL


class Zygote:
    """Forks workers that run one program, with the interpreter of any environment."""

    def __init__(self, module, python=sys.executable, **variables):
        program = [python, "-I", str(ROOT / "tests/crash/zygote.py"), str(ROOT), module]
        self._process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables}
        )

    def ask(self, **order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the zygote died"
        return json.loads(line)

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE_S)


class Witness:
    """The witness process, as the tests talk to it."""

    def __init__(self, log):
        program = [sys.executable, "-I", str(ROOT / "tests/crash/witness.py"), str(log)]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._process.stdout.readline())

    def ask(self, case, kind, **fields):
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            connection.sendall(json.dumps({"case": case, "kind": kind, **fields}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                return json.loads(lines.readline())

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE_S)


class Case:
    """One journal, one namespace at the witness, and the workers that live and die on them."""

    def __init__(self, name, folder, witness, zygote):
        self.name = name
        self.folder = folder
        self.journal = folder / "journal.db"
        self._witness = witness
        self._zygote = zygote
        self._jobs = {}
        self._alive = set()
        folder.mkdir(parents=True)

    def start(self, **job):
        """Start a worker; gives its process id."""
        number = len(self._jobs) + 1
        out = self.folder / f"out-{number}.json"
        places = {"journal": str(self.journal), "out": str(out), "log": str(self.folder / f"log-{number}.txt")}
        job = {"case": self.name, "port": self._witness.port, **places, **job}
        pid = self._zygote.ask(start=job)
        self._jobs[pid] = job
        self._alive.add(pid)
        return pid

    def wait(self, pid, seconds=PATIENCE_S):
        """Wait for a worker's end; one that does not end in time is killed, and its status is None."""
        status = self._zygote.ask(wait=pid, seconds=seconds)
        self._alive.discard(pid)
        job = self._jobs[pid]
        out, log = Path(job["out"]), Path(job["log"])
        answer = json.loads(out.read_text()) if out.exists() else {}
        return Ended(status, answer, log.read_text() if log.exists() else "")

    def work(self, **job):
        """Start a worker and wait for its end."""
        return self.wait(self.start(**job))

    def signal(self, pid, name):
        """Send a signal to a worker that was started here and not waited for yet."""
        assert pid in self._alive, pid
        os.kill(pid, signal.Signals[name])

    def pause(self, pid):
        """Stop a worker, and not in the middle of a commit: one that holds the file's lock stops everybody."""
        lock = FileLock(self.journal.with_name(self.journal.name + "-lock"))
        lock.open()
        try:
            while True:
                self.signal(pid, "SIGSTOP")
                until(lambda: _state(pid) == "T")
                if lock.try_take():
                    lock.release()
                    return
                self.signal(pid, "SIGCONT")
        finally:
            lock.close()

    def await_seal(self, pid):
        """Return once the worker has sealed its instance, which it says by a file."""
        sign, deadline = Path(self._jobs[pid]["out"]).with_suffix(".sealed"), time.monotonic() + PATIENCE_S
        while not sign.exists():
            assert time.monotonic() < deadline, "the worker did not seal its instance"
            os.sched_yield()

    def ask(self, kind, **fields):
        return self._witness.ask(self.name, kind, **fields)

    def world(self):
        return self.ask("history")

    def end(self):
        """Kill whatever a failed test left behind, stopped or not."""
        for pid in list(self._alive):
            self.wait(pid, seconds=0)

    def drop(self):
        """Forget the case: nothing of it is needed any more."""
        self.ask("forget")
        shutil.rmtree(self.folder)

    def stored(self):
        """What a reader finds in the file now."""
        return Stored.read(self.journal) if self._alive else Stored.read(self._copy())

    def _copy(self):
        """The file as the dead left it. The recovery is left to the workers: a reader must not do it for them."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for suffix in ("", "-wal", "-journal"):
            part = self.journal.with_name(self.journal.name + suffix)
            if part.exists():
                shutil.copy(part, copy / part.name)
        return copy / self.journal.name


@dataclass(frozen=True)
class Stored:
    """The records of a journal, by run."""

    namespace: str
    rows: dict[str, list[Row]]

    @classmethod
    def read(cls, path):
        if not path.exists():
            return cls("", {})
        connection = sqlite3.connect(path, timeout=PATIENCE_S)
        try:
            connection.execute("pragma query_only = on")
            if not connection.execute("select 1 from sqlite_master where name = 'record'").fetchall():
                return cls("", {})
            ((namespace,),) = connection.execute("select value from meta where name = 'namespace'")
            rows: dict[str, list[Row]] = {}
            found = connection.execute(
                "select run.name, seq, cast(body as blob), hash, record.token"
                " from record join run on run.id = record.run order by record.id"
            )
            for run, *columns in found:
                rows.setdefault(run, []).append(Row(*columns))
        finally:
            connection.close()
        return cls(namespace, rows)

    def records(self, run):
        return [decode(row.body) for row in self.rows.get(run, ())]

    def history(self, run):
        """The fold of one run. The chain must hold."""
        rows = self.rows.get(run, [])
        assert verify_chain(rows, genesis(self.namespace, run)) is None, f"the chain of {run} is broken"
        history = RunHistory(run)
        for record in self.records(run):
            history.add(record)
        return history


def session_fixtures(program):
    """The fixtures of a session (of a worker process of it, under xdist): a witness, and a zygote of this program."""

    @pytest.fixture(scope="session", name="witness")
    def running_witness(tmp_path_factory):
        running = Witness(tmp_path_factory.mktemp("witness") / "requests.jsonl")
        yield running
        running.close()

    @pytest.fixture(scope="session", name="zygote")
    def running_zygote():
        running = Zygote(program)
        yield running
        running.close()

    return running_witness, running_zygote
