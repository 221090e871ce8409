"""Runs over HTTP: the key names the run, and the response says how it is. Real servers in processes that are killed."""

import asyncio
import base64
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Host, Mount, Route

from beforehand import Beforehand, Deferred, Run, agent, tool
from beforehand.errors import ArgumentError, UsageError
from beforehand.hosts.starlette import Runs, webhooks
from beforehand.policies import RunBudget
from beforehand.webhooks.incoming import WebhookSender
from beforehand_console.web.server import mounted
from tests.hosts.children import Child, warm
from tests.hosts.world import effects

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Order(msgspec.Struct):
    to: str
    cents: int


PAID: list[str] = []


@tool
async def pay(to: str, cents: int) -> str:
    await asyncio.sleep(0)
    PAID.append(f"{to} {cents}")
    return f"paid {to}"


@tool(gate="true")
async def pay_much(to: str, cents: int) -> str:
    PAID.append(f"{to} {cents}")
    return f"paid {to}"


@tool
async def accepted(to: str) -> str:
    raise Deferred(key=f"bank-{to}", within=timedelta(days=1))


@agent(tools=[pay, pay_much, accepted])
async def order(run: Run, given: Order) -> str:
    if given.to == "bank":
        return await accepted(given.to)
    if given.to == "nowhere":
        raise LookupError("no such account")
    return await (pay_much if given.cents > 1000 else pay)(given.to, given.cents)


@agent
async def other(run: Run, given: str) -> str:
    return given


@agent
async def foreign(run: Run, given: str) -> str:
    return given


@contextlib.asynccontextmanager
async def serving(directory: Path, **options: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Beforehand]]:
    PAID.clear()
    desk = Beforehand(directory / "desk.db", agents=[order, other])
    runs = Runs(desk, **options)

    async def own(request: Request) -> Response:
        return await runs.respond(order, Order("own", 5), request, budget=RunBudget(effects=1))

    api = Starlette(routes=[Route("/own", own, methods=["POST"]), Mount("/runs", runs)])
    async with (
        desk.lifespan(api),
        httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://example.com") as client,
    ):
        yield client, desk


def body(to: str = "ann", cents: int = 5) -> dict[str, Any]:
    return {"json": {"to": to, "cents": cents}}


def key(name: str) -> dict[str, str]:
    return {"Idempotency-Key": name}


async def test_the_server_limits_the_runs_that_clients_begin(tmp_path: Path):
    async with serving(tmp_path, budget=RunBudget(effects=0)) as (client, desk):
        refused = await client.post("/runs/order", **body(), headers=key("k-1"))
        assert (refused.status_code, refused.json()["detail"]) == (500, "Its reason is: budget.")
        own = await client.post("/own", headers=key("k-2"))
        assert own.json()["result"] == "paid own"  # that endpoint gives a budget of its own
        assert PAID == ["own 5"]
        found = await desk.service.history("order:k-2")
        assert found.budget is not None
        assert found.budget.limits == RunBudget(effects=1)
    with pytest.raises(ArgumentError, match="budget="):
        Runs(Beforehand(tmp_path / "other.db", agents=[order]), budget="5")  # type: ignore[arg-type]  # the mistake under test


async def test_a_key_names_one_run_and_the_same_request_gets_the_same_result(tmp_path: Path):
    async with serving(tmp_path) as (client, _):
        first = await client.post("/runs/order", **body(), headers=key("k-1"))
        quoted = await client.post("/runs/order", **body(), headers=key('"k-1"'))
        shown = await client.get("/runs/order/k-1")
        assert first.status_code == 200
        assert first.json() == {"run": "order:k-1", "status": "completed", "result": "paid ann"}
        assert first.json() == quoted.json() == shown.json()
        second = await client.post("/runs/order", **body(), headers=key("k-2"))
        assert second.json()["run"] == "order:k-2"
    assert PAID == ["ann 5", "ann 5"]


async def test_a_key_with_another_body_is_refused(tmp_path: Path):
    async with serving(tmp_path) as (client, _):
        await client.post("/runs/order", **body(), headers=key("k-1"))
        refused = await client.post("/runs/order", **body(cents=6), headers=key("k-1"))
        assert refused.status_code == 422
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["title"] == "This Idempotency-Key was used with another body."
        both = await asyncio.gather(
            *(client.post("/runs/order", **body(cents=cents), headers=key("k-2")) for cents in (1, 2))
        )
        assert sorted(one.status_code for one in both) == [200, 422]
    assert len(PAID) == 2


async def test_two_requests_at_once_are_one_run(tmp_path: Path):
    async with serving(tmp_path) as (client, _):
        both = await asyncio.gather(*(client.post("/runs/order", **body(), headers=key("k")) for _ in range(5)))
    assert {one.status_code for one in both} == {200}
    assert PAID == ["ann 5"]


