"""A loop over a real connection to a server with faults: each try is counted, and the answer is paid for once."""

from __future__ import annotations

import asyncio
import tracemalloc
from datetime import timedelta
from pathlib import Path

import pytest

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.loop import ModelCall, ModelLoop, ModelReply, OpenAIChat
from beforehand.loop.model_loop import LoopLimits
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.loop.model_server import Answer, ModelServer, Says, Status

sent: list[str] = []


@tool(idempotency=Key.forever())
async def refund(order: str) -> str:
    sent.append(f"refund {order}{current_operation().key[:0]}")
    return "refunded"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch):
    sent.clear()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def desk(model) -> object:
    loop = ModelLoop(model, retry=Retry(attempts=9, base=timedelta(milliseconds=1)), limits=LoopLimits(turns=999))

    @agent(run_id="faults-{text}", tools=[refund])
    async def talk(run: Run, text: str) -> str:
        return await loop(run, text)

    return talk


def test_every_fault_is_tried_again_and_counted(tmp_path: Path):
    call = ModelCall("c1", "refund", '{"order": "A"}')
    script: list[Answer] = [
        Status(429, {"Retry-After": "0"}),
        Status(500),
        Says("I will refund", (call,), cut_after=4),
        Says("I will refund", (call,), garble=3),
        Says("I will refund", (call,), first_byte=0.05),
        Status(503),
        Says("Refunded."),
    ]

    async def run() -> tuple[list[str], list[r.Record]]:
        async with ModelServer(script).running() as server:
            talk = desk(OpenAIChat("m", base_url=server.url))
            async with Beforehand(tmp_path / "x.db", agents=[talk]) as app:
                kinds = [event.kind async for event in app.stream(talk, "x")]
                records = [record async for _, record in app.service.reader.records("faults-x")]
            assert len(server.requests) == len(script)
            return kinds, records

    kinds, records = asyncio.run(run())
    assert sent == ["refund A"]
    assert [one.number for one in records if isinstance(one, r.DecisionStarted)] == [1, 2, 3, 4, 5, 1, 2]
    assert [one.status for one in records if isinstance(one, r.DecisionRecorded)] == ["succeeded", "succeeded"]
    assert kinds.count("turn_restarted") == 5
    assert [kind for kind in kinds if kind in {"answer", "outcome", "completed"}] == [
        "answer",
        "outcome",
        "answer",
        "completed",
    ]


def test_a_long_conversation_takes_no_more_memory_a_turn(tmp_path: Path):
    """A turn leaves its messages behind; the engine holds nothing more."""

    class Talker:
        name = "talker"
        marks: list[int] = []

        async def answer(self, request, on_text):
            turn = sum(message.role == "assistant" for message in request.messages)
            if turn in {20, 100}:
                self.marks.append(tracemalloc.get_traced_memory()[0])
            call = ModelCall(f"c{turn}", "refund", f'{{"order": "{turn}"}}')
            return ModelReply("done") if turn == 100 else ModelReply("", (call,), "calls")

    model = Talker()
    talk = desk(model)

    async def run() -> None:
        async with Beforehand(tmp_path / "x.db", agents=[talk], recover=False) as app:
            tracemalloc.start()
            try:
                assert await app.run(talk, "x") == "done"
            finally:
                tracemalloc.stop()

    asyncio.run(run())
    at_20, at_100 = model.marks
    assert len(sent) == 100
    assert (at_100 - at_20) / 80 < 4096, "bytes that stay of a turn"
