"""The description of the API (OpenAPI 3.1), made from the structs that its requests are checked against."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from importlib import metadata
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from beforehand_console.web.api import OPERATIONS, ROOT, ApiEndpoint, RunName
from beforehand_console.web.problems import MEDIA_TYPE, ProblemDetails
from beforehand_console.web.schemas import ItemName

PATH: Final = "/api/openapi.json"
_ALWAYS: Final = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.MISDIRECTED_REQUEST,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_NAMES: Final = {"item": ItemName, "run": RunName}
_Json = dict[str, Any]  # JSON has no narrower type


def routes() -> list[Route]:
    """The route of the description."""
    body = msgspec.json.format(msgspec.json.encode(description()), indent=1)

    async def endpoint(request: Request) -> Response:
        del request
        return Response(body, media_type="application/json")

    return [Route(PATH, endpoint)]


@cache
def description() -> _Json:
    """The whole document."""
    types: list[Any] = [ProblemDetails, *_NAMES.values()]
    for one in OPERATIONS:
        types += [one.answers, one.query, *([one.body] if one.body is not None else [])]
    shapes, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    of = {id(kind): shape for kind, shape in zip(types, shapes, strict=True)}
    paths: _Json = {}
    for one in OPERATIONS:
        paths.setdefault(ROOT + one.path, {})[one.method.lower()] = _operation(one, of, components)
    for one in OPERATIONS:
        components.pop(one.query.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Beforehand",
            "version": metadata.version("beforehand"),
            "summary": "What waits for people, and their answers.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "beforehand accounts token add NAME"},
                "session": {"type": "apiKey", "in": "cookie", "name": "__Host-beforehand"},
            },
        },
    }


def _operation(one: ApiEndpoint, of: dict[int, _Json], components: _Json) -> _Json:
    statuses = {*one.problems, *_ALWAYS}
    found: _Json = {
        "operationId": one.name,
        "summary": one.summary,
        "responses": {"200": _content("What was asked for.", "application/json", of[id(one.answers)])},
    }
    parameters = _parameters(one, of, components)
    if parameters:
        found["parameters"] = parameters
        statuses.add(HTTPStatus.UNPROCESSABLE_ENTITY)
    if one.method == "POST":  # the guard limits the rate of an account
        statuses.add(HTTPStatus.TOO_MANY_REQUESTS)
    if one.body is not None:
        found["requestBody"] = {"required": True} | _content("", "application/json", of[id(one.body)])
        statuses |= {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
        statuses |= {HTTPStatus.UNSUPPORTED_MEDIA_TYPE}
    statuses.add(HTTPStatus.BAD_REQUEST)
    for status in sorted(statuses):
        found["responses"][str(int(status))] = _content(HTTPStatus(status).phrase, MEDIA_TYPE, of[id(ProblemDetails)])
    return found


def _parameters(one: ApiEndpoint, of: dict[int, _Json], components: _Json) -> list[_Json]:
    named = [
        {"name": name, "in": "path", "required": True, "schema": of[id(kind)]}
        for name, kind in _NAMES.items()
        if f"{{{name}}}" in one.path
    ]
    fields: _Json = components[one.query.__name__].get("properties", {})
    return [*named, *({"name": name, "in": "query", "schema": shape} for name, shape in fields.items())]


def _content(text: str, media: str, schema: _Json) -> _Json:
    found: _Json = {"content": {media: {"schema": schema}}}
    return {"description": text, **found} if text else found