async def test_what_waits_is_202_with_an_address_that_later_has_the_result(tmp_path: Path):
    async with serving(tmp_path) as (client, desk):
        waits = await client.post("/runs/order", **body(cents=5000), headers=key("k-1"))
        assert (waits.status_code, waits.json()["status"]) == (202, "waiting")
        assert waits.headers["location"] == "/runs/order/k-1"
        assert (await client.get("/runs/order/k-1")).status_code == 202
        assert str(tmp_path) not in waits.text
        await desk.service.approve("order:k-1/pay_much#1", by="ann")
        await desk.resume("order:k-1")
        done = await client.get(waits.headers["location"])
        assert (done.status_code, done.json()["result"]) == (200, "paid ann")


async def test_a_run_that_takes_longer_than_the_request_waits_goes_on(tmp_path: Path):
    async with serving(tmp_path, wait=timedelta(0)) as (client, desk):
        early = await client.post("/runs/order", **body(), headers=key("k-1"))
        assert early.status_code == 202
        assert await desk.run(order, Order("ann", 5), run_id="order:k-1") == "paid ann"
        assert (await client.get("/runs/order/k-1")).status_code == 200
    assert PAID == ["ann 5"]


async def test_a_run_that_stopped_says_so_each_time_without_its_details(tmp_path: Path):
    async with serving(tmp_path) as (client, _):
        first = await client.post("/runs/order", **body("nowhere"), headers=key("k-1"))
        again = await client.post("/runs/order", **body("nowhere"), headers=key("k-1"))
        shown = await client.get("/runs/order/k-1")
    assert first.status_code == again.status_code == shown.status_code == 500
    assert first.json() == again.json() == shown.json()
    assert first.json()["run"] == "order:k-1"
    assert "no such account" not in first.text


@pytest.mark.parametrize("bad", ["", "  ", "a b", "a/b", "a#b", "k" * 200, "ключ", '""'])
async def test_a_key_that_is_missing_or_cannot_name_a_run_is_refused(tmp_path: Path, bad: str):
    async with serving(tmp_path) as (client, _):
        refused = await client.post("/runs/order", **body(), headers={"Idempotency-Key": bad.encode()} if bad else {})
        assert refused.status_code == 400
        assert "Idempotency-Key" in refused.json()["title"]
    assert PAID == []


async def test_other_bad_input(tmp_path: Path):
    async with serving(tmp_path) as (client, _):
        assert (await client.post("/runs/order", content=b"{", headers=key("k"))).status_code == 422
        assert (await client.post("/runs/order", json={"to": 5}, headers=key("k"))).status_code == 422
        missing = await client.post("/runs/nothing", **body(), headers=key("k"))
        assert (missing.status_code, missing.json()["detail"]) == (404, "The agents here are order, other.")
        assert (await client.get("/runs/nothing/k")).status_code == 404
        assert (await client.get("/runs/order/k")).status_code == 404
        assert (await client.get("/runs/order/a b")).status_code == 404
        assert (await client.get("/runs/order")).status_code == 405
    assert PAID == []


async def test_an_agent_of_another_app_is_refused_and_an_app_that_is_not_open_is_said(tmp_path: Path):
    desk, second = (
        Beforehand(tmp_path / "desk.db", agents=[order]),
        Beforehand(tmp_path / "second.db", agents=[foreign]),
    )
    with pytest.raises(UsageError, match="foreign is not in this app"):
        Runs(desk, agents=[foreign])
    runs = Runs(desk)
    api = Starlette(routes=[Mount("/runs", runs), Mount("/second", Runs(second))])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://example.com") as client:
        closed = await client.post("/runs/order", **body(), headers=key("k"))
        assert (closed.status_code, closed.json()["title"]) == (503, "This server is not ready.")
        async with desk, second:
            assert (await client.post("/runs/order", **body(), headers=key("k"))).status_code == 200
            assert (await client.post("/second/foreign", json="a", headers=key("k"))).json()["run"] == "foreign:k"


async def test_the_keys_of_two_clients_are_apart(tmp_path: Path):
    def who(request: Request) -> str:
        return request.headers["x-user"]

    async with serving(tmp_path, client=who) as (client, _):
        ann = await client.post("/runs/order", **body(), headers={**key("k"), "X-User": "ann"})
        bob = await client.post("/runs/order", **body("bob"), headers={**key("k"), "X-User": "bob / 7"})
        assert (ann.json()["result"], bob.json()["result"]) == ("paid ann", "paid bob")
        shown = await client.get("/runs/order/k", headers={"X-User": "ann"})
        assert shown.json()["result"] == "paid ann"


async def test_an_endpoint_of_your_own_answers_alike(tmp_path: Path):
    async with serving(tmp_path) as (client, _):
        answers = [await client.post("/own", headers=key("k-1")) for _ in range(2)]
        assert [one.json()["result"] for one in answers] == ["paid own", "paid own"]
        assert (await client.post("/own")).status_code == 400
    assert PAID == ["own 5"]


