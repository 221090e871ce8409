"""Webhooks in: signed or nothing, once however often they come, and durable before they are acknowledged."""

import asyncio
import base64
import itertools
import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.engine.environment import SystemClock
from beforehand.errors import Deferred, RunSuspended, UsageError
from beforehand.journal.memory import MemoryJournal
from beforehand.webhooks.incoming import LARGEST, Hooks, WebhookSender

ACCEPTED = 204


def memory() -> MemoryJournal:
    clock = SystemClock()
    return MemoryJournal(clock.wall_ms, clock.wall_ms)


def new_secret() -> str:
    return "whsec_" + base64.b64encode(os.urandom(24)).decode()


def bank(secret: str) -> WebhookSender:
    return WebhookSender("bank", secret, tools=("refund",))


@tool(idempotency=Key.forever())
async def refund(order: str) -> str:
    raise Deferred(within=timedelta(days=1), key=f"bank-{order}")


@agent(run_id="r-{order}", tools=[refund])
async def desk(run: Run, order: str) -> str:
    outcome = await refund.outcome(order)
    return f"{outcome.status} {outcome.value or outcome.reason}"


def signed(secret: str, body: bytes, name: str = "msg_1", at: datetime | None = None) -> dict[str, str]:
    at = at or datetime.now(UTC)
    signature = Webhook(secret).sign(name, at, body.decode())
    return {"webhook-id": name, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


async def post(hooks: Hooks, body: bytes, headers: dict[str, str], method: str = "POST") -> int:
    sent: list[Any] = []
    given_ = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        return next(given_)

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await hooks({"type": "http", "method": method, "headers": raw}, receive, send)
    status: int = sent[0]["status"]
    return status


def said(status: str = "succeeded", **more: Any) -> bytes:
    return json.dumps({"key": "bank-A", "status": status, **more}).encode()


def test_a_signed_answer_lets_the_run_go_on_and_anything_else_has_no_effect():
    async def check() -> None:
        secret, other = new_secret(), new_secret()
        async with Beforehand(memory(), agents=[desk], recover=False) as app:
            with pytest.raises(RunSuspended):
                await app.run(desk, "A")
            hooks, body = Hooks(app.service, [bank(secret)]), said(result="R-1")
            old = datetime.now(UTC) - timedelta(hours=1)
            assert await post(hooks, body, signed(other, body)) == 401
            assert await post(hooks, body, signed(secret, said(result="R-2"))) == 401
            assert await post(hooks, body, signed(secret, body, at=old)) == 401
            assert await post(hooks, body, {}) == 401
            assert await post(hooks, body, signed(secret, body), method="GET") == 405
            assert await post(hooks, b"x" * (LARGEST + 1), {}) == 413
            assert await post(hooks, b"[]", signed(secret, b"[]")) == 400
            with pytest.raises(RunSuspended):
                await app.run(desk, "A")
            assert await post(hooks, body, signed(secret, body)) == ACCEPTED
            assert await app.run(desk, "A") == "succeeded R-1"

    asyncio.run(check())


def test_a_second_secret_is_taken_while_the_first_is_exchanged():
    async def check() -> None:
        old, new = new_secret(), new_secret()
        async with Beforehand(memory(), agents=[desk], recover=False) as app:
            hooks = Hooks(app.service, [bank(new), bank(old)])
            assert [await post(hooks, said(), signed(one, said())) for one in (old, new)] == [ACCEPTED, ACCEPTED]
            with pytest.raises(UsageError, match="need a secret"):
                Hooks(app.service, [])

    asyncio.run(check())


EVENTS = [("m1", said(result="R-1")), ("m2", said("failed", why="no"))]


@given(st.lists(st.sampled_from([0, 0, 1]), min_size=1, max_size=6), st.integers(0, 6))
def test_any_deliveries_in_any_order_end_as_the_first_one_alone(order: list[int], before: int):
    """The first answer counts, wherever our own response comes in between, and however often it is delivered."""

    async def check() -> str:
        secret = new_secret()
        async with Beforehand(memory(), agents=[desk], recover=False) as app:
            hooks = Hooks(app.service, [bank(secret)])
            for place, event in enumerate(itertools.chain(order, [None])):
                if place == min(before, len(order)):
                    try:
                        await app.run(desk, "A")
                    except RunSuspended:
                        assert place == 0, "an answer that came early counts at once"
                if event is not None:
                    name, body = EVENTS[event]
                    assert await post(hooks, body, signed(secret, body, name)) == ACCEPTED
            return await app.run(desk, "A")

    assert asyncio.run(check()) == ("succeeded R-1" if order[0] == 0 else "failed no")
