"""Running both servers: deadlines for the head and the body of a request, and limits on open connections.

uvicorn waits without a limit for a head, for a body, and for a client that does not read; and its limit on connections
counts silent ones, so that one client could use all places. The protocol here ends requests that take too long, with
408 where an answer can still be given, and refuses connections of one peer above its share with 429. With TLS, a
connection is counted from its beginning, and a handshake has the deadline of a head.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import h11
import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import get_remote_addr

from beforehand.errors import UsageError
from beforehand.webhooks.access_log import network

PER_PEER: Final = 64
SERVER: Final[dict[str, Any]] = {
    # With it, uvicorn would take the peer from X-Forwarded-For, and the peer is trusted.
    "proxy_headers": False,
    "access_log": False,  # addresses of links hold what opens them
    "server_header": False,
    "ws": "none",
    "timeout_keep_alive": 5,
    "h11_max_incomplete_event_size": 32 * 1024,
    "limit_concurrency": 256,
}
"""Settings of uvicorn for all our apps."""


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Seconds within which a head and a body have come, a client reads on, and a closed connection is gone.

    Over TLS, the handshake has `head_s` too. `per_peer` is how many connections one address (of IPv6: one /64 network)
    may have open. Behind a proxy all connections come from the proxy.
    """

    head_s: float = 10
    body_s: float = 20
    read_s: float = 30
    linger_s: float = 5
    per_peer: int = PER_PEER


def server_config(app: Any, limits: ConnectionLimits, tls: ssl.SSLContext | None = None, **more: Any) -> uvicorn.Config:
    """The configuration of uvicorn for an app that strangers can reach, in clear or over TLS."""
    open_by_peer = Counter[str]()  # of this server alone
    protocol: Any = partial(LimitedProtocol, limits, open_by_peer)
    if tls is not None:
        protocol = partial(Handshake, tls, limits, open_by_peer, protocol)
    return uvicorn.Config(app, http=protocol, log_level="warning", **SERVER, **more)


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol for one connection, with a deadline for each thing that it waits for from the client."""

    def __init__(self, limits: ConnectionLimits, open_by_peer: Counter[str], **named: Any) -> None:
        super().__init__(**named)
        self.declared: Final = limits
        self.open_by_peer: Final = open_by_peer
        self._peer = ""
        self._is_over = False  # refused or timed out: what still comes is not read
        self._head: asyncio.TimerHandle | None = None
        self._body: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._peer = network(self.client[0]) if self.client else ""
        self.open_by_peer[self._peer] += 1
        if self.open_by_peer[self._peer] > self.declared.per_peer:
            self._end_with(HTTPStatus.TOO_MANY_REQUESTS)
            return
        self._head = self.loop.call_later(self.declared.head_s, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_by_peer[self._peer] -= 1
        if not self.open_by_peer[self._peer]:
            del self.open_by_peer[self._peer]
        for timer in (self._head, self._body, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()  # the next request may lie here already, in part

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        self._reading = self.loop.call_later(self.declared.read_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_later()

    def _watch(self) -> None:
        """Run the timer for the client's next duty. Data does not extend it, so a trickle gains no time."""
        state = self.conn.their_state
        self._head = self._timer(self._head, self.declared.head_s, owes=state is h11.IDLE)
        self._body = self._timer(self._body, self.declared.body_s, owes=state is h11.SEND_BODY)

    def _timer(self, timer: asyncio.TimerHandle | None, seconds: float, *, owes: bool) -> asyncio.TimerHandle | None:
        if owes:
            return timer or self.loop.call_later(seconds, self._late)
        if timer is not None:
            timer.cancel()
        return None

    def _late(self) -> None:
        cycle: Any = self.cycle  # None before the first request, which its type does not say
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self._end_with(HTTPStatus.REQUEST_TIMEOUT)
        else:  # another answer is on its way
            self._close()

    def _end_with(self, status: HTTPStatus) -> None:
        if not self.transport.is_closing():
            text = f"{status.phrase}\n".encode()
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            self.transport.write(f"{head}content-length: {len(text)}\r\nconnection: close\r\n\r\n".encode() + text)
        self._close()

    def _close(self) -> None:
        self._is_over = True
        self.connections.discard(self)  # its place is free, whenever the client takes note of it
        cycle: Any = self.cycle  # as above
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the app must not write after what was written here
            cycle.message_event.set()
        self.transport.close()
        self._abort_later()

    def _abort_later(self) -> None:
        """A client that does not read keeps a closed connection open: the rest of its answer is dropped then."""
        self.loop.call_later(self.declared.linger_s, self.transport.abort)


