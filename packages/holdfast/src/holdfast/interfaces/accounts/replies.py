"""What leaves the server: our headers on every answer, and the answers that the guard gives itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final[dict[bytes, bytes]] = {
    b"content-security-policy": CSP.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    # Not `no-referrer`: under that, browsers send `Origin: null` with our own forms, and nothing tells them apart.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}
HSTS: Final = b"max-age=31536000"


class Refused(msgspec.Struct, frozen=True):
    """An answer that the guard gives itself."""

    status: int
    why: str
    next_step: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()


def with_headers(send: Send, *, hsts: bool) -> Send:
    """Every answer carries our headers, whatever the app says; what is not marked as public is not kept anywhere."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {**HEADERS, **({b"strict-transport-security": HSTS} if hsts else {})}
            kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in own]
            if not any(name.lower() == b"cache-control" for name, _ in kept):
                kept.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*kept, *own.items()]}
        await send(message)

    return guarded


async def answer(refused: Refused, send: Send, *, as_json: bool, head: bool) -> None:
    """Give the guard's own answer: JSON to programs, plain text to others, and no word of what was sent."""
    text = refused.why + "\n"
    kind = b"text/plain; charset=utf-8"
    if as_json:
        problem = {
            "title": HTTPStatus(refused.status).phrase, "status": refused.status, "detail": refused.why,
            "error": "Refused", "next_step": refused.next_step,
        }  # fmt: skip
        text, kind = msgspec.json.encode(problem).decode(), b"application/problem+json"  # RFC 9457
    body = text.encode()
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *refused.headers]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
