"""The shipped conformance suite, over every journal in every way it can be run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import ClassVar

import pytest

from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import Journal
from beforehand.journal.sqlite.apsw_driver import ApswDatabase
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.testing.conformance import JournalConformance


class TestMemoryJournal(JournalConformance):
    known: ClassVar[dict[Path, MemoryJournal]] = {}

    @classmethod
    def make_journal(cls, place: Path) -> Journal:
        clock = itertools.count()
        return cls.known.setdefault(place, MemoryJournal(lambda: next(clock)))


@pytest.mark.slow
class TestSqliteJournal(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db")


@pytest.mark.slow
class TestSqliteJournalOnTheLoop(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", parts=Parts(commits="loop"))


@pytest.mark.slow
class TestSqliteJournalThroughItsThread(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", parts=Parts(commits="thread"))


@pytest.mark.slow
class TestSqliteJournalInRollbackMode(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", mode="rollback")


@pytest.mark.slow
class TestSqliteJournalInRollbackModeThroughItsThread(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", mode="rollback", parts=Parts(commits="thread"))


@pytest.mark.slow
class TestSqliteJournalThroughApsw(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", parts=Parts(connect=ApswDatabase))
