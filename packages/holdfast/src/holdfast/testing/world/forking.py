"""A forked process that lives a life, sends one last message, and is killed by SIGKILL."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Final, NoReturn

from holdfast.errors import HoldfastError, UsageError

PATIENCE_S: Final = 120.0
"""The maximum time of a process, in real seconds, before it counts as hung."""

_BOUNDARY, _END, _MISUSE, _FAILURE = b"B", b"E", b"M", b"F"


class Line:
    """The connection of the forked process to the one that forked it."""

    def __init__(self, saying: int, leash: int) -> None:
        self._saying = saying
        self._leash = leash

    def say(self, kind: bytes, word: bytes) -> None:
        """Send the last message."""
        with os.fdopen(self._saying, "wb") as pipe:
            pipe.write(kind + word)

    def wait_for_death(self, word: bytes) -> NoReturn:
        """Send the last message, and wait until SIGKILL comes."""
        self.say(_BOUNDARY, word)
        os.read(self._leash, 1)  # returns only if the other process is gone, and then this one is not needed
        os._exit(1)


def last_word(live: Callable[[Line], bytes]) -> bytes:
    """Fork a process that runs `live`; return its last message. One that waits for its death, or hangs, is killed.

    Raises `UsageError` if the process reported one, `AssertionError` if it died by itself or failed.
    """
    hearing, saying = os.pipe()
    leash, held = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # threads of the test are not in the child, which needs none
        child = os.fork()
    if child == 0:
        os.close(hearing)
        os.close(held)
        _be_born(live, Line(saying, leash))
    os.close(saying)
    os.close(leash)
    try:
        said = _heard(hearing)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(hearing)
        os.close(held)
    return _understood(said, status)


def _be_born(live: Callable[[Line], bytes], line: Line) -> NoReturn:
    """Run the child from fork to natural end; it never returns into the test."""
    try:
        line.say(_END, live(line))
    except HoldfastError as error:
        line.say(_MISUSE, str(error).encode())
    except BaseException:  # noqa: BLE001 - any exception is reported to the test
        with contextlib.suppress(OSError, ValueError):
            line.say(_FAILURE, traceback.format_exc().encode())
    finally:
        os._exit(0)


def _heard(hearing: int) -> bytes:
    said, deadline = bytearray(), time.monotonic() + PATIENCE_S
    while True:
        ready, _, _ = select.select([hearing], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError(f"a process of the run says nothing for {PATIENCE_S:g} s: does its code block?")
        part = os.read(hearing, 1 << 20)
        if not part:
            return bytes(said)
        said += part


def _understood(said: bytes, status: int) -> bytes:
    kind, word = said[:1], said[1:]
    if kind == _MISUSE:
        raise UsageError(word.decode())
    if kind == _FAILURE:
        raise AssertionError(f"a process of the run failed by itself:\n{word.decode()}")
    if not kind:
        raise AssertionError(f"a process of the run died by itself: {os.waitstatus_to_exitcode(status)}")
    if kind == _BOUNDARY:
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"it was not killed: {status}"
    return word
