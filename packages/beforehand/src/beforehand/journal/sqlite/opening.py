"""Opening a journal file: create, migrate, choose the journal mode, and detect a copy or a restored backup.

The caller holds the file lock, so no other process creates, recovers or switches at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import msgspec
from msgspec import field

from beforehand import former_name
from beforehand.errors import JournalError
from beforehand.journal import host
from beforehand.journal.host import HostFacts, this_host
from beforehand.journal.port import Identity, Trust, Worker
from beforehand.journal.sqlite import anchor, heads, schema
from beforehand.journal.sqlite.driver import Connect, Database, StandardDatabase, application_of, sidecar
from beforehand.journal.sqlite.failures import LOCK_LIMIT_S
from beforehand.journal.sqlite.schema import Migration
from beforehand.model.heads import Head

if TYPE_CHECKING:
    from beforehand.journal.sqlite.group_commit import MakeBackground

Mode = Literal["auto", "wal", "rollback"]
CommitsOn = Literal["auto", "loop", "thread"]

CHECKPOINT_PAGES = 1000
_GROWN_LOG = 32 + CHECKPOINT_PAGES * (24 + 4096)
_PATIENCE_MS = 5000
_FIXED_WAL_RESET = (3, 51, 3)
_UNPROVEN = (
    "this system does not prove that a process is dead: its runs are taken over when its lease ends, and a call that it"
    " had begun counts as over `pause_bound_ms` later"
)
_LEASED = "select id, machine, boot, pid_namespace, pid, started from worker where lease_boot = ? and lease_end_ms > ?"
_WorkerRow = tuple[str, str, str, str, int, int]
_MODES: dict[str, Mode] = {"wal": "wal", "delete": "rollback"}


class Parts(msgspec.Struct, frozen=True):
    """The replaceable parts of a journal. Tests put in another machine, another clock or a failing driver.

    `commits`: "loop" or "thread" force where commits are made; "auto" measures the disk. `behind` makes a replacement
    of the journal's thread; without it there is a real one. `lock_limit_s` is how long a write waits for another
    process.
    """

    commits: CommitsOn = "auto"
    connect: Connect = StandardDatabase
    here: HostFacts = field(default_factory=this_host)
    entropy: Callable[[int], str] = lambda size: os.urandom(size).hex()
    migrations: Sequence[Migration] = field(default_factory=schema.shipped)
    behind: MakeBackground | None = None
    lock_limit_s: float = LOCK_LIMIT_S


class FileSettings(msgspec.Struct, frozen=True):
    """The place of a journal file, and how to open it. `namespace` names a new journal; else one is minted."""

    path: Path
    anchor: Path
    mode: Mode = "auto"
    allow_network_filesystem: bool = False
    namespace: str | None = None
    parts: Parts = field(default_factory=Parts)


class Connections(msgspec.Struct, frozen=True):
    """An open journal: the connection that writes, the one that only reads, and the journal's identity.

    The one that writes is used under the committer's mutex, the one that reads only on the event loop. A statement that
    is under way on one thread keeps its snapshot: if two threads shared the connection, a read of the other one would
    not see what was committed since.
    """

    writer: Database
    reader: Database
    identity: Identity
    wal: bool
    inode: int


def open_files(settings: FileSettings) -> Connections:
    """Open, and on the first time create. Raises `JournalError` or lets `DatabaseFailure` pass."""
    path = settings.path
    is_new = _create_private(path)
    former_name.check_journal(application_of(path), path)  # before SQLite opens it, which may write
    writer, reader = settings.parts.connect(path, False), None
    try:
        _prepare(writer)
        _migrate(writer, settings)
        if is_new:
            anchor.sync_directory(path.parent)
        wal = _switch_mode(writer, settings) == "wal"
        for pragma in ("busy_timeout = 0", "wal_autocheckpoint = 0", "foreign_keys = off", "mmap_size = 0"):
            writer.rows(f"pragma {pragma}")
        writer.rows(f"pragma synchronous = {'full' if wal else 'extra'}")
        # Without a log, what a killed process left half written is rolled back by the next to read, too.
        _prepare(reader := settings.parts.connect(path, wal))
        reader.rows("pragma query_only = 1")
        identity = read_identity(reader, settings, _notices(reader, wal=wal))
    except BaseException:
        writer.close()
        if reader is not None:
            reader.close()
        raise
    return Connections(writer, reader, identity, wal, path.stat().st_ino)


def _prepare(connection: Database) -> None:
    # First of all: another process may be opening, closing or reading the file just now.
    connection.rows(f"pragma busy_timeout = {_PATIENCE_MS}")
    # EXTRA also syncs the directory when a rollback journal is deleted. Without it a power loss
    # could bring back the one used before the switch to WAL, and undo everything since.
    # FULLFSYNC syncs through the disk's own cache on macOS, and is ignored elsewhere.
    for pragma in ("synchronous = extra", "fullfsync = 1", "checkpoint_fullfsync = 1"):
        connection.rows(f"pragma {pragma}")


def check_place(settings: FileSettings) -> None:
    """Raise `JournalError` where a journal cannot or must not lie."""
    directory = settings.path.absolute().parent
    if not directory.is_dir():
        raise JournalError(
            f"{settings.path}: the directory {directory} does not exist", next_step=f"mkdir -p {directory}"
        )
    if settings.path.is_dir():
        raise JournalError(f"{settings.path} is a directory", next_step="name a file in it")
    kind = host.network_filesystem(directory)
    if kind and not settings.allow_network_filesystem:
        raise JournalError(
            f"{settings.path} lies on a network file system ({kind}), where locks and syncs cannot be relied on",
            next_step="use a local disk; the processes of one machine can share a journal",
        )


def read_identity(reader: Database, settings: FileSettings, notices: tuple[str, ...]) -> Identity:
    """The identity of the journal, and whether its anchor agrees. Raises `JournalError` where its table is damaged."""
    meta = {str(name): str(value) for name, value in reader.rows("select name, value from meta")}
    try:
        secret, namespace, incarnation = bytes.fromhex(meta["secret"]), meta["namespace"], meta["incarnation"]
        marked, doubt = meta["trust"], meta["reason"]
    except (KeyError, ValueError) as error:
        lost = f"lacks {error}" if isinstance(error, KeyError) else "has a secret that is not a hexadecimal number"
        raise JournalError(
            f"{settings.path} is damaged: its table meta {lost}",
            next_step="keep a copy of the file as it is, and restore a backup",
        ) from error
    found = measure(reader, settings, incarnation, end_of(reader))
    kept = anchor.load(settings.anchor)
    reason = anchor.doubt(kept, found, tails_at(reader, kept) if kept else anchor.LogEnds())
    trust: Trust = "distrustful"
    if not reason:
        trust, reason = ("doubtful", doubt) if marked == "doubtful" else ("trusted", "")
    return Identity(namespace, secret, incarnation, trust, reason, notices, settings.path)


def measure(
    database: Database, settings: FileSettings, incarnation: str, head: Head, missing: int = 0
) -> anchor.Anchor:
    """The anchor that this file should have where its log has come to `head`."""
    digest = _hash_at(database, "record", head.records) or ""
    entry_digest = _hash_at(database, "ledger", head.entries) or ""
    # Never opened: closing any descriptor of a file drops the locks that SQLite holds on it here.
    stat, here = settings.path.stat(), settings.parts.here
    return anchor.Anchor(
        incarnation, head.records, digest, stat.st_ino, stat.st_dev, here.machine, here.boot, head.entries,
        entry_digest, (head.records_hash, head.entries_hash), missing,
    )  # fmt: skip


def tails_at(reader: Database, kept: anchor.Anchor) -> anchor.LogEnds:
    """The end of the file, and its hashes at the record and the ledger entry that its anchor names."""
    end = end_of(reader)
    record_hash, entry_hash = _hash_at(reader, "record", kept.record), _hash_at(reader, "ledger", kept.entry)
    return anchor.LogEnds(end.records, end.entries, record_hash, entry_hash, heads.missing(reader))


def _create_private(path: Path) -> bool:
    """Create the file readable by its owner alone, as it holds the journal's secret. True if it was new."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return path.stat().st_size == 0
    return True


