"""Errors over HTTP: what happened, what is known and what to do next, in the form of RFC 9457."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from beforehand.errors import (
    BeforehandError,
    JournalError,
    LeaseLost,
    NotAllowed,
    QueueDraining,
    QueueFull,
    RunBusy,
    SignInRefused,
    UnknownRun,
    UsageError,
)

MEDIA_TYPE: Final = "application/problem+json"
# A full queue has room as soon as a run of it starts; one that is drained waits for a person.
_RETRY_AFTER_S: Final[dict[type[BeforehandError], int]] = {QueueFull: 5, QueueDraining: 60}


class ProblemDetails(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An error (RFC 9457). `title` and `status` are HTTP's, `detail` says what happened.

    `error` names the class of it, `known` says what the journal proves, `next_step` what can be done.
    """

    title: str
    status: int
    detail: str
    error: str = ""
    known: str = ""
    next_step: str = ""


class ProblemResponse(BeforehandError):
    """A request that the server does not take as it is; `status` is HTTP's."""

    def __init__(self, status: int, message: str, *, known: str = "", next_step: str = "") -> None:
        super().__init__(message, known=known, next_step=next_step)
        self.status = status


def status_of(error: BeforehandError) -> int:
    """The HTTP status of an error."""
    match error:
        case ProblemResponse():
            return error.status
        case UnknownRun():
            return HTTPStatus.NOT_FOUND
        case NotAllowed():
            return HTTPStatus.FORBIDDEN
        case SignInRefused():
            return HTTPStatus.TOO_MANY_REQUESTS if error.retry_after else HTTPStatus.UNAUTHORIZED
        case QueueFull():
            return HTTPStatus.TOO_MANY_REQUESTS
        case QueueDraining():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case UsageError() | RunBusy() | LeaseLost():
            return HTTPStatus.CONFLICT
        case JournalError():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.CONFLICT


def headers_of(error: BeforehandError) -> dict[str, str]:
    """The headers of an error: when the same submission may be sent again."""
    seconds = _RETRY_AFTER_S.get(type(error))
    return {} if seconds is None else {"retry-after": str(seconds)}


def problem_of(error: BeforehandError) -> ProblemDetails:
    """The details of an error."""
    status = status_of(error)
    return ProblemDetails(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=error.message,
        error=type(error).__name__,
        known=error.known,
        next_step=error.next_step,
    )


def plain_problem(status: int, detail: str) -> ProblemDetails:
    """An error that HTTP has a name for."""
    return ProblemDetails(title=HTTPStatus(status).phrase, status=status, detail=detail)


def response_of(problem: ProblemDetails, headers: dict[str, str] | None = None) -> Response:
    """The problem as a response that is never cached."""
    kept = {"cache-control": "no-store"} | (headers or {})
    return Response(msgspec.json.encode(problem), problem.status, kept, MEDIA_TYPE)
