"""The way in on one's own machine, before there are accounts: a link that the terminal shows, good for one browser."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.engine.environment import Rng
from holdfast.errors import SignInRefused
from holdfast_console.auth.authenticator import Entrance
from holdfast_console.auth.authorize import Principal, typed
from holdfast_console.auth.site import session_cookie

PATH: Final = "/enter"
Handler = Callable[[Request], Awaitable[Response]]


class Link:
    """One link at a time. Whoever can read the terminal is taken for `name`: they could write the journal, too.

    A link is used up by the first browser that opens it; `tell` is then given the next one.
    """

    def __init__(self, entrance: Entrance, name: str, rng: Rng, tell: Callable[[str], None]) -> None:
        self._entrance: Final = entrance
        self._principal: Final[Principal] = typed(name)
        self._rng: Final = rng
        self._tell: Final = tell
        self._token = ""

    def show(self) -> None:
        """Mint a link and show it; the one before opens nothing any more."""
        self._token = self._rng.token() + self._rng.token()
        self._tell(f"{PATH}?token={self._token}")

    def routes(self, guarded: Callable[[Handler], Handler]) -> list[Route]:
        """Where the link leads. `guarded` makes a page of what is refused."""
        return [Route(PATH, guarded(self._enter), methods=["GET"])]

    async def _enter(self, request: Request) -> Response:
        shown = request.query_params.get("token", "")
        if not (self._token and hmac.compare_digest(shown.encode(), self._token.encode())):
            raise SignInRefused("this link was used, or is none", next_step="open the newest one in the terminal")
        if await self._entrance.has_accounts():
            raise SignInRefused("people have accounts by now", next_step="sign in with yours")
        secret = await self._entrance.admit(self._principal, request.scope["address"])
        self.show()
        cookie = session_cookie(request.scope["origin"], secret)
        return RedirectResponse(
            "/inbox", HTTPStatus.SEE_OTHER, {"set-cookie": cookie, "referrer-policy": "no-referrer"}
        )
