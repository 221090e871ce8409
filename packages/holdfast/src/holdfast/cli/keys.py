"""Single keys of a terminal. It stays in one mode between two keys, so that nothing typed quickly is lost."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from holdfast.engine.tool_protocol import wake

_LONGEST: Final = 64  # bytes that are read at once
Mode: TypeAlias = list[Any]  # as termios gives it


class Keys:
    """The keys that are typed while `typed_keys` lasts."""

    def __init__(self, terminal: int, before: Mode) -> None:
        self._terminal = terminal
        self._before = before
        self._waiting = ""

    async def next(self) -> str:
        """The next key, or the whole sequence of one that sends several signs; empty where the terminal is gone.

        The process goes on meanwhile: it has a lease to renew.
        """
        if not self._waiting:
            await self._typed()
            self._waiting = os.read(self._terminal, _LONGEST).decode("utf-8", "replace")
        length = 3 if self._waiting.startswith("\x1b[") else 1
        key, self._waiting = self._waiting[:length], self._waiting[length:]
        return key

    async def _typed(self) -> None:
        loop = asyncio.get_running_loop()
        something: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._terminal, wake, something)
        try:
            await something
        finally:
            loop.remove_reader(self._terminal)

    @contextmanager
    def lines(self) -> Generator[None]:
        """For as long as whole lines are asked for."""
        termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)
        try:
            yield
        finally:
            _by_key(self._terminal)


@contextmanager
def typed_keys() -> Generator[Keys]:
    """Read key by key; the terminal is given back as it was."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    _by_key(terminal)
    try:
        yield Keys(terminal, before)
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _by_key(terminal: int) -> None:
    """Each key is read as it is typed, Ctrl-C too: a signal would have to wait for the next key."""
    tty.setcbreak(terminal, termios.TCSANOW)
    mode = termios.tcgetattr(terminal)
    mode[3] &= ~termios.ISIG
    termios.tcsetattr(terminal, termios.TCSANOW, mode)
