"""One run's end of the journal: numbers and chains its records, and writes them under its lease.

The chain of a run starts at `genesis(namespace, run)`, which does not depend on the incarnation:
a journal that was confirmed after a copy keeps chains that verify.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from beforehand.errors import (
    BeforehandError,
    BudgetSpent,
    JournalUnavailable,
    LeaseLost,
    LedgerTaken,
    LimitsChanged,
    RecordRefused,
    SendingPaused,
)
from beforehand.journal.port import Journal, Lease, NewRun, Post, Row, RunChange, Write

if TYPE_CHECKING:
    from beforehand.model.shared_use import Charge

_REFUSALS: Final = (BudgetSpent, LedgerTaken, LimitsChanged, RecordRefused, SendingPaused)


def genesis(namespace: str, run: str) -> bytes:
    """The hash before the first record of a run. NUL separates, and cannot occur in either name."""
    return sha256(b"\0".join((b"beforehand/1", namespace.encode(), run.encode()))).digest()


def verify_chain(rows: Iterable[Row], start: bytes, first: int = 1) -> int | None:
    """The first `seq` that is missing, out of order or changed; None when the chain holds.

    `start` is the hash before the row numbered `first`.
    """
    head = start
    for seq, row in enumerate(rows, first):
        head = sha256(head + row.body).digest()
        if row.seq != seq or row.hash != head:
            return seq
    return None


def beginning(
    namespace: str, run: str, agent: str, bodies: Iterable[bytes], change: RunChange | None = None, program: str = ""
) -> NewRun:
    """A new run with its first records, chained under the token of its first claim."""
    return NewRun(agent, _chained(bodies, 0, genesis(namespace, run), 1), change, program)


def _chained(bodies: Iterable[bytes], seq: int, head: bytes, token: int) -> tuple[Row, ...]:
    rows: list[Row] = []
    for body in bodies:
        seq += 1
        head = sha256(head + body).digest()
        rows.append(Row(seq, body, head, token))
    return tuple(rows)


class RunLog:
    """Appends to one run. Knows the lease, the last number and the head of the chain.

    After an error that leaves open what is stored (lost lease, journal unavailable) every later call
    raises it again: the run has to be claimed anew. A refused write alone (`LedgerTaken`, `LimitsChanged`,
    `BudgetSpent`, `RecordRefused`, `SendingPaused`) leaves the log usable, unless others were chained on to one
    that `sends` before its refusal was known: they are refused with it.
    """

    def __init__(self, journal: Journal, lease: Lease, last: Row | None, start: bytes) -> None:
        self.journal = journal
        self.lease = lease
        self.seq = last.seq if last else 0
        self.head = last.hash if last else start
        self._broken: BeforehandError | None = None
        self.alone: asyncio.Future[None] | None = None
        """Set while an append that may be refused is under way: writers that keep an order wait for it."""
        self._held: list[tuple[Sequence[bytes], tuple[Charge, ...]]] = []  # what rode meanwhile, not yet chained

    @property
    def usable(self) -> bool:
        """True if it may be written on: no error has left open what is stored."""
        return self._broken is None

    def rows(self, bodies: Sequence[bytes]) -> tuple[Row, ...]:
        """Number and chain `bodies`, which must then be written in this order."""
        rows = _chained(bodies, self.seq, self.head, self.lease.token)
        if rows:
            self.seq, self.head = rows[-1].seq, rows[-1].hash
        return rows

    def append(
        self,
        bodies: Sequence[bytes],
        change: RunChange | None = None,
        posts: tuple[Post, ...] = (),
        charges: tuple[Charge, ...] = (),
        declared: int | None = None,
        sends: bool = False,
    ) -> Coroutine[None, None, tuple[Row, ...]]:
        """Commit records, and together with them what else a `Write` holds; durable on return.

        Raises `LedgerTaken` when a post's key is taken, `LimitsChanged`, `BudgetSpent` and `SendingPaused`; nothing of
        this append is stored then.
        """
        write = Write(self.lease, (), change, posts, charges, declared, sends)
        if self.alone is not None or posts or charges or declared is not None or self._broken is not None:
            return self._append_in_turn(bodies, write)
        return self._write(bodies, write)

    def ride(self, bodies: Sequence[bytes], charges: tuple[Charge, ...] = ()) -> None:
        """Store with the next append of any run, or within a few milliseconds; order is kept.

        An error is raised by the next write or `flush`.
        """
        if self.alone is not None:
            self._held.append((bodies, charges))
        elif self._broken is None:
            self.journal.ride(Write(self.lease, self.rows(bodies), charges=charges))

    async def flush(self) -> None:
        """Return when everything that rode is durable."""
        while self.alone is not None:
            await asyncio.shield(self.alone)
        if self._broken is not None:
            raise self._broken
        try:
            await self.journal.flush(self.lease)
        except (LeaseLost, JournalUnavailable, RecordRefused, SendingPaused) as error:
            self._broken = error
            raise
        if self._broken is not None:
            raise self._broken  # an error is raised once, and another flush raised it

    async def _write(self, bodies: Sequence[bytes], write: Write) -> tuple[Row, ...]:
        seq, head = self.seq, self.head
        rows = self.rows(bodies)
        after = self.seq
        try:
            await self.journal.commit(replace(write, rows=rows))
        except _REFUSALS as error:
            if isinstance(error, RecordRefused) and isinstance(self._broken, SendingPaused):
                raise self._broken from error  # it was chained on to that attempt
            if self.seq != after:  # another write chained on to the refused rows
                self._broken = error
            else:
                self.seq, self.head = seq, head
            raise
        except BaseException as error:
            # Cancelled while the commit was under way: the rows may be stored, so the numbers stay.
            if isinstance(error, BeforehandError):
                self._broken = error
            raise
        return rows

    async def _append_in_turn(self, bodies: Sequence[bytes], write: Write) -> tuple[Row, ...]:
        while self.alone is not None:
            await asyncio.shield(self.alone)
        if self._broken is not None:
            raise self._broken
        if write.posts or write.declared is not None or any(charge.most is not None for charge in write.charges):
            return await self._append_alone(bodies, write)
        return await self._write(bodies, write)

    async def _append_alone(self, bodies: Sequence[bytes], write: Write) -> tuple[Row, ...]:
        """Nothing may chain on to rows that the journal can still refuse, so all other writes wait.

        The write is a task of its own: a cancelled caller must not admit other writes before its end is known.
        """
        alone = self.alone = asyncio.get_running_loop().create_future()
        writing = asyncio.get_running_loop().create_task(self._write(bodies, write), context=contextvars.Context())

        def ended(task: asyncio.Future[tuple[Row, ...]]) -> None:
            self.alone = None
            alone.set_result(None)
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not warn for a cancelled caller
            held, self._held = self._held, []
            for some, charges in held:
                self.ride(some, charges)

        writing.add_done_callback(ended)
        return await asyncio.shield(writing)
