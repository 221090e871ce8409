"""Webhooks in: answers of systems that had only accepted something. An ASGI app of its own, for any server.

A delivery is signed by the Standard Webhooks rules (`webhook-id`, `webhook-timestamp`, `webhook-signature` over the
raw bytes). It is acknowledged when it is durable in the ledger; the same `webhook-id` a second time changes nothing,
however many days later. It may come before our own response knows its key, out of order, or for nobody. The body is:

    {"key": "bank-A-17", "status": "succeeded", "result": {...}}     or "failed" with a "reason", or "pending"
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Literal

import msgspec

from holdfast.engine.awaiting import Arrival
from holdfast.errors import HoldfastError, UsageError
from holdfast.interfaces.service import Service
from holdfast.model.records import NOTHING, Raw

LARGEST: Final = 1024 * 1024
LOG: Final = logging.getLogger("holdfast.hooks")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Hook(msgspec.Struct, frozen=True):
    """What a delivery says."""

    key: str
    status: Literal["succeeded", "failed", "pending"]
    result: Raw = NOTHING
    reason: str = ""


class Hooks:
    """The app: `POST` anywhere below it. `secrets` are those of the senders, newest first; one has to fit."""

    def __init__(self, service: Service, secrets: list[str], *, name: str = "webhook") -> None:
        try:
            from standardwebhooks import Webhook  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise UsageError(
                "webhooks need the package that checks them", next_step="pip install 'holdfast[server]'"
            ) from error
        if not secrets:
            raise UsageError("webhooks need a secret to check them with", next_step="give the sender's, as whsec_...")
        try:
            self._checks = [Webhook(secret) for secret in secrets]
        except (ValueError, RuntimeError) as error:
            raise UsageError("this is no webhook secret", next_step="it is base64, as in whsec_...") from error
        self._service = service
        self._name = name

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            return
        status, text = await self._answer(scope, receive)
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    async def _answer(self, scope: Message, receive: Receive) -> tuple[int, str]:
        if scope["method"] != "POST":
            return 405, "POST a webhook here"
        body = await _body(receive)
        if body is None:
            return 413, f"a webhook has {LARGEST} bytes at most"
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._is_signed(body, headers):
            return 401, "the signature does not fit, or is too old"
        try:
            hook = msgspec.json.decode(body, type=Hook)
        except (msgspec.MsgspecError, ValueError) as error:
            return 400, f"this is no answer: {error}"
        if not hook.key:
            return 400, "this is no answer: it has no key"
        arrival = Arrival(headers["webhook-id"], hook.status, hook.result, hook.reason, source=self._name)
        try:
            await self._service.deliver(hook.key, arrival)
        except UsageError as error:
            return 409, error.message
        except HoldfastError as error:
            LOG.warning("a webhook could not be stored: %s", error)
            return 503, "it could not be stored: send it again"
        return 204, ""

    def _is_signed(self, body: bytes, headers: dict[str, str]) -> bool:
        for check in self._checks:
            try:
                check.verify(body, headers)
            except Exception:  # noqa: BLE001, S112 - whatever the library says about hostile input, it is not signed
                continue
            return True
        return False


async def _body(receive: Receive) -> bytes | None:
    """The raw bytes; None where there are too many."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


async def _live(receive: Receive, send: Send) -> None:
    """The server starts and stops; the journal is opened and closed by whoever made the app."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
