"""Starlette and FastAPI: `lifespan=desk.lifespan` opens the app, and `api.mount("/runs", Runs(desk))` serves its runs.

`POST /runs/AGENT` with an `Idempotency-Key` begins the run that the key names, or joins it. `GET /runs/AGENT/KEY`
returns its state. Errors follow the draft of the IETF: 400 if the key is missing or cannot name a run, 422 if it was
used with another body. The run continues if the client disconnects. Several processes may serve one journal.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from beforehand.agent.agent import Agent
from beforehand.control.input_checks import check
from beforehand.errors import ArgumentError, ParameterMismatch, RunSuspended, UnknownRun, UsageError
from beforehand.hosts import supported
from beforehand.hosts.http import HEADER
from beforehand.model.ids import RUN_ID
from beforehand.policies import RunBudget
from beforehand.webhooks.incoming import LARGEST, Hooks, WebhookSender, bounded_body

with supported("starlette", "0.46", "2", "starlette"):
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route, Router

if TYPE_CHECKING:
    from beforehand.app import Beforehand
    from beforehand.model.run_history import RunHistory

T = TypeVar("T")
WAIT: Final = timedelta(seconds=10)


class Runs:
    """An ASGI app that begins and shows runs of an app's agents.

    `wait` is how long a request waits for the end of its run before it answers 202. `client` names the caller of a
    request, so that two clients can use the same key. `agents` are the agents that are served, by default all agents of
    the app. `budget` are the limits of each run, in place of those of its agent; a client cannot choose them.
    Raises `UsageError` for an agent that is not in the app.
    """

    def __init__(
        self,
        app: Beforehand,
        *,
        agents: Sequence[Agent[Any, Any]] | None = None,
        wait: timedelta = WAIT,
        client: Callable[[Request], str] | None = None,
        budget: RunBudget | None = None,
    ) -> None:
        served = list(app.agents.values()) if agents is None else list(agents)
        for one in served:
            _check_agent(app, one)
        self._app = app
        self._agents = {one.name: one for one in served}
        self._wait_s = wait.total_seconds()
        self._client = client
        if budget is not None:
            check("budget", budget, RunBudget)
        self._budget = budget
        self._router = Router(
            [
                Route("/{agent}", self._begin, methods=["POST"]),
                Route("/{agent}/{key}", self._show, methods=["GET"], name="run"),
            ]
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One ASGI connection."""
        await self._router(scope, receive, send)

    async def respond(
        self,
        agent: Agent[T, Any],
        given: T,
        request: Request,
        *,
        status_at: str = "",
        budget: RunBudget | None = None,
    ) -> Response:
        """Begin or join the run that a request's key names, and return the response, for an endpoint of your own.

        `status_at` is the address under which the client can read the run's state later, if you serve one. `budget` are
        the limits of this run, in place of those that `Runs` was given.
        """
        _check_agent(self._app, agent)
        run = self._run_of(agent.name, request.headers.get(HEADER), request)
        if run is None:
            return _no_key(request.headers.get(HEADER))
        try:
            secret = self._app.engine.identity.secret
        except UsageError as problem:
            return _problem(503, "This server is not ready.", problem.message)
        try:
            stored = agent.stored_input(given, secret)
        except ArgumentError as problem:
            return _problem(422, "The body is not an input of this agent.", problem.message)
        if (begun := await self._history(run)) is not None:
            started = begun.lifecycle.started
            # If another process has the run, only the record says that this is another input.
            if started is not None and (started.agent, started.digest) != (agent.name, stored.digest):
                return _another_body(run)
        running = self._app.start(agent, given, run_id=run, budget=budget or self._budget)
        try:
            await asyncio.wait_for(running.result(), self._wait_s)
        except ParameterMismatch:
            return _another_body(run)
        except (RunSuspended, TimeoutError):
            pass
        except Exception:
            # The records say how a run ended. What they do not say is an error of this server.
            if (ended := await self._history(run)) is None or ended.lifecycle.status != "stopped":
                raise
        return _state(run, await self._history(run), status_at)

    async def _begin(self, request: Request) -> Response:
        agent = self._agents.get(request.path_params["agent"])
        if agent is None:
            return self._unknown_agent(request)
        if (body := await bounded_body(request.receive)) is None:
            return _problem(413, "The body is too long.", f"It has {LARGEST} bytes at most.")
        try:
            given = agent.parse_input(body)
        except UsageError as problem:
            return _problem(422, "The body is not an input of this agent.", problem.message)
        key = _plain(request.headers.get(HEADER))
        return await self.respond(agent, given, request, status_at=f"{request.url.path.rstrip('/')}/{key}")

    async def _show(self, request: Request) -> Response:
        name = request.path_params["agent"]
        if name not in self._agents:
            return self._unknown_agent(request)
        run = self._run_of(name, request.path_params["key"], request)
        history = None if run is None else await self._history(run)
        if run is None or history is None or history.lifecycle.started is None:
            return _problem(404, "There is no such run.", f"No request with this {HEADER} has begun a run of {name}.")
        return _state(run, history, request.url.path)

    def _run_of(self, agent: str, header: str | None, request: Request) -> str | None:
        """The run that a key names; None if the key is missing or cannot name one."""
        key = _plain(header)
        client = "" if self._client is None else hashlib.sha256(self._client(request).encode()).hexdigest()[:32] + ":"
        run = f"{agent}:{client}{key}"
        return run if key and RUN_ID.fullmatch(run) else None

    async def _history(self, run: str) -> RunHistory | None:
        try:
            return await self._app.service.history(run)
        except UnknownRun:
            return None

    def _unknown_agent(self, request: Request) -> Response:
        known = f"The agents here are {', '.join(sorted(self._agents)) or 'none'}."
        return _problem(404, f"There is no agent {request.path_params['agent'][:100]!r}.", known)


