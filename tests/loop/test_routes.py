"""Routes over real connections: each model behind a server of its own, with the faults of the field."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.loop import AnthropicMessages, ModelCall, ModelLoop, OpenAIChat, Route, RouteModel
from beforehand.model import records as r
from beforehand.policies import Retry
from beforehand.testing import World
from beforehand.testing.services import ScriptedModel
from tests.loop.model_server import Answer, ModelServer, Says, Status
from tests.unit.loop.test_route import decisions, outage

CALL = ModelCall("c1", "refund", '{"order": "A"}')
RETRY = Retry(attempts=9, base=timedelta(milliseconds=1))
sent: list[str] = []


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch):
    sent.clear()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@tool(idempotency=Key.forever())
async def refund(order: str) -> str:
    sent.append(f"refund {order}{current_operation().key[:0]}")
    return "refunded"


def talking(loop: ModelLoop):
    @agent(run_id="routes-{text}", tools=[refund])
    async def talk(run: Run, text: str) -> str:
        return await loop(run, text)

    return talk


class Field:
    """Two servers, and one run after the other of a route over both: one model of OpenAI's protocol, one of another."""

    def __init__(self, first: list[Answer], second: list[Answer], **second_declares: object) -> None:
        self.first, self.second, self._declares = ModelServer(first), ModelServer(second), second_declares

    async def runs(self, place: Path, number: int = 1) -> list[list[r.Record]]:
        async with contextlib.AsyncExitStack() as open_until:
            for server in (self.first, self.second):
                await open_until.enter_async_context(server.running())
            near = OpenAIChat("near", base_url=self.first.url)
            far = AnthropicMessages("far", base_url=self.second.url, key="of-a-test")
            route = Route([near, RouteModel(far, **self._declares)])
            talk = talking(ModelLoop(route, retry=RETRY))
            app = await open_until.enter_async_context(Beforehand(place / "x.db", agents=[talk]))
            names = [str(one) for one in range(number)]
            for name in names:
                assert await app.run(talk, name) == "Refunded."
            return [[one async for _, one in app.service.reader.records(f"routes-{name}")] for name in names]


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (Status(503), "unavailable", "answered 503"),
        (Status(401), "unauthorized", "answered 401"),
        (Says("I will", (CALL,), cut_after=3), "unavailable", "peer closed connection"),
        (Status(429, {"Retry-After": "300"}), "rate_limited", "answered 429"),
    ],
)
def test_a_fault_of_one_provider_is_answered_by_the_other(tmp_path: Path, fault: Answer, code: str, said: str):
    field = Field([fault], [Says("", (CALL,)), Says("Refunded.")])
    (records,) = asyncio.run(asyncio.wait_for(field.runs(tmp_path), 30))
    assert sent == ["refund A"]
    first, second = decisions(records)
    assert (first.model, first.service, second.model) == ("claude-test", field.second.url, "claude-test")
    assert first.why.startswith(f"near failed ({code}): ")
    assert said in first.why
    turns = 1 if code == "rate_limited" else 2
    assert len(field.first.requests) == turns, "a provider that asks to be left alone is"
    assert "near is not asked for" in second.why or turns == 2


def test_a_conversation_that_is_too_long_goes_to_a_model_that_takes_it(tmp_path: Path):
    long = Status(400, body=b'{"error": {"message": "maximum context length", "code": "context_length_exceeded"}}')
    field = Field([long], [Says("", (CALL,)), Says("Refunded.")], after=("too_long",))
    (records,) = asyncio.run(field.runs(tmp_path))
    assert [one.why[:22] for one in decisions(records)] == ["near failed (too_long)"] * 2
    assert len(field.first.requests) == 2, "that is no fault of the service: the next question is asked there"


def test_a_provider_that_is_down_is_left_alone_after_some_runs(tmp_path: Path):
    field = Field([Status(500)], [Says("Refunded.")])
    found = asyncio.run(field.runs(tmp_path, 9))
    assert len(field.second.requests) == 9
    assert 5 <= len(field.first.requests) < 9
    assert any("near is not asked for" in decisions(records)[0].why for records in found)


def test_what_a_try_used_is_known_where_nothing_could_be_sent(tmp_path: Path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        nowhere = OpenAIChat("nowhere", base_url=f"http://127.0.0.1:{closed.getsockname()[1]}")
        talk = talking(ModelLoop(Route([nowhere, ScriptedModel("Refunded.", name="small")]), retry=RETRY))

        async def run() -> list[r.Record]:
            async with Beforehand(tmp_path / "x.db", agents=[talk]) as app:
                await app.run(talk, "x")
                return [one async for _, one in app.service.reader.records("routes-x")]

        records = asyncio.run(run())
    first, second = (one for one in records if isinstance(one, r.DecisionStarted))
    assert (first.before.refused, second.before.refused) == (False, True)


def test_a_route_is_explored_with_a_crash_at_each_boundary():
    """No choice that was recorded is made anew: the effects are the same wherever the run dies."""
    big = ScriptedModel([outage(), CALL], "Refunded.", name="big")
    small = ScriptedModel(CALL, "Refunded by small.", name="small")
    route = Route([RouteModel(big, share=0.5), small])
    world = World()
    world.use(big, small, route)
    explored = world.explore(talking(ModelLoop(route)), "x", same=lambda effect: (effect.tool, str(effect.arguments)))
    assert "a crash at each" in str(explored)
