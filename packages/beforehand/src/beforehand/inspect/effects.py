"""Search for effects over all runs: by business key, by tool, by the value of an argument, or by a text.

A business key is found by its claims in the ledger, however many operations there are. Anything else is searched for in
the records, the newest first, until there are enough effects.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, TypeAlias, cast

import msgspec

from beforehand.engine.conflicts import claim_stream
from beforehand.engine.operation_driver import ClaimNote
from beforehand.errors import ChainBroken, UnknownRun, Unreadable, UsageError
from beforehand.inspect.reader import JournalReader
from beforehand.journal.entry_codec import readable
from beforehand.journal.port import EVERY_RECORD, Reader
from beforehand.journal.record_codec import decode, prefixes_of
from beforehand.model import records as r
from beforehand.model.ids import operation_id, parts_of, split_operation_id, stream
from beforehand.model.operation import OperationState
from beforehand.model.records import Raw
from beforehand.model.run_history import RunHistory
from beforehand.model.system import is_system

_ABOUT: Final = prefixes_of(
    r.OperationPlanned, r.AttemptStarted, r.OperationHeld, r.ArgumentsEdited, r.AttemptEnded, r.OperationSettled,
    r.LateReport, r.Resolved,
)  # fmt: skip
"""The kinds of record that hold the arguments or the result of an operation."""
_PAGE: Final = 500
_AT_ONCE: Final = 50_000
"""How many records are searched between two reports of the progress."""
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_TELLING: Final = 3
"""The length from which on a part of a text is worth searching for."""
_KEPT: Final = 32
"""How many histories of runs are kept: the newest effects are often of the same runs."""

Progress: TypeAlias = Callable[[int, int], None]
"""Receives the number of records searched so far, and of those in the journal."""


class EffectQuery(msgspec.Struct, frozen=True):
    """The effects that are wanted: all conditions that are given have to hold.

    `key` is a business key, `to` the value of an argument, `text` a part of the arguments or of the result. Case does
    not count in `to` and `text`. Composed and decomposed letters are equal. `since_ms`: begun then or later.
    """

    key: str = ""
    to: str = ""
    text: str = ""
    tool: str = ""
    agent: str = ""
    since_ms: int = 0


class FoundEffect(msgspec.Struct, frozen=True):
    """One operation that fits. `sent` is how often it was attempted; `at_ms` when that began, by the wall clock.

    `status` is the state of the operation; `compensated` where a later one, `compensated_by`, has undone it. With that
    name and another status, the compensation has not succeeded. `settled_ms` is when the outcome was recorded; 0 where
    there is none yet.
    """

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
    settled_ms: int = 0
    compensated_by: str = ""


class EffectsFound(msgspec.Struct, frozen=True):
    """The effects, the newest first. `more`: there may be others; `unreadable`: runs whose records cannot be read.

    `searched` of the journal's `records` were searched for a text; none are for a business key, which has an index.
    """

    effects: list[FoundEffect]
    more: bool = False
    unreadable: list[str] = []
    searched: int = 0
    records: int = 0


async def find_effects(
    reader: JournalReader, journal: Reader, query: EffectQuery, limit: int, progress: Progress | None = None
) -> EffectsFound:
    """The newest `limit` operations, of any run, that fit the query. Raises `UsageError` for an empty query."""
    if not (query.key or query.to or query.text or query.tool):
        raise UsageError(
            "nothing to look for was given",
            next_step="give --key, --to, --text or --tool",
        )
    search = _Search(journal, progress)
    names = _with_key(journal, query) if query.key else search.named(_texts_of(query))
    found: list[FoundEffect] = []
    histories = _Histories(reader)
    seen, unreadable = set[str](), dict[str, None]()
    async for run, step in names:
        name = operation_id(run, step)
        if name in seen:
            continue
        seen.add(name)
        try:
            agent, history = await histories.of(run)
        except (ChainBroken, UnknownRun, Unreadable):
            unreadable[run] = None
            continue
        operation = history.operations.get(step)  # None: the record is about one that was withdrawn
        if operation is None or is_system(agent) or not _fits(query, operation, agent):
            continue
        if len(found) == limit:
            return EffectsFound(found, True, list(unreadable), search.searched, search.records)
        found.append(_found(history, agent, operation))
    return EffectsFound(found, False, list(unreadable), search.searched, search.records)


class _Histories:
    """The histories of the runs that were asked for last."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader: Final = reader
        self._kept: dict[str, tuple[str, RunHistory]] = {}

    async def of(self, run: str) -> tuple[str, RunHistory]:
        """The agent of a run, and its history."""
        found = self._kept.pop(run, None) or ((await self._reader.row(run)).agent, await self._reader.history(run))
        self._kept[run] = found
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return found


