"""The shipped conformance suite, over every journal in every way it can be run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import ClassVar

from holdfast.journal.memory import MemoryJournal
from holdfast.journal.port import Journal
from holdfast.journal.sqlite.apsw_driver import ApswDatabase
from holdfast.journal.sqlite.journal import SqliteJournal
from holdfast.journal.sqlite.opening import Parts
from holdfast.testing.conformance import JournalConformance


class TestMemoryJournal(JournalConformance):
    known: ClassVar[dict[Path, MemoryJournal]] = {}

    @classmethod
    def make_journal(cls, place: Path) -> Journal:
        clock = itertools.count()
        return cls.known.setdefault(place, MemoryJournal(lambda: next(clock)))


class TestSqliteJournal(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db")


class TestSqliteJournalOnTheLoop(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", parts=Parts(commits="loop"))


class TestSqliteJournalThroughItsThread(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", parts=Parts(commits="thread"))


class TestSqliteJournalInRollbackMode(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", mode="rollback")


class TestSqliteJournalInRollbackModeThroughItsThread(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", mode="rollback", parts=Parts(commits="thread"))


class TestSqliteJournalThroughApsw(JournalConformance):
    @staticmethod
    def make_journal(place: Path) -> Journal:
        return SqliteJournal(place / "journal.db", parts=Parts(connect=ApswDatabase))
