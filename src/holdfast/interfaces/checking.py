"""Is every record still what was written? Chains of all runs and of all ledger streams."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from holdfast.engine.elsewhere import claim_stream
from holdfast.errors import HoldfastError
from holdfast.interfaces.looking import PAGE, Looking
from holdfast.journal.codec import decode
from holdfast.journal.log import genesis, verify_chain
from holdfast.journal.sqlite import anchor, ledger
from holdfast.journal.sqlite.driver import DatabaseFailure
from holdfast.journal.sqlite.opening import tails_at
from holdfast.journal.sqlite.reading import view_of
from holdfast.model.operation import OperationState
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
UNLISTED: Final = "its run is not listed any more"
UNCLAIMED: Final = "its entries in the ledger are gone: another run could do the same again"


async def check(looking: Looking, path: Path) -> Checked:
    """Read everything and follow every chain."""
    found = Checked(broken=[])
    async for row in looking.every_run():
        found.runs += 1
        broken, records = await _check_run(looking, row.run)
        found.records += records
        if broken is not None:
            found.broken.append(broken)
    streams, unlisted, cut = _tables(path)
    if cut:
        found.broken.append(Broken("the end of the journal", found.records + 1, cut))
    for stream, entry in streams:
        found.streams += 1
        if entry is not None:
            found.broken.append(Broken(f"ledger {stream}", entry, CHANGED))
    found.broken.extend(Broken("no run", number, UNLISTED) for number in unlisted)
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
    for operation in history.operations.values():
        if await _unclaimed(looking, operation):
            return Broken(f"run {run}, business key of {operation.step}", history.records, UNCLAIMED), history.records
    return None, history.records


async def _unclaimed(looking: Looking, operation: OperationState) -> bool:
    """Whether the ledger lacks what was written with an attempt under a business key, and with its success.

    A stream that lost its last entries is a chain that holds, so the ledger alone cannot tell.
    """
    intent = operation.intent
    if not intent.claim or not operation.attempts:
        return False
    entries = await looking.journal.entries(claim_stream(intent.tool, intent.claim))
    return len(entries) < (2 if operation.phase == "succeeded" else 1)


def _tables(path: Path) -> tuple[list[tuple[str, int | None]], list[int], str]:
    """Each ledger stream with its first broken entry, the first record of each unlisted run, and what is cut off.

    A chain that lost its last records is a chain that holds: only the anchor knows how far it went.
    Raises nothing: a ledger that cannot be read is broken itself.
    """
    view = view_of(path)
    database = view.database
    try:
        streams = [str(stream) for (stream,) in database.rows("select distinct stream from ledger order by stream")]
        unlisted = database.rows("select min(id) from record where run not in (select id from run) group by run")
        kept = anchor.load(anchor.beside(path))
        # Where the log could not be read, the end that the anchor knows may be in there.
        cut = anchor.lost_tail(kept, tails_at(database, kept)) if kept is not None and not view.stale else ""
        checked = [(stream, ledger.first_broken(database, stream)) for stream in streams]
        return checked, [int(str(n)) for (n,) in unlisted], cut
    except DatabaseFailure:
        return [("(unreadable)", 0)], [], ""
    finally:
        database.close()
