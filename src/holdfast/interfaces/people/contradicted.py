"""Contradictions in the ledger: which are open, and what was answered. Reading them needs no engine."""

from __future__ import annotations

from holdfast.journal.bodies import readable
from holdfast.journal.port import Entry, Journal
from holdfast.model.contradiction import ANSWERED, CONTRADICTED, Opened, contradiction_stream


async def open_contradictions(journal: Journal) -> list[Opened]:
    """The newest contradiction of each operation that has one without an answer, the oldest first."""
    return await _open(journal, CONTRADICTED)


async def contradicted_steps(journal: Journal) -> dict[str, list[str]]:
    """The steps with an open contradiction, by run."""
    found: dict[str, list[str]] = {}
    for one in await open_contradictions(journal):
        found.setdefault(one.run, []).append(one.step)
    return found


async def is_open(journal: Journal, run: str, step: str) -> bool:
    """Whether an operation has a contradiction without an answer."""
    return bool(await _open(journal, contradiction_stream(run, step)))


async def answers_to_contradictions(journal: Journal, run: str, step: str) -> list[Entry]:
    """The answers about one operation, in order."""
    entries = await journal.entries(contradiction_stream(run, step))
    return [entry for entry in entries if entry.key.startswith(ANSWERED)]


async def _open(journal: Journal, stream: str) -> list[Opened]:
    newest: dict[str, Opened] = {}
    for entry in await journal.entries(stream):
        if not entry.key.startswith(ANSWERED):
            for _, one in await readable(journal, (entry,), Opened):
                newest[entry.stream] = one
        elif (opened := newest.get(entry.stream)) is not None and opened.number <= int(entry.key[len(ANSWERED) :]):
            del newest[entry.stream]
    return list(newest.values())
