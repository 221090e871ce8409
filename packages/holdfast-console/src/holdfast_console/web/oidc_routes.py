"""Signing in at an OpenID provider: the way there, and the way back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast_console.auth.oidc import AWAY, BACK, OpenId
from holdfast_console.auth.site import ended_cookie, presented, session_cookie

PATH: Final = "/sign-in/provider"
Handler = Callable[[Request], Awaitable[Response]]


class Elsewhere:
    """The two pages of it. Strangers reach them, as they reach the page that asks for a password."""

    def __init__(self, openid: OpenId) -> None:
        self._openid: Final = openid

    def routes(self, guarded: Callable[[Handler], Handler]) -> list[Route]:
        """Where they are. `guarded` makes a page of what is refused."""
        return [
            Route(PATH, guarded(self._leave), methods=["GET"]),
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
