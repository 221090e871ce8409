"""Responses of the server: our headers on every answer, and the answers that the guard gives itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from beforehand.errors import BeforehandError, NotAllowed
from beforehand.webhooks.access_log import Access
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Principal
from beforehand_console.auth.csrf import SAFE, UNSAFE, RequestOrigin, refusal
from beforehand_console.auth.proxy import TrustedProxy
from beforehand_console.auth.rate_limits import PER_ACCOUNT, taken
from beforehand_console.auth.site import Site, presented

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


class Refusal(msgspec.Struct, frozen=True):
    """An answer that the guard gives itself."""

    status: int
    why: str
    next_step: str = ""
    headers: tuple[tuple[str, str], ...] = ()


def with_headers(send: Send, *, hsts: bool) -> Send:
    """Add our headers to every answer, whatever the app sets; an answer not marked as public is never cached."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {**HEADERS, **({b"strict-transport-security": HSTS} if hsts else {})}
            kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in own]
            if not any(name.lower() == b"cache-control" for name, _ in kept):
                kept.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*kept, *own.items()]}
        await send(message)

    return guarded


async def answer(refused: Refusal, scope: Message, receive: Receive, send: Send) -> None:
    """Send the guard's own answer: JSON to programs, plain text to others; it never repeats the request."""
    text, kind = refused.why + "\n", "text/plain; charset=utf-8"
    if str(scope["path"]).startswith(API):
        problem = {
            "title": HTTPStatus(refused.status).phrase, "status": refused.status, "detail": refused.why,
            "error": "Refused", "next_step": refused.next_step,
        }  # fmt: skip
        text, kind = msgspec.json.encode(problem).decode(), "application/problem+json"  # RFC 9457
    await Response(text, refused.status, dict(refused.headers), kind)(scope, receive, send)


# Bodies of requests: read to their end before the app sees them, and only of the expected form and size.


JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
PATIENCE_S: Final = 20
"""Seconds within which a body must arrive; a slower sender only wants to hold the connection."""


async def read_body(headers: Mapping[str, str], receive: Receive, expected: str, largest: int) -> bytes | Refusal:
    """The whole body. The API takes JSON and pages take their own forms: no page elsewhere sends JSON unasked."""
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        return Refusal(400, "the Content-Length is not valid")
    if len(declared) > 12 or int(declared) > largest:
        return _too_large(largest)
    try:
        async with asyncio.timeout(PATIENCE_S):
            body = await _whole(receive, largest)
    except TimeoutError:
        return Refusal(408, f"the body has to arrive within {PATIENCE_S} seconds")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != expected and not isinstance(body, Refusal):
        return Refusal(415, f"a body is {expected} here")
    return body


def replayed(body: bytes, receive: Receive) -> Receive:
    """Give the app the body that was read, and after it the server's messages."""
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return given.pop() if given else await receive()

    return next_message


async def _whole(receive: Receive, largest: int) -> bytes | Refusal:
    body = bytearray()
    try:
        async for chunk in Request({"type": "http"}, receive).stream():
            body += chunk
            if len(body) > largest:
                return _too_large(largest)
    except ClientDisconnect:
        return Refusal(400, "the body ended before its declared length")
    return bytes(body)


def _too_large(largest: int) -> Refusal:
    return Refusal(413, f"a body has {largest} bytes at most")


# The guard in front of every page and every call of the API: an ASGI app around an ASGI app, without a framework.
#
# Deny by default. A request reaches the app only for our own host, from our own pages, with a known principal (in
# `scope["principal"]`) unless its path is open, with a body of the expected form and size, read to its end. The app's
# answers are sent with headers under which a browser runs no script and sends no form that is not ours.


App = Callable[[Message, Receive, Send], Awaitable[None]]

LARGEST: Final = 1024 * 1024
LARGEST_OF_STRANGERS: Final = 8 * 1024
"""Bytes of a body. A stranger sends only a name and a password."""
SIGN_IN: Final = "/sign-in"
API: Final = "/api/"
METRICS: Final = "/metrics"
LOG: Final = logging.getLogger("beforehand.guard")


