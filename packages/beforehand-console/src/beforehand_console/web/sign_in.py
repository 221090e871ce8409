"""Two ways to sign in without a password: a link that the terminal shows, and an OpenID provider.

The link is for the machine itself, before there are accounts; it signs in one browser.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from beforehand.engine.environment import Rng
from beforehand.errors import SignInRefused
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Principal, typed
from beforehand_console.auth.oidc import AWAY, BACK, OidcClient
from beforehand_console.auth.site import ended_cookie, presented, session_cookie

BOOTSTRAP_PATH: Final = "/enter"
Handler = Callable[[Request], Awaitable[Response]]


class BootstrapLink:
    """One link at a time. It signs in as `name`: a reader of the terminal could write the journal, too.

    A link is used up by the first browser that opens it; `tell` is then given the next one.
    """

    def __init__(self, authenticator: Authenticator, name: str, rng: Rng, tell: Callable[[str], None]) -> None:
        self._authenticator: Final = authenticator
        self._principal: Final[Principal] = typed(name)
        self._rng: Final = rng
        self._tell: Final = tell
        self._token = ""

    def show(self) -> None:
        """Mint a link and show it; the one before is no longer valid."""
        self._token = self._rng.token() + self._rng.token()
        self._tell(f"{BOOTSTRAP_PATH}?token={self._token}")

    def routes(self, guarded: Callable[[Handler], Handler]) -> list[Route]:
        """The route of the link. `guarded` turns a refusal into a page."""
        return [Route(BOOTSTRAP_PATH, guarded(self._enter), methods=["GET"])]

    async def _enter(self, request: Request) -> Response:
        shown = request.query_params.get("token", "")
        if not (self._token and hmac.compare_digest(shown.encode(), self._token.encode())):
            raise SignInRefused(
                "this sign-in link is invalid or was already used", next_step="open the newest link in the terminal"
            )
        if await self._authenticator.has_accounts():
            raise SignInRefused(
                "this journal has accounts now, so the link no longer signs in", next_step="sign in with your account"
            )
        secret = await self._authenticator.admit(self._principal, request.scope["address"])
        self.show()
        cookie = session_cookie(request.scope["origin"], secret)
        return RedirectResponse(
            "/inbox", HTTPStatus.SEE_OTHER, {"set-cookie": cookie, "referrer-policy": "no-referrer"}
        )


PROVIDER_PATH: Final = "/sign-in/provider"


class OidcRoutes:
    """Sends a browser to an OpenID provider and receives it again. Both pages are open to strangers."""

    def __init__(self, openid: OidcClient) -> None:
        self._openid: Final = openid

    def routes(self, guarded: Callable[[Handler], Handler]) -> list[Route]:
        """The routes of both pages. `guarded` turns a refusal into a page."""
        return [
            Route(PROVIDER_PATH, guarded(self._leave), methods=["GET"]),
            Route(BACK, guarded(self._come_back), methods=["GET"]),
        ]

    async def _leave(self, request: Request) -> Response:
        leaving = await self._openid.leave(request.scope["origin"], request.query_params.get("next", "/"))
        return RedirectResponse(leaving.url, HTTPStatus.SEE_OTHER, {"set-cookie": leaving.cookie})

    async def _come_back(self, request: Request) -> Response:
        origin, cookies = request.scope["origin"], request.headers.get("cookie", "")
        returned = await self._openid.come_back(
            request.url.query, cookies, origin, request.scope["address"], old=presented(cookies, origin)
        )
        answer = RedirectResponse(returned.wanted, HTTPStatus.SEE_OTHER)
        answer.headers.append("set-cookie", session_cookie(origin, returned.begun.secret))
        answer.headers.append("set-cookie", ended_cookie(origin, AWAY))
        return answer
