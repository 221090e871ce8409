"""The HTTP API: one table of calls, from which the routes and the description are made, and their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from beforehand.control.input_checks import decode_json
from beforehand.control.queues import Submitted
from beforehand.errors import BeforehandError
from beforehand.inspect.timeline import Timeline
from beforehand.journal.port import RunStatus
from beforehand.people.dossier import Dossier
from beforehand_console.auth.authorize import Principal
from beforehand_console.reviews.report import ReviewReport
from beforehand_console.reviews.shadow_reviews import DrawnCall
from beforehand_console.web import schemas
from beforehand_console.web.health import HealthQuery
from beforehand_console.web.listing import ItemsPage, ItemsQuery
from beforehand_console.web.problems import ProblemResponse, headers_of, problem_of, response_of
from beforehand_console.web.use_cases import UseCases

ROOT: Final = "/api/v1"
RunName = Annotated[str, Meta(min_length=1, max_length=500, description="The id of a run.")]


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call without parameters."""


class RunsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter of runs: those of this status, by name, after that name."""

    status: RunStatus | None = None
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class ApiCall(msgspec.Struct, frozen=True):
    """The input of a call: who asks, the name in its path, its query and its body, both checked."""

    who: Principal
    name: str
    query: Any
    body: Any


class ApiEndpoint(msgspec.Struct, frozen=True):
    """One call of the API. `path` may name one `{item}` or `{run}`; `answers` is what it returns with 200."""

    method: Literal["GET", "POST"]
    path: str
    name: str
    summary: str
    answers: Any
    does: Callable[[UseCases, ApiCall], Awaitable[object]]
    query: type[msgspec.Struct] = NoParameters
    body: type[msgspec.Struct] | None = None
    problems: tuple[int, ...] = ()


async def _me(desk: UseCases, given: ApiCall) -> schemas.Caller:
    del desk
    return schemas.me(given.who)


async def _items(desk: UseCases, given: ApiCall) -> ItemsPage:
    return await desk.listed(given.who, given.query)


async def _item(desk: UseCases, given: ApiCall) -> Dossier:
    return await desk.dossier(given.who, given.name)


async def _answer(desk: UseCases, given: ApiCall) -> schemas.AnswerReceipt:
    asked: schemas.AnswerRequest = given.body
    applied = await desk.answer(given.who, asked.item, asked.answer, asked.shown)
    return schemas.AnswerReceipt(asked.item, applied.run, applied.at_once, applied.note)


async def _answer_all(desk: UseCases, given: ApiCall) -> schemas.AnswerReceipts:
    asked: schemas.AnswersRequest = given.body
    pairs = [(one.item, one.shown) for one in asked.items]
    done = await desk.answer_all(given.who, pairs, asked.answer)
    taken = zip(asked.items, done, strict=True)
    return schemas.AnswerReceipts(
        [schemas.AnswerReceipt(one.item, how.run, how.at_once, how.note) for one, how in taken]
    )


async def _runs(desk: UseCases, given: ApiCall) -> schemas.RunsPage:
    asked: RunsQuery = given.query
    rows = await desk.runs(given.who, asked.status, asked.limit + 1, asked.after)
    more = len(rows) > asked.limit
    disputed = await desk.reader.contradicted_steps()
    listed = [schemas.run_of(row, disputed) for row in rows[: asked.limit]]
    return schemas.RunsPage(listed, rows[asked.limit - 1].run if more else "")


async def _submit(desk: UseCases, given: ApiCall) -> Submitted:
    return await desk.submit(given.who, given.body)


async def _run(desk: UseCases, given: ApiCall) -> schemas.RunSummary:
    row = await desk.row(given.who, given.name)
    return schemas.run_of(row, await desk.reader.contradicted_steps())


async def _timeline(desk: UseCases, given: ApiCall) -> Timeline:
    return await desk.timeline(given.who, given.name)


async def _health(desk: UseCases, given: ApiCall) -> ReviewReport:
    return await desk.health(given.who, given.query)


async def _shadow_reviews(desk: UseCases, given: ApiCall) -> list[DrawnCall]:
    return await desk.open_reviews(given.who)


async def _review(desk: UseCases, given: ApiCall) -> schemas.ReviewReceipt:
    asked: schemas.ReviewRequest = given.body
    call = await desk.review(given.who, asked.operation, asked.word, asked.note)
    return schemas.ReviewReceipt(call.operation, call.run)


OPERATIONS: Final = (
    ApiEndpoint("GET", "/me", "me", "The signed-in user.", schemas.Caller, _me),
    ApiEndpoint(
        "GET", "/items", "list_items", "The items that wait for people, the most urgent first.", ItemsPage, _items,
        query=ItemsQuery, problems=(409,),
    ),
    ApiEndpoint(
        "GET", "/items/{item}", "get_item", "All details of one item.", Dossier, _item,
        problems=(404, 409),
    ),
    ApiEndpoint(
        "POST", "/answers", "answer", "Answer an item. The first answer is final.", schemas.AnswerReceipt, _answer,
        body=schemas.AnswerRequest, problems=(404, 409),
    ),
    ApiEndpoint(
        "POST", "/answers/bulk", "answer_all", "Give several items the same answer: all of them, or none.",
        schemas.AnswerReceipts, _answer_all, body=schemas.AnswersRequest, problems=(404, 409),
    ),
    ApiEndpoint(
        "GET", "/shadow-reviews", "list_shadow_reviews", "The sent calls that wait for a review, the oldest first.",
        list[DrawnCall], _shadow_reviews,
    ),
    ApiEndpoint(
        "POST", "/shadow-reviews", "review", "Say whether it was right to send a call. The first review counts.",
        schemas.ReviewReceipt, _review, body=schemas.ReviewRequest, problems=(404, 409),
    ),
    ApiEndpoint("GET", "/runs", "list_runs", "The runs, by name.", schemas.RunsPage, _runs, query=RunsQuery),
    ApiEndpoint(
        "POST", "/runs", "submit_run", "Submit a run to a queue. The same key is the same run.", Submitted, _submit,
        body=schemas.SubmitRequest, problems=(404, 409),
    ),
    ApiEndpoint("GET", "/runs/{run}", "get_run", "One run.", schemas.RunSummary, _run, problems=(404,)),
    ApiEndpoint(
        "GET", "/runs/{run}/timeline", "get_timeline", "What happened in a run.", Timeline, _timeline,
        problems=(404,),
    ),
    ApiEndpoint(
        "GET", "/health", "get_health", "The workload of the reviewers, and their findings.", ReviewReport,
        _health, query=HealthQuery,
    ),
)  # fmt: skip


def routes(desk: UseCases) -> list[Route]:
    """The routes of the API."""
    return [_route(desk, one) for one in OPERATIONS]


def _route(desk: UseCases, one: ApiEndpoint) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            return Response(
                msgspec.json.encode(await one.does(desk, await _given(request, one))),
                headers={"cache-control": "no-store"},
                media_type="application/json",
            )
        except BeforehandError as error:
            return response_of(problem_of(error), headers_of(error))

    return Route(ROOT + one.path.replace("{item}", "{item:path}"), endpoint, methods=[one.method])


async def _given(request: Request, one: ApiEndpoint) -> ApiCall:
    name = next(iter(request.path_params.values()), "")
    return ApiCall(request.scope["principal"], name, _query(request, one.query), await _body(request, one.body))


def _query(request: Request, wanted: type[msgspec.Struct]) -> msgspec.Struct:
    pairs = request.query_params.multi_items()
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise ProblemResponse(HTTPStatus.BAD_REQUEST, "a parameter came twice")
    try:
        return msgspec.convert(parameters, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise ProblemResponse(HTTPStatus.UNPROCESSABLE_ENTITY, f"the query does not fit: {error}") from error


async def _body(request: Request, wanted: type[msgspec.Struct] | None) -> msgspec.Struct | None:
    if wanted is None:
        return None
    try:
        decoded: msgspec.Struct = decode_json(await request.body(), wanted)
    except msgspec.ValidationError as error:
        raise ProblemResponse(HTTPStatus.UNPROCESSABLE_ENTITY, f"the body does not fit: {error}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ProblemResponse(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from error
    return decoded