class GuardedRequest(msgspec.Struct, frozen=True):
    """A request as the guard judges it."""

    method: str
    path: str
    query: str
    origin: str
    address: str
    headers: dict[str, str]

    @property
    def is_api(self) -> bool:
        """True if a program asked, and JSON is answered."""
        return self.path.startswith(API)


# Headers that may occur once: two readers would understand a second one in two ways.
_SINGLE: Final = ("host", "origin", "authorization", "content-length", "content-type", "sec-fetch-site")


class Guard:
    """`app` behind `authenticator`, for a `site`.

    `open_paths` are open to strangers: the page that asks for a password, and what it is made of (`open_below`).
    """

    def __init__(
        self,
        app: App,
        authenticator: Authenticator,
        site: Site,
        *,
        proxy: TrustedProxy | None = None,
        open_paths: frozenset[str] = frozenset({SIGN_IN}),
        open_below: tuple[str, ...] = ("/static/",),
    ) -> None:
        self._app: Final = app
        self._authenticator: Final = authenticator
        self._site: Final = site
        self._proxy: Final = proxy
        self._open_paths: Final = open_paths
        self._open_below: Final = open_below
        self._whole_ms: Final[dict[tuple[str, str], int]] = {}
        """When the allowance of an account is whole again, apart for each way in: a stolen token stops no browser."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection. Everything but HTTP and the server's own start and stop is refused."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            judged = await self._judged(scope, receive)
        except BeforehandError as error:  # the journal is unreachable: every request is refused
            LOG.warning("a request could not be judged: %s", error)
            judged = Refusal(503, "sign-ins cannot be checked at this moment", "try again")
        secure = any(origin.startswith("https://") for origin in self._site.origins)
        guarded = with_headers(send, hsts=secure)
        if isinstance(judged, Refusal):
            await answer(judged, scope, receive, guarded)
            return
        await self._inside(scope, replayed(judged, receive), guarded)

    async def _inside(self, scope: Message, receive: Receive, send: Send) -> None:
        """Call the app. Its errors are answered here, under our headers and without internal details."""
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except NotAllowed as no:
            refused = Refusal(403, no.message, no.next_step)
        except Exception as error:
            LOG.exception("a request failed: %s", type(error).__name__)
            refused = Refusal(500, "the server failed; what was recorded is kept")
        else:
            return
        if not begun:
            await answer(refused, scope, receive, send)

    async def _judged(self, scope: Message, receive: Receive) -> bytes | Refusal:
        """The body, read to its end, if the app may be called; sets `principal`, `origin`, `address` in the scope."""
        asking = self._asking(scope)
        if isinstance(asking, Refusal):
            return asking
        if self._authenticator.closed:
            return Refusal(503, self._authenticator.closed, "beforehand doctor")
        if why := refusal(_origin_of(asking), asking.origin):
            await self._note(asking, "another site")
            return Refusal(403, f"refused: {why}")
        principal = await self._principal(scope, asking)
        if isinstance(principal, Refusal):
            return principal
        if principal is None and not self._is_open(asking.path):
            return await self._stranger(asking)
        scope["principal"], scope["origin"], scope["address"] = principal, asking.origin, asking.address
        if asking.method in SAFE:
            return b""
        if principal is not None and (wait_ms := self._wait_ms(principal)):
            await self._note(asking, "too many requests", principal)
            after = ("retry-after", str(-(-wait_ms // 1000)))
            return Refusal(429, f"{principal.name} sends too many requests", "wait, and then send it again", (after,))
        expected = JSON if asking.is_api else FORM
        return await read_body(asking.headers, receive, expected, LARGEST if principal else LARGEST_OF_STRANGERS)

    # --- who asks, and for what ------------------------------------------------------------------------------

    def _asking(self, scope: Message) -> GuardedRequest | Refusal:
        given: list[tuple[bytes, bytes]] = list(scope["headers"])
        names = [name.decode("latin-1").lower() for name, _ in given]
        if any(names.count(name) > 1 for name in _SINGLE):
            return Refusal(400, "a header that may occur once came twice")
        headers: dict[str, str] = {}
        for name, (_, value) in zip(names, given, strict=True):
            text = value.decode("latin-1")
            headers[name] = f"{headers[name]}; {text}" if name == "cookie" and name in headers else text
        origin = self._site.origin(headers.get("host", ""))
        if origin is None:
            return Refusal(421, "the Host header does not name this site")
        if scope["method"] not in SAFE | UNSAFE or scope.get("root_path"):
            return Refusal(405, "this method is not supported", "", (("allow", "GET, HEAD, POST"),))
        peer = str((scope.get("client") or ("",))[0])
        address = self._proxy.address(peer, given) if self._proxy is not None else peer
        query = bytes(scope.get("query_string", b"")).decode("latin-1")
        return GuardedRequest(scope["method"], scope["path"], query, origin, address, headers)

    async def _principal(self, scope: Message, asking: GuardedRequest) -> Principal | Refusal | None:
        """Authenticate by bearer token, then proxy header, then session. An invalid token does not fall back."""
        if (shown := asking.headers.get("authorization")) is not None:
            kind, _, secret = shown.partition(" ")
            found = await self._authenticator.by_token(secret) if kind.lower() == "bearer" else None
            if found is not None:
                return found
            await self._note(asking, "no such token")
            return Refusal(401, "this token does not sign in", "", (("www-authenticate", "Bearer"),))
        if self._proxy is not None and self._proxy.header:
            return await self._named(self._proxy, scope, asking)
        return await self._authenticator.by_session(presented(asking.headers.get("cookie", ""), asking.origin))

    async def _named(self, proxy: TrustedProxy, scope: Message, asking: GuardedRequest) -> Principal | None:
        """Authenticate by a proxy that names people: no other source is accepted, and there are no sessions."""
        peer = str((scope.get("client") or ("",))[0])
        name = proxy.named(peer, list(scope["headers"]))
        if name is None and proxy.header in asking.headers:
            await self._note(asking, "not the proxy")
        return await self._authenticator.by_name(name) if name else None

    def _wait_ms(self, principal: Principal) -> int:
        """Count one request that changes something; returns how many milliseconds to wait with it."""
        key = principal.name, principal.via
        self._whole_ms[key], wait_ms = taken(PER_ACCOUNT, self._whole_ms.get(key, 0), self._authenticator.now_ms)
        return wait_ms

    def _is_open(self, path: str) -> bool:
        return path in self._open_paths or path.startswith(self._open_below)

    async def _stranger(self, asking: GuardedRequest) -> Refusal:
        await self._note(asking, "not signed in")
        if asking.is_api or asking.path == METRICS or asking.method not in SAFE:
            return Refusal(401, "sign in, or send a token", "", (("www-authenticate", "Bearer"),))
        wanted = asking.path + (f"?{asking.query}" if asking.query else "")
        place = f"{SIGN_IN}?next={quote(wanted, safe='/')}"
        return Refusal(303, "sign in", "", (("location", place),))

    async def _note(self, asking: GuardedRequest, why: str, principal: Principal | None = None) -> None:
        who, via = ("", None) if principal is None else (principal.name, principal.via)
        access = Access("enter", allowed=False, who=who, via=via, why=why, address=asking.address)
        await self._authenticator.log.note_hourly(access, self._authenticator.now_ms)


def _origin_of(asking: GuardedRequest) -> RequestOrigin:
    header = asking.headers.get
    site, mode, dest = header("sec-fetch-site"), header("sec-fetch-mode"), header("sec-fetch-dest")
    return RequestOrigin(asking.method, header("origin"), site, mode, dest, has_token="authorization" in asking.headers)