def _migrate(writer: Database, settings: FileSettings) -> None:
    if not schema.is_blank(writer):
        schema.check_is_journal(writer, settings.path)

    def create() -> None:
        mode = "wal" if settings.mode == "auto" else settings.mode
        for name, value in {
            "namespace": settings.namespace or settings.parts.entropy(8),
            "secret": settings.parts.entropy(32),
            "incarnation": settings.parts.entropy(8),
            "trust": "trusted",
            "reason": "",
            "mode": mode,
        }.items():
            writer.change("insert into meta (name, value) values (?, ?)", (name, value))

    def upgrade() -> None:
        here = settings.parts.here
        workers = writer.rows(_LEASED, (here.boot, here.uptime_ms()))
        leased = (Worker(*row) for row in cast("list[_WorkerRow]", workers))
        if pids := [str(worker.pid) for worker in leased if here.fate(worker) != "dead"]:
            raise JournalError(
                f"{settings.path} has the schema of an earlier release, and processes of that release use it:"
                f" {', '.join(pids)}",
                known="nothing was changed; their release could not read the present schema",
                next_step="stop these processes, and open the journal again",
            )

    parts = settings.parts
    around = schema.Around(upgrade, create)
    schema.migrate(writer, settings.path, parts.here.wall_ms(), parts.migrations, around)