def webhooks(app: Beforehand, senders: Sequence[WebhookSender]) -> Callable[[Any, Any, Any], Awaitable[None]]:
    """An ASGI app that receives the webhooks of these senders. Mount it at an address of its own."""
    hooks: list[Hooks] = []

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if not hooks:  # the app is open once its server takes requests
            hooks.append(Hooks(app.service, senders))
        await hooks[0](scope, receive, send)

    return serve


def _check_agent(app: Beforehand, agent: Agent[Any, Any]) -> None:
    if app.agents.get(agent.name) is not agent:
        raise UsageError(
            f"the agent {agent.name} is not in this app, so its runs could not be recovered",
            known=f"its agents are {', '.join(sorted(app.agents)) or 'none'}",
            next_step=f"add it: Beforehand(..., agents=[{agent.name}])",
        )


def _plain(header: str | None) -> str:
    """The key in a header: a plain text, or the quoted string of the draft."""
    key = (header or "").strip()
    return key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key


def _no_key(header: str | None) -> Response:
    if not header:
        return _problem(400, f"The request has no {HEADER}.", "Send one that is new for each order, such as a UUID.")
    return _problem(
        400,
        f"This {HEADER} cannot name a run.",
        "It has at most 150 letters, digits or . _ : @ + = , ~ -, such as a UUID.",
    )


def _another_body(run: str) -> Response:
    return _problem(422, f"This {HEADER} was used with another body.", "Nothing was done for this request.", run=run)


def _state(run: str, history: RunHistory | None, status_at: str) -> Response:
    """The response with the state of a run: 200 with its result, 202 while it continues or waits, 500 if it stopped."""
    lifecycle = None if history is None else history.lifecycle
    if lifecycle is not None and lifecycle.status in {"stopped", "undone"}:
        reason = lifecycle.stopped.reason if lifecycle.stopped is not None else "undone"
        return _problem(500, "The run stopped.", f"Its reason is: {reason}.", run=run)
    if lifecycle is not None and lifecycle.completed is not None:
        return _json(200, {"run": run, "status": "completed", "result": lifecycle.completed.result})
    status = "running" if lifecycle is None or lifecycle.status != "suspended" else "waiting"
    headers = {"Retry-After": "1" if status == "running" else "30"}
    if status_at:
        headers["Location"] = status_at
    return _json(202, {"run": run, "status": status}, headers)


def _problem(status: int, title: str, detail: str, **more: str) -> Response:
    """A problem document as in RFC 9457."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return _json(status, body, media_type="application/problem+json")


def _json(
    status: int, body: object, headers: dict[str, str] | None = None, media_type: str = "application/json"
) -> Response:
    more = {**(headers or {}), "Cache-Control": "no-store"}
    return Response(msgspec.json.encode(body), status, more, media_type)
