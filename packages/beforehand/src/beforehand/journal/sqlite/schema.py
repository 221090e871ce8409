"""Creating and migrating a journal file.

Migrations only go forward. Each is a file of SQL whose checksum is stored with it, so that a schema
which was changed by hand or by a different release is noticed; all that are pending are applied in
one transaction when a journal is opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from pkgutil import get_data
from typing import NamedTuple

import msgspec

from beforehand import former_name
from beforehand.errors import JournalError
from beforehand.journal.sqlite.driver import Database

APPLICATION_ID = 0x42464844  # "BFHD": lets `file` and us tell a journal from any other database

VERSION_1 = "da7dcd3b721d3108c15e0332972b810f198a287770341468ef3030cfd867734f"
HISTORY = (
    "create table if not exists migration"
    " (version integer primary key, name text not null, checksum text not null, applied_ms integer not null)"
)


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema. Its checksums cover every byte, comments included.

    With an `upgrade` its `sql` is the whole schema up to there, for a new file; a file of the version before, with the
    checksum `before`, is brought there by the upgrade.
    """

    version: int
    name: str
    sql: str
    upgrade: str = ""
    before: str = ""

    @property
    def checksums(self) -> tuple[str, ...]:
        """Those of a new file, and of one that was upgraded."""
        return sha256(self.sql.encode()).hexdigest(), sha256(self.upgrade.encode()).hexdigest()


class Around(NamedTuple):
    """The part of a migration that knows the machine: `upgrade` may refuse, `create` names a new journal."""

    upgrade: Callable[[], None]
    create: Callable[[], None]


def shipped() -> tuple[Migration, ...]:
    """The migrations of this release, oldest first."""
    return (Migration(2, "sqlite.sql", _read("sqlite.sql"), _read("cells.sql"), VERSION_1),)


def _read(name: str) -> str:
    sql = get_data("beforehand.journal.sqlite", name)  # importlib.resources is slow to import
    assert sql is not None
    return sql.decode()


def is_blank(database: Database) -> bool:
    """True if the file holds nothing yet: new, or left by a crash before its first commit."""
    return not database.rows("select 1 from sqlite_master limit 1")


def check_is_journal(database: Database, path: Path) -> None:
    """Raise `JournalError` for a database that belongs to something else."""
    ((found,),) = database.rows("pragma application_id")
    assert isinstance(found, int)
    former_name.check_journal(found, path)
    if found != APPLICATION_ID:
        raise JournalError(
            f"{path} is a SQLite database, but not a Beforehand journal",
            next_step="name another file; nothing was changed in this one",
        )


def migrate(database: Database, path: Path, wall_ms: int, migrations: Sequence[Migration], around: Around) -> None:
    """Bring the schema up to date in one transaction, which `around` joins. Nothing pending: only checks.

    Raises `JournalError` for a schema newer than this release, or one whose history differs.
    """
    ((found,),) = database.rows("pragma user_version")
    assert isinstance(found, int)
    if found > (newest := migrations[-1].version):
        raise JournalError(
            f"{path} has schema version {found}; this release knows {newest}",
            next_step="upgrade Beforehand here, or use the release that wrote the file",
        )
    pending = [step for step in migrations if step.version > found]
    if found:
        known = [(step.version, step.name, step.checksums) for step in migrations if step not in pending]
        known += [(found, step.name, (step.before,)) for step in pending if step.before]
        _check_history(database, path, known)
    if not pending:
        return
    database.rows("begin immediate")
    if found:
        around.upgrade()
    database.rows(f"pragma application_id = {APPLICATION_ID}")
    database.rows(HISTORY)
    for step in pending:
        upgrades = bool(found and step.upgrade)
        for statement in statements(step.upgrade if upgrades else step.sql):
            database.rows(statement)
        database.change(
            "insert into migration (version, name, checksum, applied_ms) values (?, ?, ?, ?)",
            (step.version, step.name, step.checksums[upgrades], wall_ms),
        )
    database.rows(f"pragma user_version = {newest}")
    if not found:
        around.create()
    database.rows("commit")


def statements(sql: str) -> list[str]:
    """The statements of a script, cut where SQLite says that one is complete."""
    found, current = list[str](), ""
    for line in sql.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    if any(line.strip() and not line.strip().startswith("--") for line in current.splitlines()):
        found.append(current)
    return found


def _check_history(database: Database, path: Path, known: Sequence[tuple[int, str, tuple[str, ...]]]) -> None:
    applied = {row[0]: row[1] for row in database.rows("select version, checksum from migration")}
    for version, name, checksums in known:
        if version not in applied:
            raise JournalError(
                f"{path} is damaged: its list of migrations lacks {version} ({name})",
                next_step="keep a copy of the file as it is, and restore a backup",
            )
        if applied[version] not in checksums:
            raise JournalError(
                f"{path}: migration {version} ({name}) is not the one that this release ships",
                next_step="use the release that wrote the file, or restore the file from a backup",
            )
