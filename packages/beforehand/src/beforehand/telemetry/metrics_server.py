"""A small HTTP server for the few pages of a worker, as `/metrics`. It needs no framework, so a worker needs none."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from beforehand.errors import UsageError
from beforehand.model.addresses import is_loopback

LARGEST: Final = 8192
"""The most bytes that a request may have."""
PATIENCE_S: Final = 5.0
"""How long a client may take for its request, and to receive the page."""
CONNECTIONS: Final = 16
"""How many clients are answered at once; further ones are closed."""
_HOST: Final = re.compile(rb"^host:[ \t]*(\[[^\]\r]*\]|[^:\r]*)", re.IGNORECASE | re.MULTILINE)
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of the pages."""

Page = Callable[[], Awaitable[tuple[str, bytes]]]
"""A page: its status, as `200 OK`, and its text."""


def host_and_port(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or `PORT`, of this machine alone. Raises `UsageError`."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host else "127.0.0.1"
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"{text!r} is not HOST:PORT", next_step="write it as 127.0.0.1:9464, or 9464")
    if not is_loopback(host):
        raise UsageError(
            f"metrics would cross the network in clear and without a sign-in, so they are not served on {host}",
            known="nothing was driven",
            next_step="serve them on 127.0.0.1, to a collector on this machine or a proxy with TLS and a sign-in",
        )
    return host, int(port)


@asynccontextmanager
async def serving(where: tuple[str, int], pages: Mapping[str, Page]) -> AsyncGenerator[int]:
    """Serve the pages, by their paths, while inside; the port. Raises `UsageError` if the address cannot be used."""
    host, port = where
    answering: dict[asyncio.StreamWriter, asyncio.Future[None]] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = answering[writer] = asyncio.get_running_loop().create_future()
        try:
            if len(answering) <= CONNECTIONS:
                async with asyncio.timeout(PATIENCE_S):
                    writer.write(await _answer(reader, pages))
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
            f"{' and '.join(pages)} cannot be served on {host}:{port}: {error.strerror or error}",
            known="nothing was driven",
            next_step="choose another address: 127.0.0.1:0 takes any free port",
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


async def _answer(reader: asyncio.StreamReader, pages: Mapping[str, Page]) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
        return _response("400 Bad Request", b"not a request\n")
    if not all(is_loopback(host.decode("latin-1")) for host in _HOST.findall(head)):
        return _response("421 Misdirected Request", b"the metrics are those of this machine\n")  # a page elsewhere asks
    method, _, rest = head.partition(b" ")
    page = pages.get(rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1"))
    if page is None:
        return _response("404 Not Found", f"the pages are {', '.join(pages)}\n".encode())
    if method not in {b"GET", b"HEAD"}:
        return _response("405 Method Not Allowed", b"use GET\n", b"Allow: GET, HEAD\r\n")
    status, body = await page()
    return _response(status, body, empty=method == b"HEAD")


def _response(status: str, body: bytes, more: bytes = b"", *, empty: bool = False) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return head.encode() + more + b"\r\n" + (b"" if empty else body)
