"""Both servers under clients that hold connections, over real sockets: silent ones, slow ones, ones that do not read."""

import asyncio
import socket
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import uvicorn

from holdfast import Holdfast
from holdfast.interfaces.accounts.entrance import Entrance
from holdfast.interfaces.accounts.site import loopback
from holdfast.interfaces.connections import Limits, server_config
from holdfast.interfaces.hooks import Hooks, Sender
from holdfast.interfaces.web.app import web
from tests.unit.interfaces.test_hooks import desk, memory, new_secret

SHORT = Limits(head_s=0.3, body_s=0.3, linger_s=0.2, read_s=0.3)
PATIENT = Limits(head_s=60, body_s=60)
SERVED = {"hooks": 405, "web": 303}
"""What a GET without anything is answered by a server that serves."""


@contextmanager
def serving(kind: str, limits: Limits) -> Generator[int]:
    """One of the two servers in a thread; its port."""
    line = socket.create_server(("127.0.0.1", 0))
    port: int = line.getsockname()[1]
    servers: list[uvicorn.Server] = []
    begun = threading.Event()

    async def serve() -> None:
        async with Holdfast(memory(), agents=[desk], recover=False) as app:
            if kind == "hooks":
                inside = Hooks(app.service, [Sender("bank", new_secret(), anything=True)])
            else:
                inside = web(app.service, Entrance(app.engine), loopback(port, "http"))
            servers.append(uvicorn.Server(server_config(inside, limits, lifespan="off")))
            begun.set()
            await servers[0].serve(sockets=[line])

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert begun.wait(20)
        yield port
    finally:
        servers[0].should_exit = servers[0].force_exit = True
        thread.join(20)
        line.close()


def status(port: int, source: str) -> int:
    transport = httpx.HTTPTransport(local_address=source)
    with httpx.Client(transport=transport, timeout=10, trust_env=False) as client:
        return client.get(f"http://127.0.0.1:{port}/").status_code


def connected(port: int, source: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))


def answer(line: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    got = b""
    while more := line.recv(4096):
        got += more
    return got


@pytest.mark.parametrize("kind", SERVED)
def test_silent_connections_of_one_address_do_not_keep_others_out(kind: str):
    with serving(kind, PATIENT) as port, ExitStack() as held:
        silent = [held.enter_context(connected(port, "127.0.0.1")) for _ in range(300)]
        assert status(port, "127.0.0.2") == SERVED[kind]
        assert answer(silent[-1]).startswith(b"HTTP/1.1 429 ")
        for line in silent:
            line.close()
        assert status(port, "127.0.0.1") == SERVED[kind], "its places are free again"


@pytest.mark.parametrize("kind", SERVED)
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHo"])
def test_a_head_that_does_not_come_is_cut_off(kind: str, sent: bytes):
    with serving(kind, SHORT) as port, connected(port, "127.0.0.1") as line:
        line.sendall(sent)
        assert answer(line).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("kind", SERVED)
def test_a_second_head_on_the_same_connection_has_its_deadline_too(kind: str):
    with serving(kind, SHORT) as port, connected(port, "127.0.0.1") as line:
        line.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\nG".encode())
        first, _, second = answer(line).partition(b"HTTP/1.1 408 ")
        assert first.startswith(f"HTTP/1.1 {SERVED[kind]} ".encode())
        assert second


@pytest.mark.parametrize("kind", SERVED)
def test_a_body_that_trickles_is_cut_off(kind: str):
    with serving(kind, SHORT) as port, connected(port, "127.0.0.1") as line:
        head = f"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n"
        line.sendall(f"{head}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\n".encode())
        got, line_is_open = b"", True
        line.settimeout(0.05)
        for _ in range(200):  # a byte now and then: it gains no time
            try:
                line.sendall(b"a")
                more = line.recv(4096)
                got, line_is_open = got + more, bool(more)
            except TimeoutError:
                continue
            except OSError:
                line_is_open = False
            if not line_is_open:
                break
        assert not line_is_open
        assert got.startswith(b"HTTP/1.1 408 ")
        assert status(port, "127.0.0.1") == SERVED[kind]
