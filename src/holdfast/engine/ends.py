"""How a call ended: from a return value or an exception to an `End`.

The tool's own words count first, then the answers it declared as refusals, then the table of
well-known exceptions, where only failures before the first byte was written are not-sent. Anything
unknown is ambiguous: on a write, guessing is how effects are repeated.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from holdfast.engine.tooling import Codec
from holdfast.engine.wellknown import classify
from holdfast.engine.wellknown_answers import retry_after, status_code
from holdfast.errors import Ambiguous, KeyInProgress, NotSent, Rejected, SendByPassed
from holdfast.model.contract import Contract
from holdfast.model.records import End, Raw

RESULT_LIMIT: Final = 16 * 1024 * 1024


def end_of_value(codec: Codec, value: Any) -> End:
    """The end of a call that returned. A result that cannot make the round trip is lost, not the effect."""
    try:
        stored, _ = codec.round_trip(value)
    except ValueError as error:
        return End("returned", why=f"the result could not be stored: {clean(str(error))}", lost=True)
    if len(stored) > RESULT_LIMIT:
        why = f"the result has {len(stored)} bytes; the limit is {RESULT_LIMIT}: store it elsewhere, return where it is"
        return End("returned", why=why, lost=True)
    return End("returned", result=Raw(stored))


def end_of_error(contract: Contract, error: BaseException, sends: int = 0) -> End:
    """The end of a call that raised, after it said `sends` times that it was about to send."""
    why = describe(error)
    match error:
        case SendByPassed() if sends > 1:
            return End("ambiguous", why=f"{why} (an earlier send of this attempt may have landed)")
        case NotSent():
            return End("not_sent", why=why, retry_after_ms=_ms(error.retry_after))
        case Rejected():
            return End("rejected", why=clean(error.message), code=clean(error.code))
        case KeyInProgress():
            return End("key_in_progress", why=why)
        case Ambiguous() | asyncio.CancelledError():
            return End("ambiguous", why=why)
        case _:
            if sends > 1:  # whatever the last answer was, an earlier send of this attempt may have landed
                return End("ambiguous", why=why)
            return _declared(contract, error, why) or End(classify(error).kind, why=why)


def _declared(contract: Contract, error: BaseException, why: str) -> End | None:
    """What the tool declared about this answer, if it is one."""
    status = status_code(error)
    if status is None:
        return None
    for answer in contract.rejections:
        if answer.status == status:
            wait = _ms(retry_after(error)) if answer.means == "not_sent" else None
            return End(answer.means, why=why, code=str(status), retry_after_ms=wait)
    return None


def describe(error: BaseException) -> str:
    """One line for records and people: the kind of error and its text, cut to a readable length."""
    text = clean(str(error))
    name = type(error).__name__
    return clean(f"{name}: {text}" if text else name)


def clean(text: str) -> str:
    """Text of somebody else's making, fit for a record: no NUL, no lone surrogates, no more than 500 characters."""
    kept = text.replace("\0", "").encode("utf-8", "replace").decode()
    return kept if len(kept) <= 500 else kept[:497] + "..."


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else max(0, int(seconds * 1000))
