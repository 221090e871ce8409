"""TLS handshakes under a deadline and under the limit of connections per peer.

asyncio hands a connection to its protocol once the handshake is over, and uvicorn sets no deadline for it: a client
that connects and stays silent would hold a socket for a minute, and be counted nowhere. Here the connection is accepted
in clear, counted, and handed on to the HTTP protocol when its handshake has succeeded in time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from uvicorn.protocols.utils import get_remote_addr

from holdfast.errors import UsageError
from holdfast.interfaces.access_log import network


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

    context: ClassVar[ssl.SSLContext]
    within_s: ClassVar[float]
    per_peer: ClassVar[int]
    open_by_peer: ClassVar[Counter[str]]
    inside: ClassVar[Callable[..., asyncio.Protocol]]

    def __init__(self, *, server_state: Any, **named: Any) -> None:
        self._named = {"server_state": server_state, **named}
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
        if self.open_by_peer[self._peer] >= self.per_peer:
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
                transport, self, self.context, server_side=True, ssl_handshake_timeout=self.within_s
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
        inside = type(self).inside(**self._named)
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
        """The server ends: a handshake is not waited for."""
        if self._transport is not None:
            self._transport.abort()
