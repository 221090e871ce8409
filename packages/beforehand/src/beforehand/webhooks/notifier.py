"""Sending notices: the system's own agent and tools. A webhook is a keyed effect like any other, and its key is its id.

The tools are not among those of the app's agents: a model is never shown them, and cannot call them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from beforehand.agent.agent import Agent, agent
from beforehand.agent.run import Run
from beforehand.agent.tool import Tool, tool
from beforehand.engine import steps
from beforehand.engine.current_operation import current_operation
from beforehand.errors import Ambiguous, BeforehandError, NotSent, Rejected
from beforehand.installation import extra_command
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Post
from beforehand.model.contract import Key
from beforehand.model.secret import Secret, SecretUnavailableError
from beforehand.model.webhooks import AGENT, ENDPOINTS, TOOL, Endpoint, Note, WebhookMessage
from beforehand.policies import Retry

if TYPE_CHECKING:
    from beforehand.engine.process import Process
    from beforehand.engine.tool_protocol import ToolCode
    from beforehand.webhooks.http_post import HttpAnswer

SCHEDULE: Final = Retry(attempts=24, elapsed=timedelta(days=4), base=timedelta(seconds=5), cap=timedelta(hours=12))
LONGEST_PAUSE_S: Final = 24 * 3600.0
LATER: Final = frozenset({429, 503})
GONE: Final = 410


class NotDelivered(BeforehandError):
    """A notice is proven not to have reached its endpoint in the whole time allowed."""


class Tools(Mapping[str, "ToolCode"]):
    """The tools of an app, and behind them one per receiver, made when it is asked for and never listed.

    `makers` make them: the one whose prefix a name has is given the rest of it.
    """

    def __init__(self, own: Mapping[str, ToolCode], makers: Mapping[str, Callable[[str], ToolCode]]) -> None:
        self._own = own
        self._makers = makers
        self._made: dict[str, ToolCode] = {}

    def __getitem__(self, name: str) -> ToolCode:
        if (found := self._own.get(name) or self._made.get(name)) is not None:
            return found
        for prefix, make in self._makers.items():
            if name.startswith(prefix):
                made = self._made[name] = make(name.removeprefix(prefix))
                return made
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


class Notifier:
    """The dependencies of one app's notices. `engine` is given once it is made."""

    def __init__(self) -> None:
        self.engine: Process | None = None
        self.agent: Final[Agent[WebhookMessage, str]] = notify

    def tool_for(self, name: str) -> Tool[[str], int]:
        """The tool that sends to one endpoint: each has a breaker and a retry budget of its own."""

        @tool(
            name=TOOL + name, idempotency=Key.forever(), retry=SCHEDULE, timeout=timedelta(seconds=30),
            on_unknown="raise",
        )  # fmt: skip
        def webhook(body: str) -> int:
            return self._send(name, body)

        return webhook

    def _send(self, name: str, body: str) -> int:
        """One try: the same id and bytes each time, signed anew, as the time of the try is signed too."""
        from beforehand.webhooks.http_post import post  # noqa: PLC0415 - http.client is slow to import, and few send webhooks

        engine = self.engine
        assert engine is not None, "an app gives its engine before anything is driven"
        endpoint = engine.outbox.endpoints.get(name)
        if endpoint is None or not endpoint.open:
            why = "is not known here" if endpoint is None else endpoint.disabled or "was removed"
            raise NotSent(f"the endpoint {name} {why}", retry_after=3600)
        key, at = current_operation().key, datetime.fromtimestamp(engine.wall_ms() / 1000, UTC)
        headers = {
            "content-type": "application/json",
            "user-agent": "beforehand",
            "webhook-id": key,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": _signature(endpoint, key, at, body),
        }
        answered = post(endpoint.url, body.encode(), headers, private=engine.settings.private_webhooks)
        return _taken(answered, at)


@agent(name=AGENT, tools=())
async def notify(run: Run, message: WebhookMessage) -> str:
    """Send it until it is taken or given up. An endpoint that is gone, or takes nothing any more, is disabled."""
    scope = run.scope()
    engine = scope.active.process
    await engine.outbox.refresh()
    webhook = cast("Tool[[str], int]", engine.tools[TOOL + message.endpoint])  # made by `tool_for`
    outcome = await webhook.outcome(message.body)
    if outcome.status == "succeeded":
        await engine.outbox.taken(message.endpoint)
        return f"taken: {outcome.value}"
    gone = outcome.code == str(GONE)
    why = "it answered 410 Gone" if gone else f"given up: {outcome.reason}"

    async def fresh() -> str:
        started = scope.active.history.lifecycle.started
        if gone or await engine.outbox.silent(message.endpoint, since=0 if started is None else started.at):
            await _disable(engine, message.endpoint, why)
        return why

    decision = await steps.value(scope, "give up", fresh)
    if outcome.status == "unknown":
        return f"not accepted in time: {decision}"  # the run is suspended until one more try is ordered
    raise NotDelivered(f"{message.endpoint} was not notified: {decision}")


async def _disable(engine: Process, name: str, why: str) -> None:
    """Disable an endpoint, once for each time that it was enabled."""
    await engine.outbox.refresh()
    endpoint = engine.outbox.endpoints.get(name)
    if endpoint is None or not endpoint.open:
        return
    note = Note("disable", name, "beforehand", why)
    await engine.journal.commit(Post(ENDPOINTS, f"disable/{name}/{endpoint.turned_on}", written(note)))
    await engine.outbox.refresh()


def _signature(endpoint: Endpoint, key: str, at: datetime, body: str) -> str:
    """One signature for each secret, so that a receiver can change to a new one."""
    try:
        from standardwebhooks import Webhook  # noqa: PLC0415 - an extra

        return " ".join(Webhook(Secret(name).reveal()).sign(key, at, body) for name in endpoint.secrets)
    except ModuleNotFoundError as error:
        raise NotSent(
            "webhooks need standardwebhooks, which is not installed", next_step=extra_command("webhooks")
        ) from error
    except (SecretUnavailableError, ValueError, RuntimeError) as error:
        raise NotSent(f"its secret cannot be used: {error}") from error


def _taken(answered: HttpAnswer, at: datetime) -> int:
    """The status of an answer that takes it. Raises the error that other statuses prove."""
    status = answered.status
    if 200 <= status < 300:
        return status
    if status == GONE:
        raise Rejected("it answered 410 Gone", code=str(GONE))
    pause = pause_s(answered.retry_after, at)
    if status in LATER and pause is not None:
        raise NotSent(f"it answered {status}", retry_after=pause)
    raise Ambiguous(f"it answered {status}")


def pause_s(retry_after: str, at: datetime) -> float | None:
    """Seconds until it asks to be tried again, a day at most; None where it does not say."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - it imports what parses mail, for one header

    try:
        asked: Any = float(retry_after) if retry_after.isdecimal() else parsedate_to_datetime(retry_after) - at
    except (TypeError, ValueError):
        return None
    seconds = asked.total_seconds() if isinstance(asked, timedelta) else asked
    return float(min(LONGEST_PAUSE_S, max(0.0, seconds)))
