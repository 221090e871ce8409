"""How a call ended: from a return value or an exception to an `End`.

The tool's own statements count first, then its classifier (`@tool(classify=)`), the answers it declared as refusals,
the classifiers of installed distributions (entry points of the group `beforehand.exceptions`), and the table of
well-known exceptions, where only failures before the first byte was written are not-sent. Anything unknown is
ambiguous: on a write, guessing is how effects are repeated.
"""

from __future__ import annotations

import asyncio
import logging
import math
import reprlib
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from beforehand.engine.exceptions.classify import classify
from beforehand.engine.exceptions.http import retry_after, status_code
from beforehand.engine.tool_protocol import Classifier, can_classify
from beforehand.errors import Ambiguous, BeforehandError, KeyInProgress, NotSent, Rejected, SendByPassed
from beforehand.model.contract import Contract
from beforehand.model.errors import LONGEST_WAIT_S, AmbiguousStep, ClaimUnproven, ReplayDiverged
from beforehand.model.records import End, Frame, Raw
from beforehand.model.values import ResultCodec

LOG: Final = logging.getLogger("beforehand")
RESULT_LIMIT: Final = 16 * 1024 * 1024
CLASSIFIERS: Final = "beforehand.exceptions"
"""The group of entry points by which an installed distribution classifies the exceptions of a client library."""


def end_of_value(codec: ResultCodec, value: Any) -> End:
    """The end of a call that returned. If the result cannot make the round trip, only the result is lost."""
    try:
        stored, _ = codec.round_trip(value)
    except Exception as error:  # noqa: BLE001 - results run code of their own; the effect is done all the same
        return End("returned", why=clean(f"the result could not be stored: {_text(error)}"), lost=True)
    if len(stored) > RESULT_LIMIT:
        why = f"the result has {len(stored)} bytes; the limit is {RESULT_LIMIT}: store it elsewhere, return where it is"
        return End("returned", why=why, lost=True)
    return End("returned", result=Raw(stored))


def end_of_error(contract: Contract, error: BaseException, sends: int = 0, classifier: Classifier | None = None) -> End:
    """The end of a call that raised, after it said `sends` times that it was about to send."""
    why = describe(error)
    if isinstance(error, SendByPassed) and sends > 1:
        return End("ambiguous", why=f"{why} (an earlier send of this attempt may have landed)")
    if (declared := _declared_end(error, why)) is not None:
        return declared
    if sends > 1 or isinstance(error, asyncio.CancelledError):
        return End("ambiguous", why=why)  # an earlier send may have landed, independent of the last answer
    return (
        (_classified(classifier, error, why) if classifier is not None else None)
        or _declared(contract, error, why)
        or next((end for one in installed_classifiers() if (end := _classified(one, error, why)) is not None), None)
        or End(classify(error).kind, why=why)
    )


def _declared_end(error: BaseException, why: str) -> End | None:
    """The end that one of our own exceptions states."""
    match error:
        case NotSent():
            return End("not_sent", why=why, retry_after_ms=_ms(error.retry_after))
        case Rejected():
            return End("rejected", why=clean(error.message), code=clean(error.code))
        case KeyInProgress():
            return End("key_in_progress", why=why, retry_after_ms=_ms(error.retry_after))
        case Ambiguous():
            return End("ambiguous", why=why)
        case _:
            return None


def _classified(classifier: Callable[[Exception], object], error: BaseException, why: str) -> End | None:
    """The end that a classifier states; None if it does not know the exception. One that fails proves nothing."""
    if not isinstance(error, Exception):
        return None
    try:
        known = classifier(error)
    except Exception as failure:  # noqa: BLE001 - an error of user code says nothing about the call
        return End("ambiguous", why=clean(f"{why}; classify raised {describe(failure)}"))
    if known is None:
        return None
    if (
        isinstance(known, BeforehandError)
        and (end := _declared_end(known, clean(f"{known.message} ({why})"))) is not None
    ):
        return end
    returned = f"{why}; classify returned {reprlib.repr(known)}, which says nothing about a call"
    return End("ambiguous", why=clean(returned))


