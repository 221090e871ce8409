"""Verification of a journal: every run, the log as a whole, and the signed heads that were kept of it.

The log is checked for what no single run shows: gaps, its end, the ledger, and the kept heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from beforehand.engine.conflicts import claim_stream
from beforehand.errors import BeforehandError
from beforehand.inspect.counters import LOST, MEND, Sums, add_up, take, wrong_counters
from beforehand.inspect.doctor import listing_fault
from beforehand.inspect.reader import PAGE, JournalReader
from beforehand.inspect.signed_heads import KeptHead, badly_signed
from beforehand.journal.backend_rules import CHANGED
from beforehand.journal.port import Broken, Identity, KnownHead, Reader
from beforehand.journal.record_codec import decode
from beforehand.journal.run_log import genesis, verify_chain
from beforehand.model.operation import OperationState
from beforehand.model.run_history import RunHistory
from beforehand.model.shared_use import Charge


class Kept(msgspec.Struct, frozen=True):
    """Heads that were kept elsewhere, and the keys that sign them; without keys no signature is checked."""

    heads: Sequence[KeptHead] = ()
    keys: Sequence[str] = ()


class Checked(msgspec.Struct):
    """The result of a verification: counts, and the faults found. `signatures`: heads with a checked signature."""

    runs: int = 0
    records: int = 0
    streams: int = 0
    heads: int = 0
    signatures: int = 0
    broken: list[Broken] = []


UNCLAIMED: Final = "its entries in the ledger are gone: another run could do the same again"
UNSIGNED: Final = "its signature was not made with a key of this journal"


async def check(reader: JournalReader, raw_reader: Reader, kept: Kept | None = None) -> Checked:
    """Read everything, follow every chain, and compare the log with its anchor and with `kept` heads."""
    kept = kept or Kept()
    found = Checked(broken=[], heads=len(kept.heads))
    if kept.keys:
        found.signatures = len(kept.heads)
        found.broken.extend(Broken("the kept heads", one.line, UNSIGNED) for one in badly_signed(kept.heads, kept.keys))
    sums: Sums = {}
    async for row in reader.every_run():
        found.runs += 1
        broken, records = await _check_run(reader, row.run, sums)
        found.records += records
        if broken is not None:
            found.broken.append(broken)
    if not found.broken:  # without each record of each run their sums say nothing
        found.broken += [Broken(one.name, 0, one.why) for one in await wrong_counters(reader, sums)]
    log = await raw_reader.check([_known(one, reader.identity) for one in kept.heads])
    found.streams = log.streams
    if log.broken:  # the records that the listing and the counters are compared with may not be all
        found.broken = [msgspec.structs.replace(one, why=one.why.replace(MEND, LOST)) for one in found.broken]
    found.broken.extend(log.broken)
    return found


def _known(one: KeptHead, identity: Identity) -> KnownHead:
    earlier = one.signed.incarnation != identity.incarnation
    remark = " (made before the journal was confirmed anew)" if earlier else ""
    return KnownHead(one.signed.head, one.origin, remark)


async def _check_run(reader: JournalReader, run: str, sums: Sums) -> tuple[Broken | None, int]:
    history, charges = RunHistory(run), list[Charge]()
    head, after = genesis(reader.identity.namespace, run), 0
    try:
        while rows := await reader.journal.read(run, after, PAGE):
            bad = verify_chain(rows, head, after + 1)
            if bad is not None:
                return Broken(f"run {run}", bad, CHANGED), history.records
            for row in rows:
                take(history, decode(row.body), charges)
            after, head = rows[-1].seq, rows[-1].hash
    except BeforehandError as error:
        return Broken(f"run {run}", history.records + 1, f"it cannot be read: {error.message}"), history.records
    for operation in history.operations.values():
        if await _unclaimed(reader, operation):
            return Broken(f"run {run}, business key of {operation.step}", history.records, UNCLAIMED), history.records
    add_up(sums, charges)
    if why := await _misplaced(reader, history):
        return Broken(f"the listing of {run}", 0, why), history.records
    return None, history.records


async def _misplaced(reader: JournalReader, history: RunHistory) -> str:
    """The fault in the line of a run in the listing; empty if there is none, or the run has gone on meanwhile."""
    why = listing_fault(history, await reader.row(history.run))
    if not why:
        return ""
    why, before = listing_fault(history, await reader.row(history.run)), history.records
    return why if (await reader.catch_up(history)).records == before else ""


async def _unclaimed(reader: JournalReader, operation: OperationState) -> bool:
    """True if the ledger lacks an entry written with an attempt under a business key, or with its success.

    A stream that lost its last entries is a chain that holds, so the ledger alone cannot tell.
    """
    intent = operation.intent
    if not intent.claim or not operation.attempts:
        return False
    entries = await reader.journal.entries(claim_stream(intent.tool, intent.claim))
    return len(entries) < (2 if operation.phase == "succeeded" else 1)
