"""The journal on SQLite: one file, many processes of one machine."""

from holdfast.journal.sqlite.journal import SqliteJournal
from holdfast.journal.sqlite.opening import Parts

__all__ = ["Parts", "SqliteJournal"]
