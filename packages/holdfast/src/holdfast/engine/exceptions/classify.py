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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard

from holdfast.engine.exceptions.prior_send import caught_by_client, earlier_send
from holdfast.engine.exceptions.table import BY_NAME, ExceptionRule

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
