"""The number and the waiting time that an answer carried, where the exception of a client library holds one.

What a number *means* is declared per tool (`rejections`); without that it proves nothing, and `classify` calls
every answer ambiguous. Numbers are those of the tool's own protocol: an HTTP status, an SMTP reply code, the
number of a gRPC status.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeGuard

from beforehand.engine.exceptions.classify import sent_before

_SECONDS: Final = re.compile(r"\s*([0-9]{1,10})\s*")


def status_code(error: BaseException) -> int | None:
    """The number that the other side answered with; None when there was no answer, or not to the one request.

    After a redirect the number belongs to the last hop and the effect to the first; after an inner retry it says
    nothing about the tries before. Exceptions of SDKs count when they carry the `response` of httpx, httpx2 or
    requests.
    """
    if sent_before(error):
        return None
    for name in _names(error):
        if (reader := _NUMBERS.get(name)) is not None:
            return reader(error)
    return _response_status(error)


def retry_after(error: BaseException) -> float | None:
    """How many seconds the other side asked us to wait, from `Retry-After` (RFC 9110, 10.2.3); never negative.

    A date is measured against the answer's own `Date`, so that our clock plays no part; without one it is None.
    """
    headers = _headers(error)
    return seconds_asked(_header(headers, "retry-after"), _header(headers, "date"))


def seconds_asked(asked: str | None, date: str | None) -> float | None:
    """The seconds that the headers `Retry-After` and `Date` of one answer ask for; None if they do not say it."""
    if asked is None:
        return None
    if (seconds := _SECONDS.fullmatch(asked)) is not None:
        return float(seconds[1])
    return _seconds_between(date, asked)


def _seconds_between(start: str | None, end: str) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - a slow import for a rare answer

    if start is None:
        return None
    try:
        seconds = (parsedate_to_datetime(end) - parsedate_to_datetime(start)).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _response_status(error: BaseException) -> int | None:
    response: object = getattr(error, "response", None)
    if not _RESPONSES.intersection(_names(response)) or _was_redirected(response) or _was_retried(response):
        return None
    return _number(getattr(response, "status_code", None))


def _aiohttp_status(error: BaseException) -> int | None:
    return None if _was_redirected(error) else _number(getattr(error, "status", None))


def _botocore_status(error: BaseException) -> int | None:
    metadata = _botocore_metadata(error)
    return None if metadata.get("RetryAttempts") else _number(metadata.get("HTTPStatusCode"))


def _grpc_status(error: BaseException) -> int | None:
    code: object = getattr(error, "code", None)
    value: object = getattr(code(), "value", None) if callable(code) else None
    return _number(value[0]) if _is_many(value) and value else None


def _code(name: str) -> Callable[[BaseException], int | None]:
    return lambda error: _number(getattr(error, name, None))


def _no_answer(_: BaseException) -> None:
    """No number: a proxy answered, or only the body of the answer was bad, so the service itself gave no verdict."""


_NUMBERS: Final[dict[str, Callable[[BaseException], int | None]]] = {
    "aiohttp.client_exceptions.ClientHttpProxyError": _no_answer,
    "aiohttp.client_exceptions.ContentTypeError": _no_answer,
    "aiohttp.client_exceptions.ClientResponseError": _aiohttp_status,
    "aiosmtplib.errors.SMTPResponseException": _code("code"),
    "botocore.exceptions.ClientError": _botocore_status,
    "grpc.RpcError": _grpc_status,
    "smtplib.SMTPResponseException": _code("smtp_code"),
    "urllib.error.HTTPError": _code("code"),
}

_RESPONSES: Final = frozenset({"httpx.Response", "httpx2.Response", "requests.models.Response"})


def _was_redirected(answer: object) -> bool:
    """True if an earlier hop of `answer` was a redirect; a challenge (401, 407) is the same request again."""
    history: object = getattr(answer, "history", ())
    hops = list(history) if _is_many(history) else []
    statuses = [getattr(hop, "status_code", getattr(hop, "status", None)) for hop in hops]
    return any(isinstance(status, int) and 300 <= status < 400 for status in statuses)


def _was_retried(response: object) -> bool:
    """True if urllib3 had sent the request of a requests response before."""
    retries: object = getattr(getattr(response, "raw", None), "retries", None)
    return bool(getattr(retries, "history", ()))


def _headers(error: BaseException) -> object:
    response: object = getattr(error, "response", None)
    if _RESPONSES.intersection(_names(response)):
        return getattr(response, "headers", None)
    if "botocore.exceptions.ClientError" in _names(error):
        return _botocore_metadata(error).get("HTTPHeaders")
    return getattr(error, "headers", None)


def _botocore_metadata(error: BaseException) -> Mapping[str, object]:
    response: object = getattr(error, "response", None)
    metadata = response.get("ResponseMetadata") if _is_mapping(response) else None
    return metadata if _is_mapping(metadata) else {}


def _header(headers: object, name: str) -> str | None:
    """The header `name`, in upper or lower case."""
    get: object = getattr(headers, "items", None)
    items: object = get() if callable(get) else ()
    pairs = items if _is_iterable(items) else ()
    found = [pair[1] for pair in pairs if _is_many(pair) and str(pair[0]).lower() == name]
    return str(found[0]) if found else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _names(value: object) -> list[str]:
    return [f"{base.__module__}.{base.__qualname__}" for base in type(value).__mro__]


def _is_many(value: object) -> TypeGuard[tuple[object, ...] | list[object]]:
    return isinstance(value, tuple | list)


def _is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable)


def _is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)
