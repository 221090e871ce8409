"""A model of a disk under a journal: from the trace of a workload's file operations to the disks it may leave behind.

Data of a file is certain after it was synced; until then each write may be there, be missing, or be there in
some of its sectors. Names (created, removed, renamed) are certain after their directory was synced; until then
they come and go, in order (as journaling file systems have it) or each on its own (all that POSIX promises).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512

_CALL = re.compile(r"^(?P<at>\d+\.\d+) (?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+)")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_HANDLE = re.compile(r"^(?:\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>")


@dataclass(frozen=True)
class Create:
    name: str
    truncate: bool


@dataclass(frozen=True)
class Put:
    """`offset` None appends."""

    name: str
    data: bytes
    offset: int | None


@dataclass(frozen=True)
class Cut:
    name: str
    size: int


@dataclass(frozen=True)
class Sync:
    """Of a file, or of the directory where the name is empty."""

    name: str


@dataclass(frozen=True)
class Remove:
    name: str


@dataclass(frozen=True)
class Rename:
    name: str
    to: str


@dataclass(frozen=True)
class Say:
    """What the workload told the world at this point: from now on it must be true of every disk."""

    text: str


Operation = Create | Put | Cut | Sync | Remove | Rename | Say


def parse(traces: Iterable[Path], directory: Path) -> list[Operation]:
    """The operations on files of `directory`, in order, from the traces of `strace -ff -y -xx`."""
    lines = [line for trace in traces for line in trace.read_text().splitlines()]
    calls = [found for line in sorted(lines) if (found := _CALL.match(line)) and int(found["result"]) >= 0]
    return [operation for call in calls for operation in _operation(call["name"], call["arguments"], directory)]


def _operation(name: str, arguments: str, directory: Path) -> Iterator[Operation]:
    texts = [_bytes(text) for text in _STRING.findall(arguments)]
    handle = _HANDLE.match(arguments)
    place = Path(_bytes(handle[1]).decode()) if handle else Path()
    if name == "write" and arguments.startswith("1<"):
        yield from (Say(line) for line in texts[0].decode().splitlines())
    elif name == "openat":
        path = Path(texts[0].decode())
        if path.parent == directory and "O_CREAT" in arguments:
            yield Create(path.name, "O_TRUNC" in arguments)
    elif name in ("unlink", "rename"):
        paths = [Path(text.decode()) for text in texts]
        if paths[0].parent == directory:
            yield Remove(paths[0].name) if name == "unlink" else Rename(paths[0].name, paths[1].name)
    elif name in ("fsync", "fdatasync") and place == directory:
        yield Sync("")
    elif place.parent == directory:
        yield from _data_operation(name, arguments, place.name, texts)


def _data_operation(name: str, arguments: str, file: str, texts: list[bytes]) -> Iterator[Operation]:
    if name in ("fsync", "fdatasync"):
        yield Sync(file)
    elif name == "ftruncate":
        yield Cut(file, int(arguments.rsplit(",", 1)[1]))
    elif name == "write":
        yield Put(file, texts[0], None)
    elif name == "pwrite64":
        yield Put(file, texts[0], int(arguments.rsplit(",", 1)[1]))


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


@dataclass
class _File:
    """What is certain of a file, and what was done to it since its last sync."""

    certain: bytearray = field(default_factory=bytearray)
    pending: list[Put | Cut] = field(default_factory=list["Put | Cut"])
    size: int = 0  # with everything pending

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.certain, change)
        self.pending = []


class Disk:
    """Follows the operations; at any point it can say what may be found afterwards."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._names: dict[str, _File] = {}
        self._certain_names: dict[str, _File] = {}
        self._pending_names: list[tuple[str, _File | None]] = []

    def do(self, operation: Operation) -> None:
        """Let one operation happen."""
        match operation:
            case Say(text):
                self.said.append(text)
            case Create(name, truncate):
                self._create(name, truncate=truncate)
            case Put(name, data, offset):
                file = self._names[name]
                offset = file.size if offset is None else offset
                file.pending.append(Put(name, data, offset))
                file.size = max(file.size, offset + len(data))
            case Cut(name, size):
                self._names[name].pending.append(operation)
                self._names[name].size = size
            case Sync(""):
                self._certain_names, self._pending_names = dict(self._names), []
            case Sync(name):
                self._names[name].sync()
            case Remove(name):
                self._rename(name, None)
            case Rename(name, to):
                file = self._names[name]
                self._rename(name, None)
                self._rename(to, file)

    def after_kill(self) -> dict[str, bytes]:
        """The process is gone, the system lives: everything that was written is there."""
        found: dict[str, bytes] = {}
        for name, file in self._names.items():
            content = bytearray(file.certain)
            for change in file.pending:
                _apply(content, change)
            found[name] = bytes(content)
        return found

    def after_power_loss(self, chance: random.Random, *, ordered_names: bool) -> dict[str, bytes]:
        """Only what was synced is certain; of the rest, chance decides."""
        names = dict(self._certain_names)
        pending = self._pending_names
        if ordered_names:
            pending = pending[: chance.randint(0, len(pending))]
        else:
            pending = [change for change in pending if chance.random() < 0.5]
        for name, file in pending:
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file
        mood = chance.choice((0.0, 0.5, 0.9))
        return {name: _torn(file, chance, mood) for name, file in names.items()}

    def _create(self, name: str, *, truncate: bool) -> None:
        if name not in self._names:
            self._rename(name, _File())
        elif truncate:
            self._names[name].pending.append(Cut(name, 0))
            self._names[name].size = 0

    def _rename(self, name: str, file: _File | None) -> None:
        if file is None:
            del self._names[name]
        else:
            self._names[name] = file
        self._pending_names.append((name, file))


def _torn(file: _File, chance: random.Random, mood: float) -> bytes:
    """The certain content with a part of what is pending. `mood`: how likely each piece arrived."""
    content = bytearray(file.certain)
    for change in file.pending:
        fate = chance.random()
        if isinstance(change, Cut) or fate < mood:
            _apply(content, change)
        elif fate > (1 + mood) / 2:
            for piece in _sectors(change):
                if chance.random() < 0.5:
                    _apply(content, piece)
    return bytes(content)


def _sectors(change: Put) -> Iterator[Put]:
    assert change.offset is not None
    start, end = change.offset, change.offset + len(change.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield Put(change.name, change.data[start - change.offset : stop - change.offset], start)
        start = stop


def _apply(content: bytearray, change: Put | Cut) -> None:
    if isinstance(change, Cut):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
        return
    assert change.offset is not None
    content.extend(bytes(max(0, change.offset - len(content))))
    content[change.offset : change.offset + len(change.data)] = change.data
