"""A small HTTP server for one page, `/metrics`. It needs no framework, so that a worker needs none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from beforehand.errors import UsageError

LARGEST: Final = 8192
"""The most bytes that a request may have."""
PATIENCE_S: Final = 5.0
"""How long a client may take for its request, and to receive the page."""
CONNECTIONS: Final = 16
"""How many clients are answered at once; further ones are closed."""
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of the page."""


def host_and_port(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or `PORT` of this machine alone. Raises `UsageError`."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host else "127.0.0.1"
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"{text!r} is not HOST:PORT", next_step="write it as 127.0.0.1:9464, or 9464")
    return host, int(port)


@asynccontextmanager
async def serving_metrics(where: tuple[str, int], page: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[int]:
    """Serve the page while inside; the port. Raises `UsageError` if the address cannot be used."""
    host, port = where
    answering: dict[asyncio.StreamWriter, asyncio.Future[None]] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = answering[writer] = asyncio.get_running_loop().create_future()
        try:
            if len(answering) <= CONNECTIONS:
                async with asyncio.timeout(PATIENCE_S):
                    writer.write(await _answer(reader, page))
                    await writer.drain()
        except (TimeoutError, ConnectionError):
            pass  # the client is slow or gone
        finally:
            del answering[writer]
            writer.close()
            over.set_result(None)

    try:
        server = await asyncio.start_server(answer, host, port, limit=LARGEST)
    except OSError as error:
        raise UsageError(
            f"metrics cannot be served on {host}:{port}: {error.strerror or error}",
            known="nothing was driven",
            next_step="choose another address: --metrics 127.0.0.1:0 takes any free port",
        ) from error
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        waiting = dict(answering)
        for writer in waiting:
            writer.transport.abort()  # its task ends by that: a cancelled one would be logged as an error
        if waiting:
            await asyncio.wait(waiting.values(), timeout=PATIENCE_S)


async def _answer(reader: asyncio.StreamReader, page: Callable[[], Awaitable[bytes]]) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
        return _response("400 Bad Request", b"not a request\n")
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path != b"/metrics":
        return _response("404 Not Found", b"the metrics are at /metrics\n")
    if method not in {b"GET", b"HEAD"}:
        return _response("405 Method Not Allowed", b"use GET\n", b"Allow: GET, HEAD\r\n")
    return _response("200 OK", await page(), empty=method == b"HEAD")


def _response(status: str, body: bytes, more: bytes = b"", *, empty: bool = False) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return head.encode() + more + b"\r\n" + (b"" if empty else body)
