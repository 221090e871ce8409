"""Verification of a journal: every run, the log as a whole, and the signed heads that were kept of it.

The log is checked for what no single run shows: gaps, its end, the ledger, and the kept heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from holdfast.engine.claims import claim_stream
from holdfast.errors import HoldfastError
from holdfast.inspect.reader import PAGE, JournalReader
from holdfast.inspect.signed_heads import KeptHead, badly_signed
from holdfast.journal.codec import decode
from holdfast.journal.log import genesis, verify_chain
from holdfast.journal.port import Identity
from holdfast.journal.sqlite import anchor, heads, ledger
from holdfast.journal.sqlite.driver import DatabaseFailure
from holdfast.journal.sqlite.opening import end_of, tails_at
from holdfast.journal.sqlite.reading import View, view_of
from holdfast.model.heads import Head, first_head
from holdfast.model.operation import OperationState
from holdfast.model.run_history import RunHistory


class Kept(msgspec.Struct, frozen=True):
    """Heads that were kept elsewhere, and the keys that sign them; without keys no signature is checked."""

    heads: Sequence[KeptHead] = ()
    keys: Sequence[str] = ()


class Checked(msgspec.Struct):
    """What was read, and what did not hold. `signatures`: of how many heads the signature was checked."""

    runs: int = 0
    records: int = 0
    streams: int = 0
    heads: int = 0
    signatures: int = 0
    broken: list[Broken] = []


UNCLAIMED: Final = "its entries in the ledger are gone: another run could do the same again"
UNSIGNED: Final = "its signature was not made with a key of this journal"


async def check(looking: JournalReader, path: Path, kept: Kept | None = None) -> Checked:
    """Read everything, follow every chain, and compare the log with its anchor and with `kept` heads."""
    kept = kept or Kept()
    found = Checked(broken=[], heads=len(kept.heads))
    if kept.keys:
        found.signatures = len(kept.heads)
        found.broken.extend(Broken("the kept heads", one.line, UNSIGNED) for one in badly_signed(kept.heads, kept.keys))
    async for row in looking.every_run():
        found.runs += 1
        broken, records = await _check_run(looking, row.run)
        found.records += records
        if broken is not None:
            found.broken.append(broken)
    found.streams, broken_log = check_log(path, looking.identity, kept.heads)
    found.broken.extend(broken_log)
    return found


async def _check_run(looking: JournalReader, run: str) -> tuple[Broken | None, int]:
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


async def _unclaimed(looking: JournalReader, operation: OperationState) -> bool:
    """Whether the ledger lacks what was written with an attempt under a business key, and with its success.

    A stream that lost its last entries is a chain that holds, so the ledger alone cannot tell.
    """
    intent = operation.intent
    if not intent.claim or not operation.attempts:
        return False
    entries = await looking.journal.entries(claim_stream(intent.tool, intent.claim))
    return len(entries) < (2 if operation.phase == "succeeded" else 1)


CHANGED: Final = "it was changed, removed or moved after it was written"
UNLISTED: Final = "its run is not listed any more"
THE_END: Final = "the end of the journal"
_NAMES: Final[dict[heads.Table, str]] = {"record": "the log of records", "ledger": "the log of ledger entries"}


class Broken(msgspec.Struct, frozen=True):
    """A place where the journal is not what was written, and why."""

    chain: str
    record: int
    why: str


class Known(msgspec.Struct, frozen=True):
    """A head that the file is compared with, and where it comes from."""

    head: Head
    origin: str


def check_log(path: Path, identity: Identity, kept: Sequence[KeptHead]) -> tuple[int, list[Broken]]:
    """How many ledger streams there are, and every place that does not hold.

    Raises nothing: tables that cannot be read are broken themselves.
    """
    view = view_of(path)
    database = view.database
    try:
        streams = [str(stream) for (stream,) in database.rows("select distinct stream from ledger order by stream")]
        mark = anchor.load(anchor.beside(path))
        broken = [*_ends(view, mark, kept), *_streams(view, streams), *_unlisted(view)]
        broken += [*_gaps(view), *_trust(view)]
        # A known place explains why the anchor's head differs; the heads kept elsewhere are compared all the same.
        known = [Known(mark.head, "the anchor")] if mark is not None and not broken and mark.missing == 0 else []
        known += [Known(one.signed.head, _origin(one, identity)) for one in kept]
        return len(streams), [*broken, *_heads(view, identity, known)]
    except DatabaseFailure as failure:
        return 0, [Broken("the tables of the journal", 0, f"they cannot be read: {failure}")]
    finally:
        database.close()


def _ends(view: View, mark: anchor.Mark | None, kept: Sequence[KeptHead]) -> Iterator[Broken]:
    """A log that is shorter than its anchor or a kept head says. Its rows alone cannot show that."""
    end = end_of(view.database)
    # Where SQLite's own log could not be read, the end that the anchor knows may be in there.
    if mark is not None and not view.stale:
        cut = anchor.lost_tail(mark, tails_at(view.database, mark))
        if cut:
            yield Broken(THE_END, end.records + 1, cut)
    unread = ", as far as it can be read without its -wal file" if view.stale else ""
    for one in kept:
        head = one.signed.head
        for name, known, number in (
            ("records", head.records, end.records),
            ("ledger entries", head.entries, end.entries),
        ):
            if known > number:
                why = f"the head of {_when(one)} has {known} {name}, and this file ends at {number}{unread}"
                yield Broken(THE_END, number + 1, why)


def _streams(view: View, streams: Sequence[str]) -> Iterator[Broken]:
    for stream in streams:
        entry = ledger.first_broken(view.database, stream)
        if entry is not None:
            yield Broken(f"ledger {stream}", entry, CHANGED)


def _unlisted(view: View) -> Iterator[Broken]:
    found = view.database.rows("select min(id) from record where run not in (select id from run) group by run")
    for (number,) in found:
        yield Broken("no run", int(str(number)), UNLISTED)


def _gaps(view: View) -> Iterator[Broken]:
    """Numbers without a row. Each row has the number after the one before, so a missing number is a removed row."""
    for table, name in _NAMES.items():
        for gap in heads.gaps(view.database, table):
            if gap.last < gap.first:  # only a number below 1 can follow out of order
                yield Broken(name, gap.last + 1, "it was put in: numbers begin with 1")
                continue
            removed = f"{gap.last - gap.first + 1} were removed" if gap.last > gap.first else "it was removed"
            yield Broken(name, gap.first, f"{removed}; {_beside(view, gap)}")


def _beside(view: View, gap: heads.Gap) -> str:
    """What is stored before and after a gap, so that a person can find what is missing in a backup."""
    if gap.table == "ledger":
        sql = "select stream from ledger where id = ?"
    else:
        sql = "select coalesce((select name from run where run.id = record.run), 'a lost run') from record where id = ?"
    before, after = view.database.rows(sql, (gap.first - 1,)), view.database.rows(sql, (gap.last + 1,))
    what = "an entry of" if gap.table == "ledger" else "a record of"
    start = f"it followed {what} {before[0][0]!s}" if before else "it was the first"
    return f"{start} and came before {what} {after[0][0]!s}" if after else start


def _trust(view: View) -> Iterator[Broken]:
    """The mark of trust in the file, against the last confirmation by an operator on record."""
    found = view.database.rows("select body from ledger where stream = 'journal' order by id desc limit 1")
    ((marked,),) = view.database.rows("select value from meta where name = 'trust'")
    confirmed = "trusted"
    if found:
        try:
            confirmed = str(msgspec.json.decode(str(found[0][0]), type=dict[str, str])["trust"])
        except (msgspec.MsgspecError, KeyError):
            return  # the chain of the stream says so
    if marked != confirmed:
        yield Broken(
            "the mark of trust", 0, f"the file says {marked!s}, and the last confirmation on record {confirmed}"
        )


def _heads(view: View, identity: Identity, known: Sequence[Known]) -> Iterator[Broken]:
    """Compare the file with every head; of those that differ the first is named, as it narrows the place best."""
    end, start = end_of(view.database), first_head(identity.namespace, identity.secret)
    yield from _table_heads(
        view, "record", start.records_hash,
        [(one.head.records, one.head.records_hash, one.origin) for one in known if one.head.records <= end.records],
    )  # fmt: skip
    yield from _table_heads(
        view, "ledger", start.entries_hash,
        [(one.head.entries, one.head.entries_hash, one.origin) for one in known if one.head.entries <= end.entries],
    )  # fmt: skip


def _table_heads(view: View, table: heads.Table, start: str, known: Sequence[tuple[int, str, str]]) -> Iterator[Broken]:
    found = heads.hashes_at(view.database, table, start, {number for number, _, _ in known})
    good = 0
    for number, digest, origin in sorted(known):
        if found.get(number) != digest:
            span = f"up to {number}" if good == 0 else f"between {good + 1} and {number}"
            yield Broken(_NAMES[table], good + 1, f"what stands {span} is not what {origin} covers")
            return
        good = number


def _origin(one: KeptHead, identity: Identity) -> str:
    if one.signed.incarnation == identity.incarnation:
        return f"the head of {_when(one)}"
    return f"the head of {_when(one)} (made before the journal was confirmed anew)"


def _when(one: KeptHead) -> str:
    at = datetime.fromtimestamp(one.signed.at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"{at}, line {one.line},"
