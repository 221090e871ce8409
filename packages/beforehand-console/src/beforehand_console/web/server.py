"""The server: where it listens, for whom, and behind which proxy."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from beforehand import Beforehand
from beforehand.control.service import ControlService
from beforehand.errors import UsageError
from beforehand.model.addresses import is_loopback
from beforehand.webhooks.connections import PER_PEER, ConnectionLimits, server_config, tls_context
from beforehand_console.auth.accounts import every_account
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.oidc import OidcClient, Provider
from beforehand_console.auth.proxy import TrustedProxy
from beforehand_console.auth.site import Site, checked_bind, loopback
from beforehand_console.web.app import web
from beforehand_console.web.sign_in import BootstrapLink, OidcRoutes

PROXY_SECRET: Final = "BEFOREHAND_PROXY_SECRET"  # noqa: S105 - the name of a variable
PROVIDER_SECRET: Final = "BEFOREHAND_OIDC_SECRET"  # noqa: S105 - as above


class ServerOptions(msgspec.Struct, frozen=True):
    """Where to listen, under which addresses browsers know it, and the proxy in front.

    `proxy_header` is the header in which a trusted proxy at one of `proxy_peers` names the person; empty if it only
    says where they come from. People may sign in at the OpenID provider `issuer`, which knows us as `client`.
    `per_peer` is how many connections one address may have open; behind a proxy that is the proxy.
    """

    host: str = "127.0.0.1"
    port: int = 0
    origins: tuple[str, ...] = ()
    cert: str = ""
    key: str = ""
    proxy_header: str = ""
    proxy_peers: tuple[str, ...] = ()
    issuer: str = ""
    client: str = "beforehand"
    per_peer: int = PER_PEER

    @property
    def proxy(self) -> TrustedProxy | None:
        """The trusted proxy in front, if any. Raises `UsageError`."""
        if not self.proxy_header and not self.proxy_peers:
            return None
        return TrustedProxy(self.proxy_header, self.proxy_peers, os.environ.get(PROXY_SECRET, ""))

    @property
    def provider(self) -> Provider | None:
        """The provider at which people may sign in, if any. Raises `UsageError`."""
        if not self.issuer:
            return None
        secret = os.environ.get(PROVIDER_SECRET, "")
        if not secret:
            raise UsageError(
                f"the OIDC client secret for {self.issuer} is missing", next_step=f"export it as {PROVIDER_SECRET}"
            )
        return Provider(self.issuer, self.client, secret)

    def site(self, port: int) -> Site:
        """The addresses that are answered. Raises `UsageError` if others would reach it under none, or in clear."""
        if is_loopback(self.host):
            return Site(*self.origins) if self.origins else loopback(port, "https" if self.cert else "http")
        if not self.origins or not all(origin.startswith("https://") for origin in self.origins):
            raise UsageError(
                f"listening on {self.host or 'every address'} requires --origin",
                next_step="name the address that browsers use: --origin https://inbox.example.com",
            )
        return Site(*self.origins)


class _Quiet(uvicorn.Server):
    """A server that leaves signals to the program that it is a part of."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


async def listen(
    service: ControlService, where: ServerOptions, by: str, tell: Callable[[str], None], *, signals: bool = True
) -> None:
    """Serve until a signal comes; without `signals` until cancelled. Raises `UsageError`.

    `by` is the name of the person who answers while there is no account.
    """
    authenticator, proxy, provider = Authenticator(service.engine), where.proxy, where.provider
    elsewhere = OidcRoutes(OidcClient(authenticator, service.engine, provider)) if provider is not None else None
    accounts = len([account for account in await every_account(authenticator.accounts.journal) if not account.disabled])
    checked_bind(where.host, accounts=accounts, encrypted=bool(where.cert) or proxy is not None)
    with _listening(where) as place:
        port: int = place.getsockname()[1]
        site = where.site(port)
        link = (
            None
            if accounts
            else BootstrapLink(
                authenticator, by, service.engine.environment.rng, lambda path: tell(site.origins[0] + path)
            )
        )
        app = web(service, authenticator, site, proxy=proxy, link=link, elsewhere=elsewhere)
        if link is None:
            tell(f"{site.origins[0]}/")
        else:
            link.show()
        tls = tls_context(where.cert, where.key) if where.cert else None
        config = server_config(app, ConnectionLimits(per_peer=where.per_peer), tls, lifespan="off")
        server = uvicorn.Server(config) if signals else _Quiet(config)
        await server.serve(sockets=[place])


def mounted(desk: Beforehand, *origins: str) -> ASGIApp:
    """The console of an app inside a server of yours, which routes a host of its own here: Starlette's `Host`.

    Browsers know it by `origins`. People sign in with their accounts. Raises `UsageError` for an address that would
    carry their passwords in clear.
    """
    clear = [one for one in origins if not one.startswith("https://") and not is_loopback(urlsplit(one).hostname or "")]
    if clear or not origins:
        raise UsageError(
            f"passwords and sessions would cross the network in clear at {clear[0]}"
            if clear
            else "no address is named",
            next_step='name the address that browsers use: mounted(desk, "https://inbox.example.com")',
        )
    site, guards = Site(*origins), list[ASGIApp]()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if not guards:  # the app is open once its server takes requests
            guards.append(web(desk.service, Authenticator(desk.engine), site))
        await guards[0](scope, receive, send)

    return serve


def _listening(where: ServerOptions) -> socket.socket:
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
