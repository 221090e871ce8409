"""What an exception of agent code leaves on record: its type and message, and the last lines of code it came through.

This is the only place where the text of such an exception is made. It is bounded, whatever was raised.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import msgspec

from holdfast.engine.exceptions.call_end import describe, storable
from holdfast.model.records import Frame

MOST_FRAMES: Final = 8
LONGEST_TEXT: Final = 200
_RUNTIME: Final = f"{Path(__file__).parents[1]}/"
_LIBRARIES: Final = tuple(
    f"{path}/" for path in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
)


class RecordedError(msgspec.Struct, frozen=True):
    """An exception as a record holds it: what it says, and where it came from, the innermost frame last."""

    error: str
    frames: tuple[Frame, ...] = ()


def recorded_error(error: BaseException) -> RecordedError:
    """The exception, or the first of a group, for a record."""
    members = list(_first_of_each(error))
    text = "; the first of them: ".join(describe(one) for one in members)
    found = [frame for one in members for frame in traceback.extract_tb(one.__traceback__)]
    own = [frame for frame in found if is_of_agents(frame.filename)]
    own = own or [frame for frame in found if not frame.filename.startswith(_RUNTIME)]
    return RecordedError(text, tuple(map(_frame, own[-MOST_FRAMES:])))


def is_of_agents(file: str) -> bool:
    """Whether code in this file is neither the runtime's nor a library's."""
    return not file.startswith((_RUNTIME, *_LIBRARIES))


def _first_of_each(error: BaseException) -> Iterator[BaseException]:
    """The error itself, and where it is a group, the first of its members, and so on."""
    at = error
    for _ in range(MOST_FRAMES):
        yield at
        if not isinstance(at, BaseExceptionGroup):
            return
        at = cast("BaseExceptionGroup[BaseException]", at).exceptions[0]


def _frame(frame: traceback.FrameSummary) -> Frame:
    source = storable((frame.line or "").strip())[:LONGEST_TEXT]
    return Frame(
        storable(frame.filename)[-LONGEST_TEXT:], frame.lineno or 0, storable(frame.name)[:LONGEST_TEXT], source
    )
