"""Webhooks in: answers of systems that had only accepted a call. An ASGI app of its own, for any server.

A delivery is signed by the Standard Webhooks rules (`webhook-id`, `webhook-timestamp`, `webhook-signature` over the raw
bytes). It is acknowledged when it is durable in the ledger; the same `webhook-id` a second time changes nothing,
however many days later. It may come before our own response knows its key, out of order, or for no operation. The body
is:

    {"key": "bank-A-17", "status": "succeeded", "result": {...}}     or "failed" with a "why", or "pending"

A `Sender` has a name, a secret and a binding: the tools and the key prefixes that it may answer for. A delivery outside
the binding is answered 403, recorded in the access log, and settles nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, Literal

import msgspec

from beforehand.control.input_checks import decode_json
from beforehand.control.service import ControlService
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import BeforehandError, NotAllowed, UsageError
from beforehand.installation import needing
from beforehand.model.records import NOTHING, Raw
from beforehand.model.shell import to_type
from beforehand.webhooks.access_log import Access, AccessLog

LARGEST: Final = 1024 * 1024
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LOG: Final = logging.getLogger("beforehand.hooks")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Hook(msgspec.Struct, frozen=True):
    """The contents of a delivery."""

    key: str
    status: Literal["succeeded", "failed", "pending"]
    result: Raw = NOTHING
    why: str = ""


class WebhookSender(msgspec.Struct, frozen=True):
    """A sender of webhooks: its name, its secret (`whsec_...`), and the binding.

    It may answer for operations that call one of `tools`, under keys that begin with one of `keys`; where both are
    given, both have to fit. A sender that may answer for all of them says so with `anything`. Two senders with one name
    are one sender that exchanges its secret.
    """

    name: str
    secret: str
    tools: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    anything: bool = False

    def __repr__(self) -> str:
        return f"Sender({self.name!r}, tools={self.tools}, keys={self.keys}, anything={self.anything})"

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} cannot name a sender", next_step="use letters, digits, dots, dashes and underscores"
            )
        if self.anything == bool(self.tools or self.keys) or not all((*self.tools, *self.keys)):
            raise UsageError(
                f"the sender {self.name} needs a binding: tools, key prefixes, or anything",
                next_step=to_type("serve-hooks", "--sender", f"{self.name}=SECRET_ENV:tool=TOOL,key=PREFIX"),
            )

    def covers(self, key: str) -> bool:
        """True if the sender may answer under this key, as far as the key says."""
        return not self.keys or key.startswith(self.keys)


class Hooks:
    """The app: `POST` anywhere below it. The sender is the one whose secret signed the delivery."""

    def __init__(self, service: ControlService, senders: Sequence[WebhookSender]) -> None:
        with needing("webhooks need standardwebhooks", "webhooks"):
            from standardwebhooks import Webhook  # noqa: PLC0415 - an extra
        if not senders:
            raise UsageError(
                "webhooks need a secret to check them with", next_step="name a sender: Sender(name, secret, tools=...)"
            )
        if len({sender.secret for sender in senders}) != len(senders):
            raise UsageError(
                "two senders have the same secret, so a signature does not say which of them sent a delivery",
                next_step="give each sender a secret of its own",
            )
        try:
            self._verifiers: Final = [(sender, Webhook(sender.secret)) for sender in senders]
        except (ValueError, RuntimeError) as error:
            raise UsageError("this is not a webhook secret", next_step="a secret is base64, as in whsec_...") from error
        self._service = service
        self._access: Final = AccessLog(service.engine.journal)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        status, text = await self._answer(scope, receive)
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        if status == 405:
            headers.append((b"allow", b"POST"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    async def _answer(self, scope: Message, receive: Receive) -> tuple[int, str]:
        if scope["method"] != "POST":
            return 405, "POST a webhook here"
        body = await bounded_body(receive)
        if body is None:
            return 413, f"a webhook has {LARGEST} bytes at most"
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        sender = self._verified_sender(body, headers)
        if sender is None:
            return 401, "the signature does not fit, or is too old"
        try:
            hook: Hook = decode_json(body, Hook)
        except (msgspec.MsgspecError, ValueError) as error:
            return 400, f"this is not an answer: {error}"
        if not hook.key:
            return 400, "this is not an answer: it has no key"
        tools = tuple(sorted(set(sender.tools)))
        arrival = ArrivedAnswer(
            headers["webhook-id"], hook.status, hook.result, hook.why, source=f"webhook {sender.name}",
            sender=sender.name, tools=tools,
        )  # fmt: skip
        try:
            if not sender.covers(hook.key):
                return await self._refused(sender, hook.key, "key", scope)
            await self._service.deliver(hook.key, arrival)
        except NotAllowed:
            return await self._refused(sender, hook.key, "tool", scope)
        except UsageError as error:
            return 409, error.message
        except BeforehandError as error:
            LOG.warning("a webhook could not be stored: %s", error)
            return 503, "it could not be stored: send it again"
        return 204, ""

    async def _refused(self, sender: WebhookSender, key: str, what: str, scope: Message) -> tuple[int, str]:
        """Record a delivery outside the binding: each one in the log of the process, the first of an hour on disk."""
        why = f"webhook sender {sender.name}: the {what} is outside its binding"
        address = str((scope.get("client") or ("",))[0])
        LOG.warning("%s (key %r); nothing was settled", why, key[:200])
        refused = Access("deliver", allowed=False, about=key[:200], why=why, address=address)
        await self._access.note_hourly(refused, self._service.engine.wall_ms())
        return 403, f"sender {sender.name} is not bound to this {what}; nothing was settled"

    def _verified_sender(self, body: bytes, headers: dict[str, str]) -> WebhookSender | None:
        """The sender whose signature this delivery carries; None if no signature is valid."""
        for sender, check in self._verifiers:
            try:
                check.verify(body, headers, json_parse=False)
            except Exception:  # noqa: BLE001, S112 - whatever the library says about hostile input, it is not signed
                continue
            return sender
        return None


async def bounded_body(receive: Receive) -> bytes | None:
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


async def _lifespan(receive: Receive, send: Send) -> None:
    """Lifespan events: the journal is opened and closed by the caller that made the app."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
