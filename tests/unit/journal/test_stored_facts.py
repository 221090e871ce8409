"""After each commit of one story, both stores know the same facts as the dictionaries that the rules are tested with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from beforehand.errors import BeforehandError
from beforehand.journal.host import HostFacts
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import (
    Cell,
    ClaimRequest,
    ClockReading,
    Firing,
    HintRequest,
    Journal,
    Lease,
    NewRun,
    Permit,
    PermitRequest,
    Post,
    Posts,
    QueuePlace,
    ReleaseRequest,
    Row,
    RunChange,
    SlowRequest,
    Write,
)
from beforehand.journal.requests import CommitFacts
from beforehand.journal.sqlite.driver import StandardDatabase
from beforehand.journal.sqlite.facts import SqliteFacts
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.journal.sqlite.runs import RunTables
from beforehand.model.cell_limit import CellLimit
from beforehand.model.shared_use import Charge
from tests.unit.journal.commit_facts import DictFacts

MOMENT: Final = 1_000
LIMITS: Final = (CellLimit("tool", 2), CellLimit("rate", None, 1_000_000_000, 3, 2))
MAIL, WEB = QueuePlace("mail", "acme", "k", 1), QueuePlace("web", priority=-1)


def row(seq: int, token: int = 1) -> Row:
    return Row(seq, b"%d" % seq, bytes([seq]) * 32, token)


def held(number: int, token: int, *rows: Row, change: RunChange | None = None, **more: Any) -> Write:
    """A write to the run with this number."""
    return Write(Lease(f"r{number}", number, token, "w"), rows, change, **more)


def submits(number: int, place: QueuePlace) -> ClaimRequest:
    change = RunChange("queued", due_ms=9, release=True)
    return ClaimRequest(f"r{number}", "w", NewRun("desk", (row(1),), change, place=place))


def fires(moment_ms: int, run: str = "r1") -> ClaimRequest:
    return ClaimRequest(run, "w", NewRun("desk", firing=Firing("nightly", moment_ms)))


def charges(*changes: tuple[int, int]) -> tuple[Charge, ...]:
    return tuple(Charge("team", "2026", "tokens", used, reserved, 10) for used, reserved in changes)


STORY: Final[tuple[Any, ...]] = (
    ClaimRequest("r1", "w", NewRun("desk", (row(1),), program="shop")),
    held(1, 1, row(2), row(3), posts=(Post("s", "k", b"1"), Post("s", "", b"2"), Post("s", "", b"2"))),
    held(1, 1, row(5), posts=(Post("s", "never", b"1"),), charges=charges((1, 1))),  # a number too late
    held(1, 1, charges=charges((4, 5))),
    held(1, 1, charges=charges((1, -9))),
    held(1, 1, charges=charges((5, 0), (1, 0))),  # the second of them comes to the limit
    held(1, 1, row(4), change=RunChange("suspended", "why", 77, b'["x"]', release=True)),
    held(1, 1, row(5)),  # a late owner
    ClaimRequest("r1", "v"),
    held(1, 3, row(5, 3), posts=(Post("queues/x", "k", b"1"),)),
    submits(2, MAIL),
    submits(3, MAIL),
    submits(4, WEB),
    ClaimRequest("r2", "w"),
    held(2, 3, change=RunChange("running")),
    held(2, 3, row(2, 3), change=RunChange("suspended", due_ms=5, release=True)),
    ClaimRequest("r3", "w"),
    held(3, 3, change=RunChange("suspended", leaves_queue=True)),
    Posts((Post("t", "k", b"1"), Post("s", "k", b"1"))),  # one of them is taken
    Posts((Post("t", "k", b"1"), Post("t", "k2", b"2"), Post("s/t", "", b"3"))),
    Post("t", "k", b"9"),
    HintRequest("h", b"1", None),
    HintRequest("h", b"2", None),
    HintRequest("h", b"3", b"1"),
    HintRequest("h/i", b"4", None),
    PermitRequest(Permit("w", 1, "r1/1"), LIMITS, 0),
    PermitRequest(Permit("w", 2, "r1/2"), LIMITS[:1], 0),
    PermitRequest(Permit("w", 3, "r1/3"), LIMITS, 0),  # there is no place
    ReleaseRequest(Permit("w", 1), {"tool": None, "rate": 1}),
    ReleaseRequest(Permit("w", 1), {"tool": None, "rate": 1}),
    SlowRequest(("tool", "rate"), 50),
    fires(MOMENT + 1),  # it is still to come
    fires(MOMENT),
    fires(MOMENT, "r9"),  # at the very moment at which it fired
    fires(MOMENT - 1, "r9"),
    ClaimRequest("r5", "w", NewRun("desk", firing=Firing("night", MOMENT - 1))),
    ClaimRequest("r6", "w", NewRun("desk", firing=Firing("night", MOMENT))),
    Post("queues", "", b"{}"),
    Post("schedules", "", b"{}"),
    Post("queues", "", b"{}"),
    held(1, 3, row(6, 3), declared=0),
    fires(MOMENT, "r9"),
)  # fmt: skip


def known(facts: CommitFacts) -> dict[str, Any]:
    """All that the story is about, as this store knows it. Keys and names beside it are not taken for it."""
    leases = [Lease("", number, token, "") for number in range(1, 6) for token in (1, 2, 3)]
    names = [(kind, name) for kind, name in (
        ("counter", "team 2026"), ("once", "nightly"), ("once", "night"), ("hint", "h"), ("slot", "tool"),
        ("slot", "rate"), ("rate", "tool"), ("rate", "rate"), ("rate", "h"),
    )]  # fmt: skip
    lines = [facts.leased(lease) for lease in leases]
    return {
        "runs": [facts.run(f"r{number}") for number in range(1, 10)],
        "lines": lines,
        "last": [facts.last(line.row) for line in lines if line],
        "next": [facts.next_seq(lease) for lease, line in zip(leases, lines, strict=True) if line],
        "newest": [facts.newest(stream) for stream in ("s", "t", "s/t", "queues", "schedules", "queues/x", "none")],
        "entries": [facts.entry(stream, key) for stream in ("s", "t", "s/t") for key in ("k", "k2", "never")],
        "new entry": facts.new_entry(),
        "cells": [dict(facts.cells(kind, name)) for kind, name in names],  # type: ignore[arg-type]  # kinds, as above
        "last key": [
            facts.last_key("once", name, f"{moment:016}")
            for name in ("nightly", "night") for moment in (0, MOMENT - 1, MOMENT, MOMENT + 1)
        ],
        "waiting": [facts.waiting(queue) for queue in ("mail", "web", "", "none")],
    }  # fmt: skip


async def check_reads(journal: Journal, plain: DictFacts) -> None:
    """Cells by their names, by the beginning of a name, and up to a key, at each of its boundaries."""
    for kind in ("counter", "rate", "slot", "once", "hint"):
        cells = sorted((Cell(k, name, key, body) for (k, name, key), body in plain.stored.items() if k == kind),
                       key=lambda cell: (cell.name, cell.key))  # fmt: skip
        names = sorted({cell.name for cell in cells})
        assert await journal.cells(kind) == cells
        assert await journal.cells(kind, []) == []
        for part in {name[:size] for name in names for size in range(len(name) + 1)} | {f"{name} " for name in names}:
            assert await journal.cells(kind, below=part) == [cell for cell in cells if cell.name.startswith(part)]
            assert await journal.cells(kind, [part, "none"]) == [cell for cell in cells if cell.name == part]
        for until in ["", *(cell.key[:-1] for cell in cells), *(cell.key for cell in cells), "~"]:
            last = {cell.name: cell for cell in cells if cell.key <= until}
            assert await journal.cells(kind, names[::-1], until=until) == list(last.values())


async def outcome(commit: Any, request: Any) -> Any:
    try:
        answer = commit(request)
        return await answer if asyncio.iscoroutine(answer) else answer
    except BeforehandError as error:
        return type(error).__name__


def test_both_stores_know_what_the_rules_have_decided(tmp_path: Path) -> None:
    here = HostFacts("m", "memory1", lambda: MOMENT, lambda: MOMENT, lambda _: "unknown")
    path = tmp_path / "journal.db"
    memory, sqlite = MemoryJournal(lambda: MOMENT), SqliteJournal(path, parts=Parts(here=here, commits="loop"))
    plain = DictFacts(MOMENT, ClockReading("memory1", MOMENT, MOMENT, MOMENT))
    worker = plain.worker
    plain.worker = lambda name: (type(worker(name)[0])(name), worker(name)[1])  # type: ignore[method-assign]  # without its process

    async def main() -> None:
        await memory.open()
        await sqlite.open()
        reader, roll = StandardDatabase(path, True), RunTables(here, lambda: "1")
        for number, request in enumerate(STORY, 1):
            answers = [await outcome(store.commit, request) for store in (plain, memory, sqlite)]
            assert answers[1:] == answers[:1] * 2, (number, request)
            expected = known(plain)
            assert known(memory._facts()) == expected, (number, request)
            for place in (None, (99, 99)):  # what is known of a run under another token is void
                assert known(SqliteFacts(reader, roll, place)) == expected, (number, request)
        for store in (memory, sqlite):
            await check_reads(store, plain)
        reader.close()
        await sqlite.close()

    asyncio.run(main())
