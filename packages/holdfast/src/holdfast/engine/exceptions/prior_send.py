"""Signs of an earlier send inside one call, read from the frames that an exception passed through.

A client that follows redirects, answers an authentication challenge or retries by itself may fail to connect
on its second request. The exception then looks as if nothing had been sent. Clients do not say so in the
exception, but their frames still hold what they had received before; see the tests for each client.
A missed sign cannot be excluded (an unlisted client, frames cleared by a debugger), which is why
inner retries belong switched off in tools that write.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Final, TypeGuard

from holdfast.engine.exceptions.table import CLIENT_PACKAGES, RETRYING_PACKAGES

# The modules whose functions send more than one request for one call, and so remember earlier ones.
_SENDING_MODULES: Final = frozenset(
    {
        "aiobotocore.endpoint",
        "aiohttp.client",
        "aiohttp.client_middleware_digest_auth",
        "botocore.endpoint",
        "httpx._client",
        "httpx2._client",
        "requests.auth",
        "requests.sessions",
        "urllib.request",
        "urllib3.connectionpool",
        "urllib3.poolmanager",
    }
)

# Where a call enters a client. Twice in one traceback: the second was made while the first was being sent, by
# the code of a streamed body, an authentication or a hook.
_ENTRANCES: Final = frozenset(
    {
        ("aiohttp.client", "_request"),
        ("httpx._client", "send"),
        ("httpx2._client", "send"),
        ("requests.sessions", "send"),
        ("urllib.request", "open"),
    }
)

# The names under which they keep the answer to an earlier request.
_ANSWERS: Final = ("response", "resp", "r")

# Methods that aiohttp sends again by itself when a kept connection turns out to be closed.
_SENT_AGAIN_BY_AIOHTTP: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


def earlier_send(error: BaseException, unsent: Callable[[BaseException], bool]) -> str | None:
    """Evidence that a request was sent before the one that failed; None if there is none.

    `unsent` judges the errors of earlier tries that the client remembers.
    """
    entered = 0
    for frame in _frames(error):
        package = _package(frame)
        entered += (_module(frame), frame.f_code.co_name) in _ENTRANCES
        if entered > 1:
            return "it was raised while the client was in the middle of another request"
        if package in RETRYING_PACKAGES:
            return f"{package} may have called it before, and earlier tries cannot be seen"
        if _module(frame) in _SENDING_MODULES and (sign := _sign(frame.f_locals, unsent)) is not None:
            return sign
    return None


def caught_by_client(error: BaseException) -> bool:
    """True if a client library caught `error` itself: the outermost frame it reached is the library's."""
    outermost = next(_frames(error), None)
    return outermost is not None and _package(outermost) in CLIENT_PACKAGES


def sent_before(error: BaseException) -> bool:
    """True if the answer that `error` carries was not the first, as far as its frames show."""
    return any(
        _package(frame) in RETRYING_PACKAGES
        or (_module(frame) in _SENDING_MODULES and bool(frame.f_locals.get("history")))
        or frame.f_code.co_name == "http_error_302"  # urllib's one function for every redirect
        for frame in _frames(error)
    )


def _frames(error: BaseException) -> Iterator[FrameType]:
    here = error.__traceback__
    while here is not None:
        yield here.tb_frame
        here = here.tb_next


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _module(frame: FrameType) -> str:
    name: object = frame.f_globals.get("__name__", "")
    return str(name)


def _sign(names: Mapping[str, object], unsent: Callable[[BaseException], bool]) -> str | None:
    if any(names.get(name) is not None for name in _ANSWERS):
        return "an earlier request of the same call was answered (redirect or challenge)"
    if _botocore_tried_before(names) or _aiohttp_sent_again(names):
        return "the client had sent the request before and tried again"
    if not all(unsent(tried) for tried in _urllib3_tries(names.get("retries"))):
        return "an earlier try of the client may have been sent"
    return None


def _botocore_tried_before(names: Mapping[str, object]) -> bool:
    attempts = names.get("attempts")
    return isinstance(attempts, int) and attempts > 1


def _aiohttp_sent_again(names: Mapping[str, object]) -> bool:
    """The flag starts as true for these methods and falls when the one retry is used."""
    return names.get("retry_persistent_connection") is False and names.get("method") in _SENT_AGAIN_BY_AIOHTTP


def _urllib3_tries(retries: object) -> Iterator[BaseException]:
    """The errors of earlier tries in `urllib3.Retry.history`; an entry without one was an answer."""
    history: object = getattr(retries, "history", ())
    if not _is_many(history):
        return
    for entry in history:
        error: object = getattr(entry, "error", None)
        yield error if isinstance(error, BaseException) else LookupError("an answer, not an error")


def _is_many(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, tuple | list)
