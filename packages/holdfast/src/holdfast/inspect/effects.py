"""Search for effects over all runs: by business key, by the value of an argument, or by a text.

A business key is found by its claims in the ledger, however many operations there are. Anything else is searched for in
the records, the newest first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, cast

import msgspec

from holdfast.engine.conflicts import ClaimNote, claim_stream
from holdfast.errors import ChainBroken, UnknownRun, Unreadable, UsageError
from holdfast.inspect.reader import JournalReader
from holdfast.journal.entry_codec import readable
from holdfast.journal.port import Reader
from holdfast.journal.record_codec import decode, prefixes_of
from holdfast.model import records as r
from holdfast.model.ids import operation_id, parts_of, split_operation_id, stream
from holdfast.model.operation import OperationState
from holdfast.model.records import Raw
from holdfast.model.system import is_system

_ABOUT: Final = prefixes_of(
    r.OperationPlanned, r.AttemptStarted, r.OperationHeld, r.ArgumentsEdited, r.AttemptEnded, r.OperationSettled,
    r.LateReport, r.Resolved,
)  # fmt: skip
"""The kinds of record that hold the arguments or the result of an operation."""
_PAGE: Final = 500


class EffectQuery(msgspec.Struct, frozen=True):
    """The effects that are wanted: all conditions that are given have to hold.

    `key` is a business key, `to` the value of an argument, `text` a part of the arguments or of the result. Case does
    not count. `since_ms`: begun then or later.
    """

    key: str = ""
    to: str = ""
    text: str = ""
    tool: str = ""
    agent: str = ""
    since_ms: int = 0


class FoundEffect(msgspec.Struct, frozen=True):
    """One operation that fits. `sent` is how often it was attempted; `at_ms` when that began, by the wall clock."""

    operation: str
    run: str
    agent: str
    tool: str
    status: str
    sent: int
    at_ms: int
    key: str
    title: str
    arguments: Raw
    result: Raw


class EffectsFound(msgspec.Struct, frozen=True):
    """The effects, the newest first. `more`: there may be others; `unreadable`: runs whose records cannot be read."""

    effects: list[FoundEffect]
    more: bool = False
    unreadable: list[str] = []


async def find_effects(reader: JournalReader, journal: Reader, query: EffectQuery, limit: int) -> EffectsFound:
    """The newest `limit` operations, of any run, that fit the query. Raises `UsageError` for an empty query."""
    if not (query.key or query.to or query.text):
        raise UsageError(
            "nothing to look for was given", next_step="holdfast effects --key KEY | --to ADDRESS | --text TEXT"
        )
    names = _with_key(journal, query) if query.key else _with_text(journal, query.to or query.text)
    found: list[FoundEffect] = []
    seen, unreadable = set[str](), dict[str, None]()
    async for run, step in names:
        name = operation_id(run, step)
        if name in seen:
            continue
        seen.add(name)
        try:
            history, operation = await reader.operation(name)
            agent = (await reader.row(run)).agent
        except (ChainBroken, Unreadable):
            unreadable[run] = None
            continue
        except (UsageError, UnknownRun):
            continue  # a record about an operation that was withdrawn
        if is_system(agent) or not _fits(query, operation, agent):
            continue
        if len(found) == limit:
            return EffectsFound(found, more=True, unreadable=list(unreadable))
        found.append(_found(history.run, agent, operation))
    return EffectsFound(found, unreadable=list(unreadable))


async def _with_key(journal: Reader, query: EffectQuery) -> AsyncIterator[tuple[str, str]]:
    """The operations that took a business key, of every tool; each tool costs one look into the index of streams."""
    claims = stream("claim", "")[:-1]
    name = await journal.next_stream(claims)
    operations: list[tuple[int, str]] = []
    while name.startswith(claims):
        tool = parts_of(name)[1]
        if query.tool in {"", tool}:
            entries = await journal.entries(claim_stream(tool, query.key))
            operations += [(entry.id, note.operation) for entry, note in await readable(journal, entries, ClaimNote)]
        name = await journal.next_stream(
            stream("claim", tool) + "0"
        )  # the sign after "/": the next tool's first stream
    for _, operation in sorted(operations, reverse=True):
        yield split_operation_id(operation)


async def _with_text(journal: Reader, text: str) -> AsyncIterator[tuple[str, str]]:
    """The operations with a record that contains the text."""
    inside = msgspec.json.encode(text)[1:-1].decode()  # as it stands in the record
    before: int | None = None
    while rows := await journal.search(inside, _PAGE, before):
        for row in rows:
            if row.body.startswith(_ABOUT):
                yield row.run, getattr(decode(row.body), "step", "")
        before = rows[-1].number


def _fits(query: EffectQuery, operation: OperationState, agent: str) -> bool:
    intent = operation.intent
    values = list(_values(msgspec.json.decode(intent.arguments)))
    whole = f"{bytes(intent.arguments).decode()}\n{bytes(operation.settlement.result).decode()}"
    inside = msgspec.json.encode(query.text)[1:-1].decode()
    return (
        query.key in {"", intent.claim}
        and query.tool in {"", intent.tool}
        and query.agent in {"", agent}
        and _begun_ms(operation) >= query.since_ms
        and (not query.to or _plain(query.to) in map(_plain, values))
        and (not query.text or _plain(inside) in _plain(whole))
    )


def _begun_ms(operation: OperationState) -> int:
    """The wall clock of its first attempt; of its outcome, where nothing was sent."""
    return operation.attempts[0].at if operation.attempts else operation.settlement.at


def _plain(text: str) -> str:
    return text.strip().casefold()


def _values(value: Any) -> Iterable[str]:
    """Every value in it, as text."""
    match value:
        case dict() | list():
            inside = cast("dict[str, Any] | list[Any]", value)
            for one in inside.values() if isinstance(inside, dict) else inside:
                yield from _values(one)
        case _:
            yield str(value)


def _found(run: str, agent: str, operation: OperationState) -> FoundEffect:
    intent = operation.intent
    return FoundEffect(
        operation_id(run, operation.step), run, agent, intent.tool, operation.phase, len(operation.attempts),
        _begun_ms(operation), intent.claim, intent.title, intent.arguments, operation.settlement.result,
    )  # fmt: skip
