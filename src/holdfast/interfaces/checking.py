"""Is every record still what was written? Chains of all runs and of all ledger streams."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from holdfast.errors import HoldfastError
from holdfast.interfaces.looking import PAGE, Looking
from holdfast.journal.codec import decode
from holdfast.journal.log import genesis, verify_chain
from holdfast.journal.sqlite import ledger
from holdfast.journal.sqlite.driver import DatabaseFailure, StandardDatabase
from holdfast.model.run import RunHistory


class Broken(msgspec.Struct, frozen=True):
    """The first record of a chain that is not what was written there."""

    chain: str
    record: int
    why: str


class Checked(msgspec.Struct):
    """What was read, and what did not hold."""

    runs: int = 0
    records: int = 0
    streams: int = 0
    broken: list[Broken] = []


CHANGED: Final = "it was changed, removed or moved after it was written"


async def check(looking: Looking, path: Path) -> Checked:
    """Read everything and follow every chain."""
    found = Checked(broken=[])
    async for row in looking.every_run():
        found.runs += 1
        broken, records = await _check_run(looking, row.run)
        found.records += records
        if broken is not None:
            found.broken.append(broken)
    for stream, entry in _ledger(path):
        found.streams += 1
        if entry is not None:
            found.broken.append(Broken(f"ledger {stream}", entry, CHANGED))
    return found


async def _check_run(looking: Looking, run: str) -> tuple[Broken | None, int]:
    history = RunHistory(run)
    head, after = genesis(looking.identity.namespace, run), 0
    try:
        while rows := await looking.journal.read(run, after, PAGE):
            bad = verify_chain(rows, head, after + 1)
            if bad is not None:
                return Broken(f"run {run}", bad, CHANGED), history.records
            for row in rows:
                history.add(decode(row.body))
            after, head = rows[-1].seq, rows[-1].hash
    except HoldfastError as error:
        return Broken(f"run {run}", history.records + 1, f"it cannot be read: {error.message}"), history.records
    return None, history.records


def _ledger(path: Path) -> list[tuple[str, int | None]]:
    """Each stream with its first broken entry. Raises nothing: a ledger that cannot be read is broken itself."""
    database = StandardDatabase(path, True)
    try:
        streams = [str(stream) for (stream,) in database.rows("select distinct stream from ledger order by stream")]
        return [(stream, ledger.first_broken(database, stream)) for stream in streams]
    except DatabaseFailure:
        return [("(unreadable)", 0)]
    finally:
        database.close()