def _switch_mode(writer: Database, settings: FileSettings) -> Mode:
    """Put the file into the mode that was asked for, or that it was created with."""
    ((kept,),) = writer.rows("select value from meta where name = 'mode'")
    ((current,),) = writer.rows("pragma journal_mode")
    wanted = str(kept) if settings.mode == "auto" else settings.mode
    if _MODES.get(str(current)) != wanted:
        name = "wal" if wanted == "wal" else "delete"
        ((current,),) = writer.rows(f"pragma journal_mode = {name}")
        if current != name:
            raise JournalError(
                f"{settings.path} cannot change to {wanted} mode while others have it open",
                next_step="close the other processes first",
            )
    if kept != wanted:
        writer.change("update meta set value = ? where name = 'mode'", (wanted,))
    return _MODES[str(current)]


def grow_log(path: Path) -> None:
    """Let the log have its full size: syncing a file that grows takes twice as long. Raises `OSError`.

    SQLite stops reading a log at the first frame that is not its own, so zeros at the end are nothing.
    """
    descriptor = os.open(sidecar(path, "-wal"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        if (missing := _GROWN_LOG - os.fstat(descriptor).st_size) > 0:
            os.write(descriptor, bytes(missing))
            host.sync(descriptor)
    finally:
        os.close(descriptor)


def end_of(database: Database) -> Head:
    """The largest number of each table; no hashes."""
    ((record, entry),) = database.rows(
        "select (select coalesce(max(id), 0) from record), (select coalesce(max(id), 0) from ledger)"
    )
    assert isinstance(record, int)
    assert isinstance(entry, int)
    return Head(record, entry)


def _hash_at(reader: Database, table: Literal["record", "ledger"], number: int) -> str | None:
    found = reader.rows(f"select hash from {table} where id = ?", (number,))  # noqa: S608 -- one of two names
    if not found:
        return None
    ((digest,),) = found
    assert isinstance(digest, bytes)
    return digest.hex()


def _notices(reader: Database, *, wal: bool) -> tuple[str, ...]:
    """The version of the library that is really in use, which need not be Python's own; and what cannot be proven."""
    ((answer,),) = reader.rows("select sqlite_version()")
    version = str(answer)
    library = f"SQLite {version} in WAL mode"
    if not wal:
        library = f"SQLite {version} in rollback mode: slower than WAL by about four times"
    elif tuple(int(part) for part in version.split(".")) < _FIXED_WAL_RESET:
        library += (
            ": this build has the WAL-reset bug (3.7.0 to 3.51.2), so writes and checkpoints of all processes take"
            " turns under a lock of our own; do not write to the file by other means while it is in use"
        )
    return (library,) if host.fate(host.this_process("")) == "alive" else (library, _UNPROVEN)
