"""What holds for the records of every run at the end of time: what was acknowledged is there, chained, and listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from holdfast.journal.codec import decode
from holdfast.journal.log import genesis, verify_chain
from holdfast.model.run_history import RunHistory

if TYPE_CHECKING:
    from holdfast.testing.world.disk import Store
    from holdfast.testing.world.files import Files


async def check_records(
    store: Store | Files, acknowledged: Iterable[tuple[str, int, bytes]], broken: Callable[[int, str], None]
) -> None:
    """Look at all records; `acknowledged` are those, by run, number and hash, that somebody was told are durable."""
    listed = await store.runs(limit=10_000)
    rows = {row.run: await store.read(row.run, limit=100_000) for row in listed}
    for run, seq, head in acknowledged:
        if len(rows[run]) < seq or rows[run][seq - 1].hash != head:
            broken(20, f"record {seq} of run {run} was acknowledged and is not there")
    for listing in listed:
        stored = rows[listing.run]
        if verify_chain(stored, genesis(store.identity.namespace, listing.run)) is not None:
            broken(15, f"the chain of run {listing.run} does not hold")
        history = RunHistory(listing.run)
        for row in stored:
            history.add(decode(row.body))
        if stored and history.status != listing.status and not _both_open(history.status, listing.status):
            broken(14, f"run {listing.run} is listed as {listing.status}, and its records say {history.status}")


def _both_open(recorded: str, listed: str) -> bool:
    """A run that waits is listed as running while somebody has it, or as soon as it is due."""
    return {recorded, listed} <= {"running", "suspended"}
