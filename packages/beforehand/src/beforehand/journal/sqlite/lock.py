"""One writer at a time among all processes on a file: an advisory lock on a file of its own.

SQLite 3.7.0 to 3.51.2 can corrupt a database in WAL mode when one connection resets the log at the instant when another
writes. Every process that writes, checkpoints, recovers or closes last holds this lock meanwhile, so that instant does
not exist. It also replaces "database is locked" by waiting.

`flock` belongs to an open file, not to a process: two journals in one process exclude each other,
and closing some other descriptor of the same file does not drop the lock, as `fcntl` locks would.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from beforehand.errors import JournalError

try:
    import fcntl
except ModuleNotFoundError:
    raise JournalError(
        "a journal in a file needs flock(2), a lock that ends with its process, which Windows does not have",
        known="nothing was opened or changed",
        next_step="use Linux; on Windows, inside WSL 2",
    ) from None

_FIRST_PAUSE_S = 0.0002
_LONGEST_PAUSE_S = 0.01


class FileLock:
    """The lock beside one journal file. Not reentrant; the holder's mutex keeps its threads apart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._never = threading.Event()

    def open(self) -> None:
        """Create the lock file if need be. Raises OSError."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def try_take(self) -> bool:
        """Take the lock if it is free; never waits."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def take(self, limit_s: float) -> bool:
        """Take the lock, waiting at most about `limit_s` seconds; blocks the calling thread.

        There is no blocking `flock` with a limit, so this asks again with growing pauses.
        """
        pause, waited = _FIRST_PAUSE_S, 0.0
        while not self.try_take():
            if waited >= limit_s:
                return False
            self._never.wait(pause)
            waited += pause
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)
        return True

    def release(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def is_orphan(self) -> bool:
        """True if the lock file was deleted: later processes lock another file, so the lock excludes no process."""
        return os.fstat(self._descriptor).st_nlink == 0

    def close(self) -> None:
        """Release the file. It stays: removing it would let two holders lock two different files."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
