"""The shipped suite of two journals on one store: on SQLite in two processes, in memory under two names.

A memory journal is of its process alone, so no second process can open it, and none can die.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import ClassVar

import pytest

from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import Journal
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.testing.fleet_conformance import FleetConformance, SharedStoreConformance


class TestOneMemoryJournalUnderTwoNames(SharedStoreConformance):
    known: ClassVar[dict[Path, MemoryJournal]] = {}

    @classmethod
    def make_journal(cls, place: Path) -> Journal:
        clock = itertools.count()
        return cls.known.setdefault(place, MemoryJournal(lambda: next(clock)))


@pytest.mark.slow
class TestTwoSqliteJournalsThroughThreads(SharedStoreConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", parts=Parts(commits="thread"))


@pytest.mark.slow
class TestSqliteFleet(FleetConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db")


@pytest.mark.slow
class TestSqliteFleetInRollbackMode(FleetConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", mode="rollback")
