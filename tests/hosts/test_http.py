"""The key of an operation on the wire: real clients, a real server on loopback, and SIGKILL at every boundary."""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import aiohttp
import httpx
import httpx2
import pytest
import requests

from beforehand import agent, tool
from beforehand.errors import SendByPassed, UsageError
from beforehand.hosts.http import aiohttp_trace, httpx_hook, requests_adapter
from beforehand.testing import operation
from tests.crash.stage import Zygote
from tests.hosts.children import Child, succeeds, warm
from tests.unit.engine.lab import Lab, virtual

INSIDE = (
    "before_intent",
    "after_intent",
    "before_send",
    "received",
    "landed",
    "after_send",
    "before_outcome",
    "after_outcome",
)
CELLS = [
    *(("keyed", point) for point in INSIDE),
    *(("plain", point) for point in ("after_intent", "received", "landed")),
    *(("verified", point) for point in ("received", "landed")),
    *((form, "landed") for form in ("requests", "aiohttp", "httpx")),
]
EACH = [
    pytest.param(form, point, marks=() if point == "landed" else pytest.mark.deep)  # the boundaries are of tests/crash
    for form, point in CELLS
]


class Request(NamedTuple):
    """One request, as the server received it."""

    method: str
    body: str
    key: str
    marker: str


