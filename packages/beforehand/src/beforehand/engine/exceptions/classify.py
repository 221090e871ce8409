"""Classifies the end of an attempt by exception: not sent, or ambiguous.

`classify` judges what a tool raised, after the tool's own statements (`NotSent`, `Rejected`, `Ambiguous`,
`KeyInProgress`) have been applied. It is right to say *ambiguous* too often and wrong to say *not sent* once:
a not-sent attempt is tried again without asking the world. So an exception is not sent only if

- its class, or the nearest of its bases, has a row in the table that says so,
- and everything it was raised from or while handling is not sent either, or was caught inside the client
  library on the way to it,
- and nothing shows that the same call had sent something before (a redirect, a challenge, an inner retry).

Everything else is ambiguous: classes without a row, programming errors (a `TypeError` may follow the send as
well as precede it), groups, and wrappers that the tool made itself, which should be `NotSent(...)` instead.
Two sends in one tool cannot be told apart: the second one's refused connection looks like the first one's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Final, Literal, TypeGuard

from beforehand.engine.exceptions.table import BY_NAME, CLIENT_PACKAGES, RETRYING_PACKAGES, ExceptionRule

Kind = Literal["not_sent", "ambiguous"]

# Exceptions of these modules are what client libraries catch and wrap: system calls, timers, parsing.
_LOW_LEVEL: Final = frozenset({"builtins", "socket", "ssl", "asyncio.exceptions"})

# Rules that already say where in a chain the reason was found.
_SAID_OF_THE_CHAIN: Final = frozenset({"context", "earlier-send"})


@dataclass(frozen=True, slots=True)
class Classification:
    """The verdict of an exception about its attempt, and the rule behind it.

    `rule` is the class whose row decided, or `unlisted`, `context`, `earlier-send`, `unreadable`.
    """

    kind: Kind
    why: str
    rule: str


def classify(error: BaseException) -> Classification:
    """Judge the end of an attempt by what its tool raised. Total: never raises, whatever it is given."""
    try:
        return _judge(error, _Walk(seen=set()))
    except Exception as failure:  # noqa: BLE001 - an exception's attributes may run any code, chains may be endless
        return Classification("ambiguous", f"reading it failed with {_name(type(failure))}", "unreadable")


@dataclass(frozen=True, slots=True)
class _Walk:
    """The walk down a chain of exceptions: those judged, and the row that vouches for the ones below."""

    seen: set[int]
    under: ExceptionRule | None = None


def _judge(error: BaseException, walk: _Walk) -> Classification:
    row = _row(type(error))
    if row is None:
        name = _name(type(error))
        return Classification("ambiguous", f"{name} says nothing about whether the effect was sent", "unlisted")
    if not _may_be_unsent(row, error):
        return Classification("ambiguous", row.why, row.name)
    walk.seen.add(id(error))
    sent = earlier_send(error, lambda tried: _is_unsent(tried, walk.seen))
    if sent is not None:
        return Classification("ambiguous", sent, "earlier-send")
    return _judge_chain(error, row, walk)


def _judge_chain(error: BaseException, row: ExceptionRule, walk: _Walk) -> Classification:
    below = _Walk(walk.seen, under=None if row.verdict == "inner" else row)
    if row.verdict == "inner" and all(id(linked) in walk.seen for linked in _linked(error)):
        return Classification("ambiguous", f"{row.why}; it wraps nothing here", row.name)
    for linked in _linked(error):
        if id(linked) in walk.seen:
            continue
        found = _judge_linked(linked, below)
        if found.kind == "ambiguous":
            return found if row.verdict == "inner" else _met_before(linked, found)
    return Classification("not_sent", row.why, row.name)


def _judge_linked(error: BaseException, walk: _Walk) -> Classification:
    """Judge an exception below another; one that the library caught itself is part of the failure it reported."""
    if walk.under is None or not _is_part_of(error, walk.under):
        return _judge(error, walk)
    walk.seen.add(id(error))
    for linked in _linked(error):
        if id(linked) in walk.seen:
            continue
        found = _judge_linked(linked, walk)
        if found.kind == "ambiguous":
            return _met_before(linked, found)
    return Classification("not_sent", walk.under.why, walk.under.name)


def _met_before(error: BaseException, found: Classification) -> Classification:
    """`found`, judged of `error`, as the reason for what was raised after it; named once, at its depth."""
    if found.rule in _SAID_OF_THE_CHAIN:
        return found
    return Classification("ambiguous", f"{_name(type(error))} came before it: {found.why}", "context")


def _is_part_of(error: BaseException, row: ExceptionRule) -> bool:
    if _name(type(error)) in row.covers:
        return caught_by_client(error)
    return type(error).__module__ in _LOW_LEVEL and caught_by_client(error)


def _may_be_unsent(row: ExceptionRule, error: BaseException) -> bool:
    if row.verdict == "connecting":
        # psycopg fills `pgconn` where a connection could not be made and nowhere else.
        return getattr(error, "pgconn", None) is not None
    return row.verdict != "ambiguous"


def _is_unsent(tried: BaseException, seen: set[int]) -> bool:
    """Judge an earlier try that a client remembers; the one that is being judged remembers itself."""
    return id(tried) in seen or _judge(tried, _Walk(seen)).kind == "not_sent"


def _linked(error: BaseException) -> Iterator[BaseException]:
    """Everything `error` was raised from, while handling, or around. `raise ... from None` hides nothing."""
    inside: object = error.exceptions if _is_group(error) else getattr(error, "reason", None)
    for linked in (error.__cause__, error.__context__, inside, *error.args):
        yield from _exceptions(linked)


def _exceptions(value: object) -> Iterator[BaseException]:
    if isinstance(value, BaseException):
        yield value
    elif _is_many(value):
        yield from (one for one in value if isinstance(one, BaseException))


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)


def _is_many(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, tuple | list)


def _row(kind: type[BaseException]) -> ExceptionRule | None:
    return next((row for base in kind.__mro__ if (row := BY_NAME.get(_name(base))) is not None), None)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# --- signs of an earlier send in one call --------------------------------------------------------------------------
# They are read from the frames that an exception passed through. A client that follows redirects, answers an
# authentication challenge or retries by itself may fail to connect on its second request. The exception then looks as
# if nothing had been sent. Clients do not say so in the exception, but their frames still hold what they had received
# before; see the tests for each client. A missed sign cannot be excluded (an unlisted client, frames cleared by a
# debugger), which is why inner retries belong switched off in tools that write.


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
    if not _is_iterable(history):
        return
    for entry in history:
        error: object = getattr(entry, "error", None)
        yield error if isinstance(error, BaseException) else LookupError("an answer, not an error")


def _is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, tuple | list)
