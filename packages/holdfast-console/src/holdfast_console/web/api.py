"""The HTTP API: one table of calls, from which the routes and the description are made, and what each call does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.control.input_checks import decode_json
from holdfast.errors import HoldfastError
from holdfast.inspect.timeline import Timeline
from holdfast.journal.port import RunStatus
from holdfast.people.dossier import Dossier
from holdfast_console.auth.authorize import Principal
from holdfast_console.reviews.report import Report
from holdfast_console.web import schemas
from holdfast_console.web.health import AskingHealth
from holdfast_console.web.listing import Asking, Listed
from holdfast_console.web.problems import Refused, problem_of, response_of
from holdfast_console.web.use_cases import Desk

ROOT: Final = "/api/v1"
RunName = Annotated[str, Meta(min_length=1, max_length=500, description="The id of a run.")]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call without parameters."""


class AskingRuns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs are wanted: those of this status, by name, after that name."""

    status: RunStatus | None = None
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class Given(msgspec.Struct, frozen=True):
    """What came with a call: who asks, the name in its path, its query and its body, both checked."""

    who: Principal
    name: str
    query: Any
    body: Any


class Operation(msgspec.Struct, frozen=True):
    """One call of the API. `path` may name one `{item}` or `{run}`; `answers` is what it returns with 200."""

    method: Literal["GET", "POST"]
    path: str
    name: str
    summary: str
    answers: Any
    does: Callable[[Desk, Given], Awaitable[object]]
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] | None = None
    problems: tuple[int, ...] = ()


async def _me(desk: Desk, given: Given) -> schemas.Me:
    del desk
    return schemas.me(given.who)


async def _items(desk: Desk, given: Given) -> Listed:
    return await desk.listed(given.who, given.query)


async def _item(desk: Desk, given: Given) -> Dossier:
    return await desk.dossier(given.who, given.name)


async def _answer(desk: Desk, given: Given) -> schemas.Taken:
    asked: schemas.Answering = given.body
    applied = await desk.answer(given.who, asked.item, asked.answer, asked.shown)
    return schemas.Taken(asked.item, applied.run, applied.at_once, applied.note)


async def _answer_all(desk: Desk, given: Given) -> schemas.TakenAll:
    asked: schemas.AnsweringAll = given.body
    pairs = [(one.item, one.shown) for one in asked.items]
    done = await desk.answer_all(given.who, pairs, asked.answer)
    taken = zip(asked.items, done, strict=True)
    return schemas.TakenAll([schemas.Taken(one.item, how.run, how.at_once, how.note) for one, how in taken])


async def _runs(desk: Desk, given: Given) -> schemas.Runs:
    asked: AskingRuns = given.query
    rows = await desk.runs(given.who, asked.status, asked.limit + 1, asked.after)
    more = len(rows) > asked.limit
    disputed = await desk.looking.contradicted_steps()
    listed = [schemas.run_of(row, disputed) for row in rows[: asked.limit]]
    return schemas.Runs(listed, rows[asked.limit - 1].run if more else "")


async def _run(desk: Desk, given: Given) -> schemas.Run:
    row = await desk.row(given.who, given.name)
    return schemas.run_of(row, await desk.looking.contradicted_steps())


async def _timeline(desk: Desk, given: Given) -> Timeline:
    return await desk.timeline(given.who, given.name)


async def _health(desk: Desk, given: Given) -> Report:
    return await desk.health(given.who, given.query)


OPERATIONS: Final = (
    Operation("GET", "/me", "me", "Who the server takes you for.", schemas.Me, _me),
    Operation(
        "GET", "/items", "list_items", "What waits for people, the most urgent first.", Listed, _items,
        query=Asking, problems=(409,),
    ),
    Operation(
        "GET", "/items/{item}", "get_item", "Everything there is to know about one item.", Dossier, _item,
        problems=(404, 409),
    ),
    Operation(
        "POST", "/answers", "answer", "Answer an item. The first answer is final.", schemas.Taken, _answer,
        body=schemas.Answering, problems=(404, 409),
    ),
    Operation(
        "POST", "/answers/bulk", "answer_all", "Give several items the same answer: all of them, or none.",
        schemas.TakenAll, _answer_all, body=schemas.AnsweringAll, problems=(404, 409),
    ),
    Operation("GET", "/runs", "list_runs", "The runs, by name.", schemas.Runs, _runs, query=AskingRuns),
    Operation("GET", "/runs/{run}", "get_run", "One run.", schemas.Run, _run, problems=(404,)),
    Operation(
        "GET", "/runs/{run}/timeline", "get_timeline", "What happened in a run.", Timeline, _timeline,
        problems=(404,),
    ),
    Operation(
        "GET", "/health", "get_health", "Whether people keep up and still look, and what they found.", Report, _health,
        query=AskingHealth,
    ),
)  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    """The routes of the API."""
    return [_route(desk, one) for one in OPERATIONS]


def _route(desk: Desk, one: Operation) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            return Response(
                msgspec.json.encode(await one.does(desk, await _given(request, one))),
                headers={"cache-control": "no-store"},
                media_type="application/json",
            )
        except HoldfastError as error:
            return response_of(problem_of(error))

    return Route(ROOT + one.path.replace("{item}", "{item:path}"), endpoint, methods=[one.method])


async def _given(request: Request, one: Operation) -> Given:
    name = next(iter(request.path_params.values()), "")
    return Given(request.scope["principal"], name, _query(request, one.query), await _body(request, one.body))


def _query(request: Request, wanted: type[msgspec.Struct]) -> msgspec.Struct:
    pairs = request.query_params.multi_items()
    said = dict(pairs)
    if len(said) < len(pairs):
        raise Refused(HTTPStatus.BAD_REQUEST, "a parameter came twice")
    try:
        return msgspec.convert(said, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"the query does not fit: {error}") from error


async def _body(request: Request, wanted: type[msgspec.Struct] | None) -> msgspec.Struct | None:
    if wanted is None:
        return None
    try:
        decoded: msgspec.Struct = decode_json(await request.body(), wanted)
    except msgspec.ValidationError as error:
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"the body does not fit: {error}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}") from error
    return decoded