@cache
def installed_classifiers() -> tuple[Classifier, ...]:
    """The classifiers of installed distributions, by name; read when the first exception asks for them.

    One that cannot be loaded is named in the log: its exceptions are ambiguous, which is safe.
    """
    found: list[Classifier] = []
    from importlib.metadata import entry_points  # noqa: PLC0415 - a seventh of the import, and needed after an error

    for point in sorted(entry_points(group=CLASSIFIERS), key=lambda one: one.name):
        try:
            loaded = point.load()
            if not can_classify(loaded):
                raise TypeError(f"{reprlib.repr(loaded)} is not a function of one exception")  # noqa: TRY301 - logged below
            found.append(loaded)
        except Exception as error:  # noqa: BLE001 - foreign code must not change what is known of a call
            LOG.warning("the entry point %s of %s cannot be used: %s", point.name, CLASSIFIERS, describe(error))
    return tuple(found)


def _declared(contract: Contract, error: BaseException, why: str) -> End | None:
    """The tool's declaration about this answer, if it is one."""
    status = status_code(error)
    if status is None:
        return None
    if contract.key is not None and status in contract.key.in_progress_statuses:
        return End("key_in_progress", why=why, code=str(status), retry_after_ms=_ms(retry_after(error)))
    for answer in contract.rejections:
        if answer.status == status:
            wait = _ms(retry_after(error)) if answer.means == "not_sent" else None
            return End(answer.means, why=why, code=str(status), retry_after_ms=wait)
    return None


def describe(error: BaseException) -> str:
    """One line for records and people: the kind of error and its text, cut to a readable length."""
    text = clean(_text(error))
    name = type(error).__name__
    return clean(f"{name}: {text}" if text else name)


def clean(text: object) -> str:
    """Foreign text, made fit for a record: no NUL, no lone surrogates, at most 500 characters.

    Total: what should be text and is not (a number as the code of a refusal) is written as text. A record of
    what a call said must not fail on how it was said.
    """
    kept = storable(text if isinstance(text, str) else _text(text))
    return kept if len(kept) <= 500 else kept[:497] + "..."


def storable(text: str) -> str:
    """The text without what a record cannot hold: NUL and lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _text(value: object) -> str:
    """The value as text; formatting it runs foreign code, which may fail."""
    try:
        return str(value)
    except Exception as failure:  # noqa: BLE001 - its error says nothing about the call
        return f"({type(value).__name__} has no text: {type(failure).__name__})"


def _ms(seconds: object) -> int | None:
    """Seconds as milliseconds, at most a year; None if the value is not a length of time."""
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        return None
    return int(min(max(0.0, seconds), LONGEST_WAIT_S) * 1000)


# --- exceptions of agent code --------------------------------------------------------------------------------------
# Their record: the type and message, and the last lines of code they came through. This is the only place where the
# text of such an exception is made. It is always bounded.


MOST_FRAMES: Final = 8
LONGEST_TEXT: Final = 200
_RUNTIME: Final = f"{Path(__file__).parents[2]}/"
_LIBRARIES: Final = tuple(
    f"{path}/" for path in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
)
_MISTAKES: Final = (
    AttributeError, ImportError, IndexError, KeyError, NameError, NotImplementedError, TypeError,
)  # fmt: skip


class RecordedError(msgspec.Struct, frozen=True):
    """An exception as a record holds it: what it says, and where it came from, the innermost frame last."""

    error: str
    frames: tuple[Frame, ...] = ()


def recorded_error(error: BaseException) -> RecordedError:
    """The exception, or the first of a group, for a record."""
    members = list(_first_of_each(error))
    text = "; the first of them: ".join(map(_recorded_text, members))
    found = [frame for one in members for frame in traceback.extract_tb(one.__traceback__)]
    own = [frame for frame in found if is_of_agents(frame.filename)]
    own = own or [frame for frame in found if not frame.filename.startswith(_RUNTIME)]
    return RecordedError(text, tuple(map(_frame, own[-MOST_FRAMES:])))


def _recorded_text(error: BaseException) -> str:
    """The text of one error. What to do after these stops is in `STOP_REASONS`: readers of the record print it."""
    if isinstance(error, (ReplayDiverged, AmbiguousStep, ClaimUnproven)):
        return clean(f"{type(error).__name__}: {BeforehandError(error.message, known=error.known)}")
    return describe(error)


def place_of_bug(error: Exception) -> str:
    """The line of the user's own code that has a mistake; empty for an exception of a library, or of another kind."""
    frames = traceback.extract_tb(error.__traceback__) if isinstance(error, _MISTAKES) else ()
    return str(_frame(frames[-1])) if frames and is_of_agents(frames[-1].filename) else ""


def is_of_agents(file: str) -> bool:
    """True if code in this file is neither the runtime's nor a library's."""
    return not file.startswith((_RUNTIME, *_LIBRARIES, "<frozen ")) and "-packages/" not in file


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