# A TLS handshake has a deadline and counts towards the limit of connections per peer. asyncio hands a connection to
# its protocol once the handshake is over, and uvicorn sets no deadline for it: a client that connects and stays silent
# would hold a socket for a minute, and be counted nowhere. Here the connection is accepted in clear, counted, and
# handed on to the HTTP protocol when its handshake has succeeded in time.


def tls_context(cert: str, key: str = "") -> ssl.SSLContext:
    """The context of a server with this certificate, and its key where that is in another file. Raises `UsageError`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key or None)
    except (OSError, ValueError) as error:  # `ssl.SSLError` is an OSError
        raise UsageError(
            f"the certificate {cert} cannot be used: {error}",
            next_step="give a certificate chain in PEM (--cert) and its private key (--key)",
        ) from error
    return context


class Handshake(asyncio.Protocol):
    """One connection until its handshake is over. `uvicorn` creates one for each connection, as its HTTP protocol."""

    def __init__(
        self, context: ssl.SSLContext, limits: ConnectionLimits, open_by_peer: Counter[str],
        inside: Callable[..., asyncio.Protocol], *, server_state: Any, **named: Any,
    ) -> None:  # fmt: skip
        self.context: Final = context
        self.limits: Final = limits
        self.open_by_peer: Final = open_by_peer
        self._inside: Final = partial(inside, server_state=server_state, **named)
        self._connections: set[Any] = server_state.connections
        self._peer = ""
        self._early = bytearray()
        self._lost = False
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a stream, as for uvicorn
        address = get_remote_addr(transport)
        self._peer = network(address[0]) if address else ""
        self._transport = transport
        if self.open_by_peer[self._peer] >= self.limits.per_peer:
            transport.abort()  # an answer would need the handshake
            return
        self.open_by_peer[self._peer] += 1
        self._connections.add(self)
        transport.pause_reading()  # the first bytes are for TLS, which begins in the task
        self._task = asyncio.get_running_loop().create_task(self._shake(transport))

    async def _shake(self, transport: asyncio.Transport) -> None:
        secure = None
        try:
            if transport.is_closing():
                return
            secure = await asyncio.get_running_loop().start_tls(
                transport, self, self.context, server_side=True, ssl_handshake_timeout=self.limits.head_s
            )
        except (OSError, ssl.SSLError, asyncio.CancelledError):  # too late, not TLS, or gone: an answer has no reader
            transport.abort()
            return
        finally:
            self._connections.discard(self)
            self.open_by_peer[self._peer] -= 1
            if not self.open_by_peer[self._peer]:
                del self.open_by_peer[self._peer]
        if secure is None or self._lost:  # the client left as the handshake ended
            transport.abort()
            return
        inside = self._inside()
        secure.set_protocol(inside)
        inside.connection_made(secure)  # counts it again, in the same step of the loop
        if self._early:
            inside.data_received(bytes(self._early))

    def data_received(self, data: bytes) -> None:
        """A request that came with the end of the handshake, before the HTTP protocol was there."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature of asyncio
        self._lost = True

    def shutdown(self) -> None:
        """The server ends: it does not wait for a handshake."""
        if self._transport is not None:
            self._transport.abort()
