"""The server of `/metrics`: each answer to the byte, the bounds of an address, and clients that say nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import Any

import pytest

from beforehand.errors import UsageError
from beforehand.telemetry import metrics_server
from beforehand.telemetry.metrics_server import TEXT, host_and_port, serving
from tests.unit.telemetry.test_prometheus import PAGES, asked


async def health() -> tuple[str, bytes]:
    return "503 Service Unavailable", "späť\n".encode()


TWO = {**PAGES, "/health": health}
METRICS, HEALTH = b"beforehand_runs 1\n", "späť\n".encode()
BAD, NONE, WRONG = b"not a request\n", b"the pages are /metrics, /health\n", b"the metrics are those of this machine\n"
ANSWERS: list[tuple[bytes, str, bytes, bytes]] = [
    (b"GET /metrics HTTP/1.1", "200 OK", b"", METRICS),
    (b"GET /metrics?x=1 HTTP/1.0", "200 OK", b"", METRICS),
    (b"GET /health HTTP/1.1", "503 Service Unavailable", b"", HEALTH),
    (b"GET /healthy HTTP/1.1", "404 Not Found", b"", NONE),
    (b"GET /Metrics HTTP/1.1", "404 Not Found", b"", NONE),
    (b"DELETE / HTTP/1.1", "404 Not Found", b"", NONE),
    (b"GET", "404 Not Found", b"", NONE),
    (b"POST /metrics HTTP/1.1", "405 Method Not Allowed", b"Allow: GET, HEAD\r\n", b"use GET\n"),
    (b"get /metrics HTTP/1.1", "405 Method Not Allowed", b"Allow: GET, HEAD\r\n", b"use GET\n"),
    (b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:80", "200 OK", b"", METRICS),
    (b"GET /metrics HTTP/1.1\r\nHOST:\t[::1]:80", "200 OK", b"", METRICS),
    (b"GET /metrics HTTP/1.1\r\nX-Host: evil.example", "200 OK", b"", METRICS),
    (b"GET /metrics HTTP/1.1\r\nHost: evil.example", "421 Misdirected Request", b"", WRONG),
    (b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.evil.example", "421 Misdirected Request", b"", WRONG),
    (b"GET /metrics HTTP/1.1\r\nHost: [fe80::1]", "421 Misdirected Request", b"", WRONG),
    (b"GET /metrics HTTP/1.1\r\nHost: \xff", "421 Misdirected Request", b"", WRONG),
    (b"GET /metrics HTTP/1.1\r\nHost:", "421 Misdirected Request", b"", WRONG),
    (b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nHost: evil.example", "421 Misdirected Request", b"", WRONG),
    (b"GET /metrics HTTP/1.1\r\nhost: evil.example\r\nHost: localhost", "421 Misdirected Request", b"", WRONG),
    (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9_000, "400 Bad Request", b"", BAD),
]


def test_each_answer_says_its_status_type_and_length_and_ends_the_connection():
    """A `HEAD` is answered like its `GET`, without the page."""

    def whole(status: str, more: bytes, body: bytes) -> bytes:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        return head.encode() + more + b"\r\n"

    async def main() -> None:
        async with serving(("127.0.0.1", 0), TWO) as port:
            for request, status, more, body in ANSWERS:
                assert await asked(port, request + b"\r\n\r\n") == whole(status, more, body) + body, request
            given = await asked(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
            assert given == whole("200 OK", b"", METRICS)
            longest = b"GET /metrics HTTP/1.1\r\nX: "
            longest += b"x" * (metrics_server.LARGEST - len(longest)) + b"\r\n\r\n"
            assert (await asked(port, longest))[9:12] == b"200", "of the longest request, its end included"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0", ("127.0.0.1", 0)),
        ("65535", ("127.0.0.1", 65_535)),
        (":80", ("127.0.0.1", 80)),
        ("localhost:1", ("localhost", 1)),
        ("::1:80", ("::1", 80)),
    ],
)
def test_the_highest_port_and_each_way_to_name_this_machine(text: str, address: tuple[str, int]):
    assert host_and_port(text) == address


@pytest.mark.parametrize("text", ["65536", "127.0.0.1:65536", "", "x", "127.0.0.1:", "127.0.0.1:+1", "80:80:", "1_0"])
def test_what_is_no_port_is_refused_with_an_example(text: str):
    with pytest.raises(UsageError, match="is not HOST:PORT") as refused:
        host_and_port(text)
    assert "127.0.0.1:9464, or 9464" in refused.value.next_step


def test_clients_that_say_nothing_keep_no_worker_from_its_end(monkeypatch: pytest.MonkeyPatch):
    """Nor from the next start: their connections are closed, and the address is free."""
    monkeypatch.setattr(metrics_server, "PATIENCE_S", 60.0)

    async def main() -> None:
        port = 0
        for _ in range(2):
            async with serving(("127.0.0.1", port), PAGES) as port:
                silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
                silent[0][1].write(b"GET /metrics HTTP")
                assert await asked(port, b"GET /metrics HTTP/1.1\r\n\r\n"), "it has seen those before"
            for reader, writer in silent:
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize(
    ("error", "words"),
    [(OSError(errno.EACCES, "Permission denied"), "Permission denied"), (OSError("no name"), "no name")],
)
def test_an_address_that_cannot_be_used_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
):
    async def refuse(*_: Any, **__: Any) -> None:
        raise error

    async def main() -> None:
        async with serving(("127.0.0.1", 80), TWO):
            pass

    monkeypatch.setattr(asyncio, "start_server", refuse)
    with pytest.raises(UsageError) as refused:
        asyncio.run(main())
    assert refused.value.message == f"/metrics and /health cannot be served on 127.0.0.1:80: {words}"
