"""The pages: the inbox, an item with its forms, several items at once, runs, and the way in and out."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast, get_args
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from beforehand.errors import BeforehandError, SignInNeeded, SignInRefused, UsageError
from beforehand.model.shell import NAME, to_type
from beforehand.people.answers import Edit
from beforehand.people.dossier import Dossier
from beforehand_console.auth.authorize import Principal, may, may_somewhere
from beforehand_console.auth.site import ended_cookie, local_path, presented, session_cookie
from beforehand_console.links import LinkRefused
from beforehand_console.reviews.shadow_reviews import ReviewWord
from beforehand_console.web import forms
from beforehand_console.web.api import RunsQuery
from beforehand_console.web.health import Days, HealthQuery
from beforehand_console.web.listing import READY, ItemsQuery, RunQuery, is_ready, items_in
from beforehand_console.web.problems import ProblemDetails, ProblemResponse, problem_of
from beforehand_console.web.rendering import Templates
from beforehand_console.web.schemas import BULK
from beforehand_console.web.signed_links import LinkRoutes
from beforehand_console.web.use_cases import UseCases
from beforehand_console.web.values import whole

_FILE: Final = {"cache-control": "no-store", "content-disposition": 'attachment; filename="arguments.json"'}
T = TypeVar("T", bound=msgspec.Struct)
AT_ONCE: Final = 4
DRAWN_S: Final = 10
"""How many pages are drawn at the same time, and for how many seconds one is waited for."""
Handler = Callable[[Request], Awaitable[Response]]


class Pages:
    """The handlers of all pages, over the use cases."""

    def __init__(
        self,
        desk: UseCases,
        templates: Templates,
        links: LinkRoutes,
        *,
        provider: str = "",
        from_terminal: bool = False,
    ) -> None:
        self._desk: Final = desk
        self._from_terminal: Final = from_terminal  # the terminal shows a link that signs in without an account
        self._provider: Final = provider  # the path that leads to one, where there is one
        self._templates: Final = templates
        self._links: Final = links
        self._drawing: Final = asyncio.Semaphore(AT_ONCE)

    def routes(self) -> list[Route]:
        """Every page there is."""
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/", self.begin),
            ("GET", "/inbox", self.inbox),
            ("GET", "/bulk", self.bulk),
            ("POST", "/bulk", self.answer_all),
            ("GET", "/inbox/{item:path}", self.item),
            ("POST", "/inbox/{item:path}", self.answer),
            ("GET", "/runs", self.runs),
            ("GET", "/runs/{run}", self.run),
            ("GET", "/health", self.health),
            ("GET", "/shadow-reviews", self.shadow_reviews),
            ("GET", "/shadow-reviews/{operation:path}", self.drawn),
            ("POST", "/shadow-reviews/{operation:path}", self.review),
            ("GET", "/findings", self.findings),
            ("POST", "/findings/{finding}", self.acknowledge),
            ("POST", "/lessons/{lesson}", self.decide_lesson),
            ("GET", "/sign-in", self.sign_in_page),
            ("POST", "/sign-in", self.sign_in),
            ("POST", "/sign-out", self.sign_out),
        ]
        return [Route(path, self.guarded(handler), methods=[method]) for method, path, handler in table]

    def guarded(self, handler: Handler) -> Handler:
        """The handler, with a page for every error that says what is known and what to do."""

        async def endpoint(request: Request) -> Response:
            try:
                return await handler(request)
            except BeforehandError as error:
                return await self.trouble(request, problem_of(error))

        return endpoint

    async def trouble(self, request: Request, problem: ProblemDetails) -> Response:
        """A page about an error."""
        return await self._page(request, "problem.html", problem=problem)

    # --- looking ---------------------------------------------------------------------------------------------

    async def begin(self, request: Request) -> Response:
        """The address without a path."""
        del request
        return RedirectResponse("/inbox", HTTPStatus.SEE_OTHER)

    async def inbox(self, request: Request) -> Response:
        """The list."""
        asking = _converted(request, ItemsQuery)
        found = await self._desk.listed(_who(request), asking)
        failures = await self._desk.failures_to_see(_who(request))
        drawn = len(await self._desk.open_reviews(_who(request)))
        return await self._page(
            request, "inbox.html", found=found, asking=asking, link=_linker(asking), failures=failures, drawn=drawn
        )

    async def item(self, request: Request) -> Response:
        """One item, whole, with every form that fits."""
        found = await self._desk.dossier(_who(request), request.path_params["item"])
        link = request.query_params.get("link", "")
        if request.query_params.get("whole"):
            return Response(whole(found.arguments), headers=_FILE, media_type="application/json")
        return await self._item(request, found, link=link)

    async def _item(
        self, request: Request, found: Dossier, problem: ProblemDetails | None = None, *, link: str = ""
    ) -> Response:
        answered = found.decided is not None or not found.open
        after = await self._desk.aftermath(_who(request), found) if answered else None
        return await self._page(
            request, "item.html", found=found, forms=forms.forms_for(found), problem=problem, link=link,
            after=after,
        )  # fmt: skip

    async def runs(self, request: Request) -> Response:
        """The listing."""
        asking = _converted(request, RunsQuery)
        rows = await self._desk.runs(_who(request), asking.status, asking.limit + 1, asking.after)
        more = rows[asking.limit - 1].run if len(rows) > asking.limit else ""
        disputed = await self._desk.reader.contradicted_steps()
        return await self._page(
            request, "runs.html", rows=[(row, items_in(row)) for row in rows[: asking.limit]], more=more,
            asking=asking, disputed=disputed,
        )  # fmt: skip

    async def run(self, request: Request) -> Response:
        """A page of the timeline of a run."""
        asking = _converted(request, RunQuery)
        found = await self._desk.run_page(_who(request), request.path_params["run"], asking.to)
        ready = READY if is_ready(found.row, self._desk.now_ms) else ""
        return await self._page(request, "run.html", found=found, row=found.row, ready=ready)

    async def health(self, request: Request) -> Response:
        """How people keep up, and what they found."""
        asking = _converted(request, HealthQuery)
        found = await self._desk.health(_who(request), asking)
        choices = get_args(Days)
        return await self._page(
            request, "health.html", watch=found.watch, figures=found.figures, asking=asking, days=choices
        )

    async def shadow_reviews(self, request: Request) -> Response:
        """The calls that wait for a shadow review."""
        calls = await self._desk.open_reviews(_who(request))
        return await self._page(request, "shadow_reviews.html", calls=calls)

    async def drawn(self, request: Request, problem: ProblemDetails | None = None) -> Response:
        """One call that was drawn for a shadow review, with its forms until it is reviewed."""
        call, found = await self._desk.drawn(_who(request), request.path_params["operation"])
        return await self._page(
            request, "shadow_review.html", call=call, found=found, problem=problem, forms=forms.ABOUT_DRAWN
        )

    async def findings(self, request: Request) -> Response:
        """The findings of the monitors, and the lessons that wait for a decision."""
        found = await self._desk.failures(_who(request))
        return await self._page(request, "findings.html", found=found, problem=None)

    # --- answering -------------------------------------------------------------------------------------------

    async def answer(self, request: Request) -> Response:
        """Take the answer of a form, and show the item as it is then. No answer gets lost silently."""
        item, link = request.path_params["item"], ""
        try:
            fields = await _fields(request)
            link = fields.get("link", "")
            given, shown = forms.read(fields)
            if isinstance(given, Edit):
                given = forms.only_changed(given, await self._desk.dossier(_who(request), item))
            who = _who(request)
            use = await self._links.use(link, item, shown, who) if link else None
            applied = await self._desk.answer(who, item, given, shown, also=use)
        except (UsageError, LinkRefused) as error:
            return await self._refused(request, item, problem_of(error))
        except SignInNeeded as error:
            if _who(request).via != "password":
                return await self._refused(request, item, problem_of(error))
            back = f"/inbox/{quote(item)}" + (f"?link={quote(link)}" if link else "")
            return RedirectResponse(f"/sign-in?{urlencode({'next': back, 'again': '1'})}", HTTPStatus.SEE_OTHER)
        if applied.alert:
            return await self._page(request, "told.html", told=[(item, applied.note)])
        return RedirectResponse(f"/inbox/{quote(item)}", HTTPStatus.SEE_OTHER)

    async def _refused(self, request: Request, item: str, problem: ProblemDetails) -> Response:
        return await self._item(request, await self._desk.dossier(_who(request), item), problem)

    async def bulk(self, request: Request) -> Response:
        """Several items, each whole, with one form for all of them."""
        names = list(dict.fromkeys(request.query_params.getlist("item")))
        if not names:
            return RedirectResponse("/inbox", HTTPStatus.SEE_OTHER)
        return await self._page(request, "bulk.html", found=await self._dossiers(request, names), problem=None)

    async def answer_all(self, request: Request) -> Response:
        """Take one answer for all of them, or for none."""
        form = await request.form()
        names, digests = form.getlist("item"), form.getlist("shown")
        if len(names) != len(digests) or not names:
            raise UsageError("this form does not say what was shown", next_step="choose the items again")
        pairs = [(str(name), str(shown)) for name, shown in zip(names, digests, strict=True)]
        try:
            given, _ = forms.read({name: str(value) for name, value in form.items()})
            done = await self._desk.answer_all(_who(request), pairs, given)
        except UsageError as error:
            found = await self._dossiers(request, [name for name, _ in pairs])
            problem = problem_of(error)
            return await self._page(request, "bulk.html", found=found, problem=problem)
        told = [(item, how.note) for (item, _), how in zip(pairs, done, strict=True) if how.alert]
        if told:
            return await self._page(request, "told.html", told=told)
        return RedirectResponse("/inbox", HTTPStatus.SEE_OTHER)

    async def review(self, request: Request) -> Response:
        """Record a shadow review."""
        fields, operation = await _fields(request), request.path_params["operation"]
        word = fields.get("type", "")
        if word not in {"right", "wrong"}:
            raise UsageError("this form does not say what was decided", next_step="open the page again")
        try:
            call = await self._desk.review(_who(request), operation, cast("ReviewWord", word), fields.get("why", ""))
        except UsageError as error:
            return await self.drawn(request, problem_of(error))
        return RedirectResponse(f"/shadow-reviews/{quote(call.operation)}", HTTPStatus.SEE_OTHER)

    async def acknowledge(self, request: Request) -> Response:
        """Record that the caller has seen a finding."""
        fields, finding = await _fields(request), request.path_params["finding"]
        newest = fields.get("newest", "")
        if not newest.isdecimal():
            raise UsageError("this form does not say what was shown", next_step="open the page again")
        deed = self._desk.acknowledge(_who(request), finding, int(newest), fields.get("why", ""))
        return await self._decided(request, deed)

    async def decide_lesson(self, request: Request) -> Response:
        """Approve or decline a proposed lesson."""
        fields, lesson = await _fields(request), request.path_params["lesson"]
        if (word := fields.get("word", "")) not in {"approve", "decline"}:
            raise UsageError("this form does not say what was decided", next_step="open the page again")
        deed = self._desk.decide_lesson(_who(request), lesson, approved=word == "approve", why=fields.get("why", ""))
        return await self._decided(request, deed)

    async def _decided(self, request: Request, deed: Awaitable[None]) -> Response:
        """The page after a decision, with the reason where it was refused."""
        try:
            await deed
        except UsageError as error:
            found, problem = await self._desk.failures(_who(request)), problem_of(error)
            return await self._page(request, "findings.html", found=found, problem=problem)
        return RedirectResponse("/findings", HTTPStatus.SEE_OTHER)

    async def _dossiers(self, request: Request, names: list[str]) -> list[Dossier]:
        if len(names) > BULK:
            raise UsageError(
                f"{len(names)} items are too many to read before one click",
                known=f"up to {BULK} are answered at once",
                next_step="choose fewer",
            )
        return [await self._desk.dossier(_who(request), name) for name in names]

    # --- in and out ------------------------------------------------------------------------------------------

    async def sign_in_page(self, request: Request) -> Response:
        """Ask for a name and a password."""
        wanted, again = local_path(request.query_params.get("next", "/")), request.query_params.get("again", "")
        return await self._sign_in_page(request, wanted, again=bool(again))

    async def _sign_in_page(
        self, request: Request, wanted: str, problem: ProblemDetails | None = None, *, again: bool = False
    ) -> Response:
        known = await self._desk.authenticator.has_accounts()
        first = "" if known else to_type("accounts", "add", NAME, "--role", "admin")
        return await self._page(
            request, "sign_in.html", next=wanted, problem=problem, again=again, first=first,
            from_terminal=self._from_terminal,
        )  # fmt: skip

    async def sign_in(self, request: Request) -> Response:
        """Begin a session, and go where the visitor wanted to go."""
        fields = await _fields(request)
        scope, wanted = request.scope, local_path(fields.get("next", "/"))
        old = presented(request.headers.get("cookie", ""), scope["origin"])
        try:
            begun = await self._desk.authenticator.sign_in(
                fields.get("name", ""), fields.get("password", ""), scope["address"], old=old
            )
        except SignInRefused as error:
            return await self._sign_in_page(request, wanted, problem_of(error))
        cookie = session_cookie(scope["origin"], begun.secret)
        return RedirectResponse(wanted, HTTPStatus.SEE_OTHER, {"set-cookie": cookie})

    async def sign_out(self, request: Request) -> Response:
        """End the session, here and in the browser."""
        origin = request.scope["origin"]
        await self._desk.authenticator.sign_out(presented(request.headers.get("cookie", ""), origin), _who(request))
        return RedirectResponse("/sign-in", HTTPStatus.SEE_OTHER, {"set-cookie": ended_cookie(origin)})

    # --- inside ----------------------------------------------------------------------------------------------

    async def _page(self, request: Request, name: str, **values: Any) -> Response:
        """Render a page in a thread, within a time limit, so that a slow page delays no other request.

        Its status is that of the `problem` which it shows, if there is one.
        """
        problem: ProblemDetails | None = values.get("problem")
        status = HTTPStatus.OK if problem is None else problem.status
        who: Principal | None = request.scope.get("principal")
        shared = {  # a link to what this person may not open is not shown
            "who": who, "now": self._desk.now_ms, "path": request.url.path, "provider": self._provider,
            "everywhere": who is not None and may(who, "look"),
            "anywhere": who is not None and may_somewhere(who, "look"),
        }  # fmt: skip
        render = functools.partial(self._templates.page, name, shared | values, status)
        async with self._drawing:
            drawn = self._desk.service.engine.environment.threads.call(render)
            try:
                return await asyncio.wait_for(asyncio.shield(drawn), DRAWN_S)
            except TimeoutError:
                return PlainTextResponse("This page takes too long to draw. In a terminal: beforehand inbox", 503)


def _who(request: Request) -> Principal:
    found: Principal = request.scope["principal"]
    return found


async def _fields(request: Request) -> dict[str, str]:
    return {name: str(value) for name, value in (await request.form()).items()}


def _converted(request: Request, wanted: type[T]) -> T:
    parameters = {name: value for name, value in request.query_params.items() if value}
    try:
        return msgspec.convert(parameters, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise ProblemResponse(HTTPStatus.BAD_REQUEST, f"this address does not fit: {error}") from error


def _linker(asking: ItemsQuery) -> Callable[..., str]:
    """Addresses of the same list with some filters changed: every view of it is a link."""
    plain = {name: value for name, value in msgspec.structs.asdict(asking).items() if value and name != "after"}
    plain.pop("limit", None)

    def link(**changed: str) -> str:
        parameters = {name: value for name, value in {**plain, **changed}.items() if value}
        return "/inbox" + (f"?{urlencode(parameters)}" if parameters else "")

    return link
