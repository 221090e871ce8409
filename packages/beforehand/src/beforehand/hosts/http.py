"""HTTP clients: the idempotency key of the current operation as a header of the request that makes its effect.

httpx (and httpx2) has a hook, requests an adapter, and aiohttp a trace. Each adds the header only to a request that
writes (POST, PUT, PATCH, DELETE) in an operation that writes. It also refuses a request after the attempt's send-by
deadline.

One operation is one effect, so one request of an attempt has its key. A second request is refused before it is sent. If
the key were derived from the order of requests, it would belong to another request once a later attempt skips the first
one, and the service would answer with the result of the first. An existing header is not changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from beforehand.engine.current_operation import AT
from beforehand.errors import UsageError

if TYPE_CHECKING:
    import aiohttp
    import httpx
    import requests.adapters

HEADER: Final = "Idempotency-Key"
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"})


def httpx_hook(header: str = HEADER) -> Callable[[httpx.Request], Awaitable[None]]:
    """A request hook: `httpx.AsyncClient(event_hooks={"request": [httpx_hook()]})`; also for `httpx.Client`."""

    def hook(request: httpx.Request) -> Awaitable[None]:
        try:
            body: bytes | None = request.content
        except RuntimeError:  # it is streamed, and not read yet
            body = None
        _add_key(header, request.headers, request.method, str(request.url), body)
        return _DONE

    return hook


def requests_adapter(
    header: str = HEADER,
    **options: Any,  # typed by the library
) -> requests.adapters.HTTPAdapter:
    """A transport adapter of requests, for `session.mount("https://", ...)`. `options` are those of `HTTPAdapter`."""
    from requests.adapters import HTTPAdapter  # noqa: PLC0415 - imported where it is used

    class IdempotencyAdapter(HTTPAdapter):
        """An adapter that adds the key before it sends."""

        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            """Send the request with the key."""
            body = request.body if isinstance(request.body, (bytes, str)) else None if request.body else b""
            _add_key(header, request.headers, request.method or "", request.url or "", body)
            return super().send(request, *args, **kwargs)

    return IdempotencyAdapter(**options)


def aiohttp_trace(header: str = HEADER) -> aiohttp.TraceConfig:
    """A trace: `aiohttp.ClientSession(trace_configs=[aiohttp_trace()])`. It does not see bodies of requests."""
    from aiohttp import TraceConfig  # noqa: PLC0415 - imported where it is used

    async def started(_session: Any, _context: Any, request: Any) -> None:
        _add_key(header, request.headers, request.method, str(request.url), None)

    trace = TraceConfig()
    trace.on_request_start.append(started)
    return trace


class _Done:
    """Awaited by a client whose hooks are coroutines, and ignored by one whose hooks are functions."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE: Final = _Done()


def _add_key(header: str, headers: MutableMapping[str, str], method: str, url: str, body: bytes | str | None) -> None:
    """Add the key of the current operation, if this request makes its effect. `body` None: it is not known."""
    operation = AT.get()
    if operation is None or not operation.writes or method.upper() in _READS:
        return
    if header not in headers:
        request = (method.upper(), url, body)
        # A client that sends the same request again repeats the effect under one key.
        if operation.request is not None and (body is None or operation.request != request):
            first = " ".join(str(part) for part in operation.request[:2])
            raise UsageError(
                f"{operation.id} sends a second request that writes: {method} {url}",
                known=f"it was not sent; one operation is one effect, and {first} has its key",
                next_step=f'write a tool for each of them, or give this one a {header} of its own: "fee-" + '
                "current_operation().key",
            )
        operation.request = request
        headers[header] = operation.key
    operation.check_send()