async def _with_key(journal: Reader, query: EffectQuery) -> AsyncIterator[tuple[str, str]]:
    """The operations that took a business key, of every tool; each tool costs one look into the index of streams."""
    claims = stream("claim", "")[:-1]
    name = await journal.next_stream(claims)
    operations: list[tuple[int, str]] = []
    while name.startswith(claims):
        tool = parts_of(name)[1]
        if query.tool in {"", tool}:
            entries = [entry for key in _forms(query.key) for entry in await journal.entries(claim_stream(tool, key))]
            operations += [(entry.id, note.operation) for entry, note in await readable(journal, entries, ClaimNote)]
        name = await journal.next_stream(
            stream("claim", tool) + "0"
        )  # the sign after "/": the next tool's first stream
    for _, operation in sorted(operations, reverse=True):
        yield split_operation_id(operation)


def _texts_of(query: EffectQuery) -> list[str]:
    """The texts, as JSON has them, of which a record that makes an operation fit has at least one.

    The search ignores case in ASCII letters only, so of a text with others their longest part is searched for: it is in
    all forms of the text. A text without such a part is searched for in each form.
    """
    forms = _forms(_inside(query.to.strip() or query.text))
    parts = (forms[0], *_NOT_ASCII.split(forms[0]))
    part = max(parts, key=lambda text: (text.isascii() and len(text) >= _TELLING, len(text)))
    if not part:
        return [f'"tool":"{_inside(query.tool)}"']
    return [part] if part.isascii() else forms


def _forms(text: str) -> list[str]:
    """The text with composed letters first, then decomposed and as it was typed, as far as these differ."""
    return list(dict.fromkeys([_composed(text), unicodedata.normalize("NFD", text), text]))


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _inside(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]


class _Search:
    """A search through the records, the newest first, and how far it has come."""

    def __init__(self, journal: Reader, progress: Progress | None) -> None:
        self._journal: Final = journal
        self._progress: Final = progress
        self.searched = self.records = 0

    async def named(self, texts: list[str]) -> AsyncIterator[tuple[str, str]]:
        """The operations with a record that contains one of the texts."""
        newest = await self._journal.search("", EVERY_RECORD, 1)
        self.records = newest[0].number if newest else 0
        while left := self.records - self.searched:
            numbers = range(max(1, left + 1 - _AT_ONCE), left + 1)
            pages = [await self._journal.search(text, numbers, _PAGE) for text in texts]
            end = max([numbers.start, *(page[-1].number for page in pages if len(page) == _PAGE)])
            rows = {row.number: row for page in pages for row in page if row.number >= end}
            for _, row in sorted(rows.items(), reverse=True):
                self.searched = self.records + 1 - row.number
                if row.body.startswith(_ABOUT):
                    yield row.run, getattr(decode(row.body), "step", "")
            self.searched = self.records + 1 - end
            if self._progress is not None:
                self._progress(self.searched, self.records)


def _fits(query: EffectQuery, operation: OperationState, agent: str) -> bool:
    intent = operation.intent
    values = list(_values(msgspec.json.decode(intent.arguments)))
    whole = f"{bytes(intent.arguments).decode()}\n{bytes(operation.settlement.result).decode()}"
    return (
        (not query.key or _composed(query.key) == _composed(intent.claim))
        and query.tool in {"", intent.tool}
        and query.agent in {"", agent}
        and _begun_ms(operation) >= query.since_ms
        and (not query.to or _plain(query.to) in map(_plain, values))
        and (not query.text or _plain(_inside(query.text)) in _plain(whole))
    )


def _begun_ms(operation: OperationState) -> int:
    """The wall clock of its first attempt; of its outcome, where nothing was sent."""
    return operation.attempts[0].at if operation.attempts else operation.settlement.at


def _plain(text: str) -> str:
    return _composed(_composed(text).strip().casefold())


def _values(value: Any) -> Iterable[str]:
    """Every value in it, as text."""
    match value:
        case dict() | list():
            inside = cast("dict[str, Any] | list[Any]", value)
            for one in inside.values() if isinstance(inside, dict) else inside:
                yield from _values(one)
        case _:
            yield str(value)


def _found(history: RunHistory, agent: str, operation: OperationState) -> FoundEffect:
    intent, settled = operation.intent, operation.settlement
    undoing = history.operations.get(operation.links.compensated_by)
    undone = undoing is not None and undoing.phase == "succeeded" and operation.landed
    return FoundEffect(
        operation_id(history.run, operation.step), history.run, agent, intent.tool,
        "compensated" if undone else operation.phase, len(operation.attempts), _begun_ms(operation), intent.claim,
        intent.title, intent.arguments, settled.result, settled.at if operation.settled else 0,
        "" if undoing is None else operation_id(history.run, undoing.step),
    )  # fmt: skip