class Server(ThreadingHTTPServer):
    """Pays, and keeps what it was asked. It pays once per key, and kills its client where it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[Request] = []
        self.paid: list[Request] = []
        self.kill = ""

    def die(self, place: str, body: str, pid: str | None) -> bool:
        if self.kill != place or body != "bob" or pid is None:
            return False
        self.kill = ""
        os.kill(int(pid), signal.SIGKILL)
        return True


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path = urlsplit(self.path)
        self.server.requests.append(Request("GET", "", self.headers.get("Idempotency-Key", ""), ""))
        marker = parse_qs(path.query).get("marker", ["-"])[0]
        self._answer(next((f"paid-{one.body}" for one in self.server.paid if one.marker == marker), ""))

    def do_POST(self) -> None:
        server, body = self.server, self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.path == "/moved":
            self.send_response(307)
            self.send_header("Location", "/pay")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        request = Request("POST", body, self.headers.get("Idempotency-Key", ""), self.headers.get("X-Marker", ""))
        server.requests.append(request)
        if server.die("received", body, self.headers.get("X-Pid")):
            return
        if not request.key or request.key not in {one.key for one in server.paid}:
            server.paid.append(request)
        if not server.die("landed", body, self.headers.get("X-Pid")):
            self._answer(f"paid-{body}")

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def process(directory: Path, server: Server, form: str, point: str) -> tuple[int | None, str]:
    server.kill = point if point in {"received", "landed"} else ""
    words = ("tests.hosts.http_program", directory, server.server_port, form, point)
    status, printed = Child(parent(), directory, *words).ended()
    return status, printed.strip()


def parent() -> Zygote:
    return warm(sys.executable, "beforehand.hosts.http", "requests", "aiohttp", "httpx", "tests.crash.points")


@pytest.mark.parametrize(("form", "point"), EACH)
def test_an_effect_is_made_once_wherever_its_process_is_killed(tmp_path: Path, server: Server, form: str, point: str):
    code, said = process(tmp_path, server, form, point)
    assert code == -signal.SIGKILL, said
    code, said = process(tmp_path, server, form, "")
    assert code == 0, said
    paid = Counter(one.body for one in server.paid)
    if form == "plain":
        assert said.startswith("waits: "), said
        assert "r1/pay#2" in said
        assert paid == ({"ann": 1} if point in {"after_intent", "received"} else {"ann": 1, "bob": 1})
        answer = "--happened" if paid["bob"] else "--did-not-happen"
        words = [
            "resolve",
            "r1/pay#2",
            answer,
            *(["--result", '"paid-bob"'] if paid["bob"] else ["--retry"]),
            "--by",
            "ann",
        ]
        succeeds(parent(), tmp_path, "beforehand", "--journal", tmp_path / "desk.db", *words)
        code, said = process(tmp_path, server, form, "")
    assert (code, said) == (0, "paid-ann paid-bob")
    assert Counter(one.body for one in server.paid) == {"ann": 1, "bob": 1}
    keys = {body: {one.key for one in server.requests if one.body == body} for body in ("ann", "bob")}
    assert all(len(found) == 1 and "" not in found for found in keys.values()), keys
    assert keys["ann"] != keys["bob"]
    assert all(not one.key for one in server.requests if one.method == "GET")


# --- the hooks themselves -----------------------------------------------------------------------------------------------


def address(server: Server, path: str = "/pay") -> str:
    return f"http://127.0.0.1:{server.server_port}{path}"


def post_httpx(server: Server, *paths: str, library: Any = httpx, method: str = "POST", **options: Any) -> None:
    with library.Client(event_hooks={"request": [httpx_hook(**options)]}, follow_redirects=True) as client:
        for path in paths:
            client.request(method, address(server, path), content="ann").raise_for_status()


def post_requests(server: Server, *paths: str, method: str = "POST", **options: Any) -> None:
    with requests.Session() as session:
        session.mount("http://", requests_adapter(**options))
        for path in paths:
            session.request(method, address(server, path), data="ann").raise_for_status()


async def post_aiohttp(server: Server, *paths: str, method: str = "POST", **options: Any) -> None:
    async with aiohttp.ClientSession(trace_configs=[aiohttp_trace(**options)]) as session:
        for path in paths:
            async with session.request(method, address(server, path), data="ann") as answer:
                await answer.text()


async def post(client: str, server: Server, *paths: str, **options: Any) -> None:
    if client == "aiohttp":
        await post_aiohttp(server, *paths, **options)
    elif client == "requests":
        post_requests(server, *paths, **options)
    else:
        post_httpx(server, *paths, library={"httpx": httpx, "httpx2": httpx2}[client], **options)


CLIENTS = pytest.mark.parametrize("client", ["httpx", "httpx2", "requests", "aiohttp"])


@CLIENTS
@pytest.mark.anyio
async def test_a_write_has_the_key_and_a_read_and_code_outside_an_operation_have_none(client: str, server: Server):
    await post(client, server, "/pay")
    with operation(key="k-1") as current:
        await post(client, server, "/pay", method="GET")
        assert not current.key_read
        await post(client, server, "/pay")
        assert current.key_read
        assert current.sends == 1
    assert [(one.method, one.key) for one in server.requests] == [("POST", ""), ("GET", ""), ("POST", "k-1")]


@CLIENTS
@pytest.mark.anyio
async def test_the_header_can_be_named_and_a_redirected_request_keeps_its_key(client: str, server: Server):
    with operation(key="k-2"):
        await post(client, server, "/moved", header="X-Marker")
    assert [(one.key, one.marker) for one in server.requests] == [("", "k-2")]


@CLIENTS
@pytest.mark.anyio
async def test_a_second_request_that_writes_is_refused_before_it_is_sent(client: str, server: Server):
    with operation(key="k-3"), pytest.raises(UsageError, match="sends a second request that writes") as error:
        await post(client, server, "/pay", "/pay?fee")
    assert "it was not sent" in error.value.known
    assert [one.key for one in server.requests] == ["k-3"]


@pytest.mark.parametrize("client", ["httpx", "requests"])
@pytest.mark.anyio
async def test_a_client_that_sends_the_same_request_again_repeats_it_under_one_key(client: str, server: Server):
    with operation(key="k-4"):
        await post(client, server, "/pay", "/pay")
    assert [one.key for one in server.requests] == ["k-4", "k-4"]
    assert len(server.paid) == 1


@pytest.mark.anyio
async def test_a_header_that_is_there_already_stays_and_a_streamed_body_is_never_taken_for_the_same(server: Server):
    async def stream() -> Any:
        yield b"ann"

    with operation(key="k-5"):
        async with httpx.AsyncClient(event_hooks={"request": [httpx_hook()]}) as client:
            await client.post(address(server), content="ann")
            await client.post(address(server), content="fee", headers={"idempotency-key": "fee-k-5"})
            with pytest.raises(UsageError, match="second request"):
                await client.post(address(server), content=stream())
    assert [one.key for one in server.requests] == ["k-5", "fee-k-5"]


@CLIENTS
@pytest.mark.anyio
async def test_nothing_is_sent_after_the_send_by_deadline(client: str, server: Server):
    with operation(left_ms=0), pytest.raises(SendByPassed):
        await post(client, server, "/pay")
    assert server.requests == []


@virtual
async def test_an_operation_that_reads_sends_no_key(lab: Lab):
    hook = httpx_hook()

    @tool(effect="read")
    async def search(text: str) -> list[str]:
        request = httpx.Request("POST", "http://example.com/search", content=text)
        await hook(request)
        return [name for name in request.headers if name == "idempotency-key"]

    @tool
    async def write(text: str) -> list[str]:
        request = httpx.Request("POST", "http://example.com/write", content=text)
        await hook(request)
        return [name for name in request.headers if name == "idempotency-key"]

    @agent(run_id="r-{name}", tools=[search, write])
    async def desk(run: Any, name: str) -> list[list[str]]:
        return [await search(name), await write(name)]

    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == [[], ["idempotency-key"]]