async def test_webhooks_are_mounted(tmp_path: Path):
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()
    async with serving(tmp_path) as (client, desk):
        assert (await client.post("/runs/order", **body("bank"), headers=key("k-1"))).status_code == 202
        hooks = Starlette(
            routes=[Mount("/hooks", webhooks(desk, [WebhookSender("bank", secret, tools=("accepted",))]))]
        )
        sent = '{"key": "bank-bank", "status": "succeeded", "result": "landed"}'
        now = datetime.now(UTC)
        signed = Webhook(secret).sign("m-1", now, sent)
        headers = {"webhook-id": "m-1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signed}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(hooks), base_url="http://example.com") as bank:
            assert (await bank.post("/hooks/", content=sent, headers=headers)).status_code < 300
        await desk.resume("order:k-1")
        assert (await client.get("/runs/order/k-1")).json()["result"] == "landed"


async def test_the_console_is_mounted_at_a_host_of_its_own(tmp_path: Path):
    desk = Beforehand(tmp_path / "desk.db", agents=[order])
    inbox = Host("inbox.example.com", mounted(desk, "https://inbox.example.com"))
    api = Starlette(routes=[inbox, Mount("/runs", Runs(desk))])
    async with desk, httpx.AsyncClient(transport=httpx.ASGITransport(api)) as client:
        refused = await client.get("https://inbox.example.com/api/v1/items")
        assert refused.status_code == 401
        entry = await client.get("https://inbox.example.com/", follow_redirects=True)
        assert (entry.status_code, "sign" in entry.text.lower()) == (200, True)
        other_host = await client.post("https://shop.example.com/runs/order", **body(), headers=key("k"))
        assert other_host.status_code == 200
    for bad in ([], ["http://inbox.example.com"], ["https://inbox.example.com/console"]):
        with pytest.raises(UsageError):
            mounted(desk, *bad)


# --- real servers, killed -----------------------------------------------------------------------------------------------


class Server:
    """One uvicorn in a process of its own, on a journal that it may share."""

    def __init__(self, directory: Path, kill: str = "") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        parent = warm(sys.executable, "uvicorn", "starlette.applications", "beforehand.hosts.starlette")
        self.process = Child(parent, directory, "tests.hosts.starlette_program", directory, self.port, kill)
        self.ended = False

    async def post(self, name: str, cents: int = 5) -> httpx.Response:
        async with httpx.AsyncClient(timeout=60) as client:
            for _ in range(600):
                with contextlib.suppress(httpx.ConnectError):
                    return await client.post(
                        f"http://127.0.0.1:{self.port}/runs/order",
                        json={"to": "ann", "cents": cents},
                        headers=key(name),
                    )
                await asyncio.sleep(0.1)
        raise AssertionError("the server does not listen")

    def status(self) -> int | None:
        """How the process ended, for which this waits."""
        self.ended = True
        return self.process.ended(60)[0]

    def end(self) -> None:
        if not self.ended:
            os.kill(self.process.pid, signal.SIGKILL)
            self.status()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Any]:
    started: list[Server] = []

    def start(kill: str = "") -> Server:
        started.append(Server(tmp_path, kill))
        return started[-1]

    yield start
    for server in started:
        server.end()


@pytest.mark.parametrize("kill", ["before", "after"])
async def test_a_server_that_is_killed_pays_once(tmp_path: Path, servers: Any, kill: str):
    first = servers(kill)
    with pytest.raises(httpx.TransportError):
        await first.post("k-1")
    assert first.status() == -signal.SIGKILL
    answer = await servers().post("k-1")
    assert (answer.status_code, answer.json()["result"]) == (200, "paid ann"), answer.text
    assert [one["what"] for one in effects(tmp_path / "witness")] == ["ann 5"]


async def test_two_processes_on_one_journal_are_one_run_and_refuse_another_body(tmp_path: Path, servers: Any):
    one, two = servers(), servers()
    answers = await asyncio.gather(*(server.post("k-1") for server in (one, two, one, two)))
    assert {answer.json().get("result") for answer in answers} == {"paid ann"}, [a.text for a in answers]
    assert (await two.post("k-1", cents=6)).status_code == 422
    assert [one["what"] for one in effects(tmp_path / "witness")] == ["ann 5"]


async def test_a_client_that_leaves_does_not_end_the_run(tmp_path: Path, servers: Any):
    server = servers("slow")
    await server.post("warm", cents=1)
    async with httpx.AsyncClient(timeout=0.5) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(
                f"http://127.0.0.1:{server.port}/runs/order", json={"to": "ann", "cents": 7}, headers=key("k-1")
            )
    answer = await server.post("k-1", cents=7)
    assert answer.json()["result"] == "paid ann"
    assert [one["what"] for one in effects(tmp_path / "witness")] == ["ann 1", "ann 7"]


async def test_a_body_is_counted_while_it_is_read(tmp_path: Path):
    async with Beforehand(str(tmp_path / "desk.db"), agents=[other], recover=False) as app:
        read, status = 0, 0

        async def receive() -> dict[str, Any]:
            nonlocal read
            read += 1
            return {"type": "http.request", "body": b"x" * 65_536, "more_body": True}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        scope = {
            "type": "http", "method": "POST", "path": f"/{other.name}", "root_path": "", "query_string": b"",
            "headers": [(b"idempotency-key", b"k-1")], "http_version": "1.1", "scheme": "http",
        }  # fmt: skip
        await Runs(app)(scope, receive, send)
        assert (status, read) == (413, 17), "no more than a MiB is read of 300"
