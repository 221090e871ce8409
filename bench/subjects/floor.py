"""A step with the runtime's precautions and no runtime; `--bare` without the precautions too: the least it can be.

A call is a task of its own, for it may outlive its attempt; its two records are encoded, chained by SHA-256, and
inserted under a file lock by a statement that checks the fencing token; arguments have a keyed digest, a result makes
the trip through JSON. There is no state machine, no decision, no retry, no replay, no error. What lies between
these figures and those of `ours.py` is what the rest costs.

`--bare` keeps what no runtime can leave out: two records of the step, each encoded and inserted, the first durable
before the tool is awaited, and the result decoded for the caller. It awaits the tool in the agent's own task, takes no
lock, asks no file whether it still exists, checks no token, and chains nothing.
"""

import argparse
import asyncio
import contextvars
import fcntl
import hashlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec
from measure import Mark, payload, rates, report

from beforehand.model.records import AttemptStarted, End, Intent, OperationSettled, Raw

SCHEMA = """
create table run (id integer primary key, token integer);
create table record (
    run integer, seq integer, token integer, body text, hash blob, primary key (run, seq)
) without rowid;
insert into run values (1, 1);
"""
ROW = "(?,?,?,?,?)"
INSERT = {
    count: "insert into record select column1, column2, column3, cast(column4 as text), column5"
    f" from (values {','.join([ROW] * count)}) where (select token from run where id = column1) = column3"
    for count in (1, 2)
}
BARE = {count: f"insert into record values {','.join([ROW] * count)}" for count in (1, 2)}
WARM_UP_STEPS = 20
SECRET = os.urandom(32)
OPERATION: contextvars.ContextVar[str] = contextvars.ContextVar("OPERATION")
encode = msgspec.json.Encoder().encode
canonical = msgspec.json.Encoder(order="deterministic").encode
decode = msgspec.json.Decoder(dict[str, Any]).decode


class Log:
    """The records of one run, and the one connection that commits them."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = full")
        self._connection.executescript(SCHEMA)
        self._lock = os.open(f"{path}-lock", os.O_CREAT | os.O_RDWR)
        self._files = [os.open(name, os.O_RDONLY) for name in (str(path), f"{path}-wal")]
        self._values: list[Any] = []
        self._seq, self._head = 0, bytes(32)

    def ride(self, record: AttemptStarted | OperationSettled) -> None:
        """Chain a record; it goes with the next commit."""
        body = encode(record)
        self._seq += 1
        self._head = hashlib.sha256(self._head + body).digest()
        self._values += (1, self._seq, 1, body, self._head)

    def put(self, record: AttemptStarted | OperationSettled) -> None:
        """Keep a record for the next insert, unchained."""
        self._seq += 1
        self._values += (1, self._seq, 1, encode(record), None)

    def insert(self) -> None:
        """Make durable what was put, on nothing but the connection's word."""
        values, self._values = self._values, []
        self._connection.execute(BARE[len(values) // 5], values)

    def close(self) -> None:
        """Commit what rides, and fold the write-ahead log back."""
        if self._values:
            self.insert()
        self._connection.close()

    def commit(self) -> None:
        """Make durable what was chained, unless another owner has a newer token or a file is gone."""
        values, self._values = self._values, []
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        stored = self._connection.execute(INSERT[len(values) // 5], values).rowcount
        gone = not all(os.fstat(file).st_nlink for file in self._files)
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        if gone or stored * 5 != len(values):
            raise SystemExit("a record was not stored")


async def plain(index: int) -> dict[str, object]:
    """The tool."""
    return payload(index)


async def ringing(over: asyncio.Future[None], arguments: dict[str, int]) -> dict[str, object]:
    """The call, which tells its caller when it is over."""
    try:
        return await plain(**arguments)
    finally:
        over.set_result(None)


async def called(step: str, arguments: dict[str, int]) -> dict[str, object]:
    """What the tool returns, called in a task and a context of its own."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    context = contextvars.copy_context()
    context.run(OPERATION.set, step)
    task = loop.create_task(ringing(over, arguments), context=context)
    await over
    return task.result()


async def make_step(log: Log, index: int, *, rides: bool) -> dict[str, Any]:
    """An attempt that is durable before the call, and its outcome."""
    step, arguments = f"plain#{index}", {"index": index}
    stored = canonical(arguments)
    digest = hashlib.blake2b(stored, key=SECRET, digest_size=16).hexdigest()
    intent = Intent(tool="plain", arguments=Raw(stored), digest=digest, contract="floor")
    log.ride(AttemptStarted(step=step, number=1, token=1, intent=intent, **moment()))
    log.commit()
    result = encode(await called(step, arguments))
    log.ride(OperationSettled(step=step, result=Raw(result), number=1, end=End("returned"), **moment()))
    if not rides:
        log.commit()
    return decode(result)


async def make_bare_step(log: Log, index: int, *, rides: bool) -> dict[str, Any]:
    """The two records and the call."""
    step, arguments = f"plain#{index}", {"index": index}
    intent = Intent(tool="plain", arguments=Raw(encode(arguments)), digest="", contract="floor")
    log.put(AttemptStarted(step=step, number=1, token=1, intent=intent, **moment()))
    log.insert()
    result = encode(await plain(**arguments))
    log.put(OperationSettled(step=step, result=Raw(result), number=1, end=End("returned"), **moment()))
    if not rides:
        log.insert()
    return decode(result)


def moment() -> dict[str, int]:
    """Both clocks of a record."""
    return {"at": time.time_ns() // 1_000_000, "up": time.monotonic_ns() // 1_000_000}


async def rate(path: Path, steps: int, *, rides: bool, bare: bool) -> dict[str, float]:
    """Steps a second, one after the other, until the file is closed."""
    make = make_bare_step if bare else make_step
    log = Log(path)
    for index in range(WARM_UP_STEPS):
        await make(log, index, rides=rides)
    start = Mark.now()
    for index in range(steps):
        await make(log, index, rides=rides)
    log.close()
    return rates(steps, start, Mark.now())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--kind", choices=("plain", "riding"), default="plain")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--bare", action="store_true")
    options = parser.parse_args()
    path = options.directory / "floor.db"
    figures = asyncio.run(rate(path, options.steps, rides=options.kind == "riding", bare=options.bare))
    report(**figures)


if __name__ == "__main__":
    main()
