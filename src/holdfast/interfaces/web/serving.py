"""Listening: where, for whom, and behind what."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, Final

import msgspec
import uvicorn

from holdfast.errors import UsageError
from holdfast.interfaces.accounts.entrance import Entrance
from holdfast.interfaces.accounts.guard import SERVER
from holdfast.interfaces.accounts.proxy import TrustedProxy
from holdfast.interfaces.accounts.site import Site, checked_bind, loopback
from holdfast.interfaces.service import Service
from holdfast.interfaces.web.app import web
from holdfast.interfaces.web.local import Link

PROXY_SECRET: Final = "HOLDFAST_PROXY_SECRET"  # noqa: S105 - the name of a variable


class Where(msgspec.Struct, frozen=True):
    """Where to listen, under which addresses browsers know it, and what stands in front.

    `proxy_header` is the header in which a trusted proxy at one of `proxy_peers` names who somebody is.
    """

    host: str = "127.0.0.1"
    port: int = 0
    origins: tuple[str, ...] = ()
    cert: str = ""
    key: str = ""
    proxy_header: str = ""
    proxy_peers: tuple[str, ...] = ()

    @property
    def proxy(self) -> TrustedProxy | None:
        """What stands in front, if anything does. Raises `UsageError`."""
        if not self.proxy_header:
            return None
        return TrustedProxy(self.proxy_header, self.proxy_peers, os.environ.get(PROXY_SECRET, ""))


async def listen(service: Service, where: Where, by: str, tell: Callable[[str], None]) -> None:
    """Serve until a signal comes. `by` is who answers while nobody has an account. Raises `UsageError`."""
    entrance, proxy = Entrance(service.engine), where.proxy
    accounts = len([account for account in await entrance.accounts.every() if not account.disabled])
    checked_bind(where.host, accounts=accounts, encrypted=bool(where.cert) or proxy is not None)
    with _listening(where) as place:
        port: int = place.getsockname()[1]
        site = Site(*where.origins) if where.origins else loopback(port)
        link = (
            None
            if accounts
            else Link(entrance, by, service.engine.seams.rng, lambda path: tell(site.origins[0] + path))
        )
        app = web(service, entrance, site, proxy=proxy, link=link)
        if link is None:
            tell(f"{site.origins[0]}/")
        else:
            link.show()
        tls: dict[str, Any] = {"ssl_certfile": where.cert, "ssl_keyfile": where.key or None} if where.cert else {}
        config = uvicorn.Config(app, log_level="warning", lifespan="off", **tls, **SERVER)
        await uvicorn.Server(config).serve(sockets=[place])


def _listening(where: Where) -> socket.socket:
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    place = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # so that asyncio answers without delay
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            place.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        place.bind((where.host, where.port))
        place.listen()
    except OSError as error:
        place.close()
        raise UsageError(
            f"it cannot listen on {where.host}, port {where.port}: {error.strerror or error}",
            next_step="choose another one: --port N",
        ) from error
    return place
