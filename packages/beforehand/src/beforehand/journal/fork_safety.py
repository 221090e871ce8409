"""Fork safety: a forked child inherits open journals and apps, and must not use them.

The lock file of a journal is locked through an open file that parent and child share, so a child that kept it open
would keep the journal locked after its parent's death. SQLite's connections must not be used after a fork, and not be
closed either: the last one to close would write the log into the file by what it knew before the fork. So the child
closes the lock file, keeps the connections as they are for as long as it lives, and every use raises an error.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet

from beforehand.errors import UsageError

NEXT_STEP: Final = "open one of its own in the child: Beforehand(...) after the fork, or start the child by spawn"


class Disowned(Protocol):
    """An object that is open in one process."""

    def disown(self) -> None:
        """Give up what was inherited. Called in the child, before anything else runs there."""
        ...


_OPEN: Final[WeakSet[Disowned]] = WeakSet()
_KEPT: Final[list[object]] = []


def belongs_here(opened: Disowned) -> None:
    """Register an object: a forked child of this process disowns it."""
    _OPEN.add(opened)


def inherited_app() -> UsageError:
    """The error of every use of an app that the parent of this process opened."""
    return UsageError(
        "this app was opened before this process was forked",
        known="nothing was sent or recorded; the parent goes on with it",
        next_step=NEXT_STEP,
    )


def keep_for_ever(inherited: object) -> None:
    """Never let it be collected, not even when the interpreter ends: its end would close what it holds."""
    _KEPT.append(inherited)
    try:
        from _ctypes import Py_INCREF  # noqa: PLC0415 - loaded only in a child that was forked with an open journal
    except ImportError:  # a build without ctypes: kept until the interpreter ends
        return
    Py_INCREF(inherited)


def _in_child() -> None:
    for opened in list(_OPEN):
        opened.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
