"""The web application: pages and API over one service, behind the guard."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from beforehand.control.service import ControlService
from beforehand.telemetry.metrics_server import TEXT
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.guard import API, METRICS, SIGN_IN, Guard
from beforehand_console.auth.oidc import BACK
from beforehand_console.auth.proxy import TrustedProxy
from beforehand_console.auth.site import Site
from beforehand_console.web import api, openapi
from beforehand_console.web.pages import Pages
from beforehand_console.web.problems import plain_problem, response_of
from beforehand_console.web.rendering import Assets, Templates
from beforehand_console.web.sign_in import BOOTSTRAP_PATH, PROVIDER_PATH, BootstrapLink, OidcRoutes
from beforehand_console.web.signed_links import LinkRoutes
from beforehand_console.web.use_cases import UseCases


def web(
    service: ControlService,
    authenticator: Authenticator,
    site: Site,
    *,
    proxy: TrustedProxy | None = None,
    link: BootstrapLink | None = None,
    elsewhere: OidcRoutes | None = None,
) -> Guard:
    """The ASGI app: every page and every call of it is behind the guard.

    `link` lets in the reader of the terminal if there is no account; `elsewhere` people whom a provider vouches for.
    """
    assets, desk = Assets(), UseCases(service, authenticator)
    links = LinkRoutes(desk)
    pages = Pages(
        desk,
        Templates(assets),
        links,
        provider=PROVIDER_PATH if elsewhere is not None else "",
        from_terminal=link is not None,
    )

    async def metrics(request: Request) -> Response:
        return Response(await desk.metrics(request.scope["principal"]), media_type=TEXT)

    entering = [route for way in (link, elsewhere) if way is not None for route in way.routes(pages.guarded)]
    inner = [*openapi.routes(), *api.routes(desk), *pages.routes(), *links.routes(pages.guarded), *assets.routes()]
    routes = [*entering, *inner, Route(METRICS, pages.guarded(metrics))]

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
    return Guard(
        inside, authenticator, site, proxy=proxy, open_paths=frozenset({SIGN_IN, BOOTSTRAP_PATH, PROVIDER_PATH, BACK})
    )


_SAYS = {404: "this page does not exist", 405: "this method is not supported here"}


def _allowed(routes: Sequence[Route], request: Request) -> str:
    """The methods that some route takes at this path: each route alone only names its own."""
    at = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in at for method in route.methods or ()}))
