"""Senders of webhooks settle what they are bound to and nothing else, over real HTTP."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest
import uvicorn

from beforehand import Beforehand, Run, agent, tool
from beforehand.control.input_checks import decode_json
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import Deferred, RunSuspended, UsageError
from beforehand.model.records import Raw
from beforehand.webhooks.access_log import AccessLog
from beforehand.webhooks.incoming import Hooks, WebhookSender
from tests.unit.webhooks.test_incoming import memory, new_secret, signed

BANK, SHOP = new_secret(), new_secret()


@tool
async def transfer(key: str) -> str:
    raise Deferred(within=timedelta(days=1), key=key)


@tool
async def book(key: str) -> str:
    raise Deferred(within=timedelta(days=1), key=key)


@agent(run_id="r-{ticket}", tools=[transfer, book])
async def desk(run: Run, ticket: str) -> str:
    what, _, key = ticket.partition(",")
    outcome = await (transfer if what == "transfer" else book).outcome(key)
    return f"{outcome.status} {outcome.value or outcome.reason}"


@asynccontextmanager
async def serving(*senders: WebhookSender) -> AsyncGenerator[tuple[Beforehand, "Post"]]:
    async with Beforehand(memory(), agents=[desk], recover=False) as app:
        with socket.create_server(("127.0.0.1", 0)) as line:
            config = uvicorn.Config(Hooks(app.service, list(senders)), log_level="error", lifespan="off")
            server = uvicorn.Server(config)
            task = asyncio.create_task(server.serve(sockets=[line]))
            try:
                async with httpx.AsyncClient(trust_env=False) as client:
                    yield app, Post(client, f"http://127.0.0.1:{line.getsockname()[1]}/")
            finally:
                server.should_exit = True
                await task


class Post:
    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self.client, self.url = client, url

    async def __call__(self, secret: str, key: str, name: str = "m1", **more: Any) -> int:
        body = json.dumps({"key": key, "status": "succeeded", "result": "yes", **more}).encode()
        return (await self.client.post(self.url, content=body, headers=signed(secret, body, name))).status_code


async def go_on(app: Beforehand, what: str, key: str) -> str:
    try:
        return await app.run(desk, f"{what},{key}")
    except RunSuspended:
        return "waits"


def test_a_sender_settles_only_the_tool_and_the_keys_that_it_is_bound_to():
    async def check() -> None:
        bank = WebhookSender("bank", BANK, tools=("transfer",), keys=("INV-",))
        async with serving(bank, WebhookSender("shop", SHOP, keys=("order-",))) as (app, post):
            for what, key in (("transfer", "INV-1"), ("book", "INV-2"), ("transfer", "X-3")):
                assert await go_on(app, what, key) == "waits"
            assert await post(SHOP, "INV-1") == 403, "a key of another sender"
            assert await post(BANK, "INV-2") == 403, "a tool that it is not bound to"
            assert await post(BANK, "X-3") == 403, "a prefix that it is not bound to"
            for what, key in (("transfer", "INV-1"), ("book", "INV-2"), ("transfer", "X-3")):
                assert await go_on(app, what, key) == "waits"
            assert await post(BANK, "INV-1") == 204
            assert await go_on(app, "transfer", "INV-1") == "succeeded yes"
            refused = [one.access for one in await AccessLog(app.service.engine.journal).read()]
            assert [(one.deed, one.allowed, one.about) for one in refused] == [
                ("deliver", False, "INV-1"), ("deliver", False, "INV-2"), ("deliver", False, "X-3"),
            ]  # fmt: skip
            assert all("bank" in one.why or "shop" in one.why for one in refused)

    asyncio.run(check())


def test_a_delivery_that_comes_early_is_checked_when_its_operation_is_known():
    async def check() -> None:
        async with serving(
            WebhookSender("bank", BANK, tools=("transfer",)), WebhookSender("hotel", SHOP, tools=("book",))
        ) as (
            app,
            post,
        ):
            assert await post(BANK, "INV-2") == 204, "nothing waits for it yet: it is kept"
            assert await go_on(app, "book", "INV-2") == "waits", "what is kept must not settle another tool"
            story = [repr(note) for note in await app.service.engine.journal.read("r-book,INV-2")]
            assert any("bank is bound to transfer" in note for note in story), story
            assert await post(SHOP, "INV-2") == 204, "the id of another sender is not taken by that"
            assert await go_on(app, "book", "INV-2") == "succeeded yes"
            assert any("webhook hotel" in repr(one) for one in await app.service.engine.journal.read("r-book,INV-2"))

    asyncio.run(check())


def test_a_message_that_came_under_a_wrong_binding_counts_under_the_right_one():
    async def check() -> None:
        async with Beforehand(memory(), agents=[desk], recover=False) as app:
            await app.service.deliver(
                "K", ArrivedAnswer("m1", result=Raw(b'"yes"'), sender="bank", tools=("transfer",))
            )
            assert await go_on(app, "book", "K") == "waits"
            done = await app.service.deliver(
                "K", ArrivedAnswer("m1", result=Raw(b'"yes"'), sender="bank", tools=("book", "transfer"))
            )
            assert done.fresh
            assert (await go_on(app, "book", "K")).startswith("succeeded")

    asyncio.run(check())


@pytest.mark.parametrize(
    "given",
    [
        {"name": "bank"},
        {"name": "bank", "tools": ("a",), "anything": True},
        {"name": "bank", "keys": ("",)},
        {"name": "a/b", "anything": True},
        {"name": "", "anything": True},
    ],
)
def test_a_sender_without_a_binding_or_a_name_is_refused(given: Any):
    with pytest.raises(UsageError):
        WebhookSender(secret=BANK, **given)


def test_a_secret_belongs_to_one_sender_and_is_not_shown():
    async def check() -> None:
        async with Beforehand(memory(), agents=[desk], recover=False) as app:
            with pytest.raises(UsageError, match="the same secret"):
                Hooks(app.service, [WebhookSender("a", BANK, anything=True), WebhookSender("b", BANK, tools=("t",))])

    asyncio.run(check())
    assert BANK not in repr(WebhookSender("a", BANK, anything=True))


@pytest.mark.parametrize("deep", [200, 990, 5_000, 100_000])
def test_a_webhook_that_is_nested_deep_is_refused(deep: int):
    async def check() -> None:
        async with serving(WebhookSender("bank", BANK, anything=True)) as (_, post):
            for body in ('{"key":"K","status":"succeeded","result":' + "[" * deep + "]" * deep + "}", '{"x":' * deep):
                answered = await post.client.post(post.url, content=body, headers=signed(BANK, body.encode()))
                assert (answered.status_code, "deep" in answered.text) == (400, True)
            refused = await post.client.get(post.url)
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")

    asyncio.run(check())


def test_brackets_in_texts_are_not_nested_and_hostile_texts_are_read_once():
    assert decode_json(msgspec.json.encode(["[" * 5_000])) == ["[" * 5_000]
    assert decode_json(b"[" + b"[],{}," * 5_000 + b"1]")
    for text in (b'["' + b'\\"' * 400_000 + b"[" * 200, b'"' * 800_000 + b"[" * 200):
        with pytest.raises(msgspec.DecodeError):
            decode_json(text)
