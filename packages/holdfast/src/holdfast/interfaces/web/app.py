"""The web face, whole: pages and API over one service, behind the guard."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from holdfast.control.service import Service
from holdfast.interfaces.accounts.entrance import Entrance
from holdfast.interfaces.accounts.guard import API, SIGN_IN, Guard
from holdfast.interfaces.accounts.openid import BACK
from holdfast.interfaces.accounts.proxy import TrustedProxy
from holdfast.interfaces.accounts.site import Site
from holdfast.interfaces.web import api, openapi
from holdfast.interfaces.web.assets import Assets
from holdfast.interfaces.web.desk import Desk
from holdfast.interfaces.web.elsewhere import PATH as PROVIDER
from holdfast.interfaces.web.elsewhere import Elsewhere
from holdfast.interfaces.web.linked import Links
from holdfast.interfaces.web.local import PATH as ENTER
from holdfast.interfaces.web.local import Link
from holdfast.interfaces.web.pages import Pages
from holdfast.interfaces.web.problems import plain_problem, response_of
from holdfast.interfaces.web.showing import Templates


def web(
    service: Service,
    entrance: Entrance,
    site: Site,
    *,
    proxy: TrustedProxy | None = None,
    link: Link | None = None,
    elsewhere: Elsewhere | None = None,
) -> Guard:
    """The ASGI app: nobody reaches a page or a call of it but through the guard.

    `link` lets in whoever reads the terminal, where nobody has an account; `elsewhere` whom a provider vouches for.
    """
    assets, desk = Assets(), Desk(service, entrance)
    links = Links(desk)
    pages = Pages(desk, Templates(assets), links, provider=PROVIDER if elsewhere is not None else "")

    entering = [route for way in (link, elsewhere) if way is not None for route in way.routes(pages.guarded)]
    inner = [*openapi.routes(), *api.routes(desk), *pages.routes(), *links.routes(pages.guarded), *assets.routes()]
    routes = [*entering, *inner]

    async def refused(request: Request, error: Exception) -> Response:
        status = int(getattr(error, "status_code", 500))
        problem = plain_problem(status, _SAYS.get(status, "something went wrong on the server; its log says more"))
        headers = {"allow": _allowed(routes, request)} if status == HTTPStatus.METHOD_NOT_ALLOWED else {}
        if request.url.path.startswith(API):
            return response_of(problem, headers)
        page = await pages.trouble(request, problem)
        page.headers.update(headers)
        return page

    inside = Starlette(routes=routes, exception_handlers={404: refused, 405: refused, 500: refused})
    return Guard(inside, entrance, site, proxy=proxy, open_paths=frozenset({SIGN_IN, ENTER, PROVIDER, BACK}))


_SAYS = {404: "there is nothing here", 405: "this cannot be done here"}


def _allowed(routes: Sequence[Route], request: Request) -> str:
    """The methods that some route takes at this path: each route alone only names its own."""
    at = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in at for method in route.methods or ()}))
