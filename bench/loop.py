"""A turn of the ready loop with two tools, beside the same in Pydantic AI without durability: `python bench/loop.py`.

Both ask a model that answers at once: the figure is processor time of the library alone, and the disk is not in it.
Then the time from a piece of a streamed answer to the caller. Exit status 1 where a bound is missed.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.loop import LoopLimits, ModelCall, ModelLoop, ModelReply, ModelRequest, OnText

TURNS: Final = 40
PAIRS: Final = 5
PIECES: Final = 200
MOST_RATIO: Final = 1.5
MOST_MS: Final = 1.0


class Instant:
    """A model that calls two tools in every turn, and the last time answers."""

    name = "instant"

    async def answer(self, request: ModelRequest, on_text: OnText) -> ModelReply:  # noqa: ARG002 - as the protocol says
        turn = sum(message.role == "assistant" for message in request.messages)
        calls = (ModelCall(f"a{turn}", "add", '{"number": 1}'), ModelCall(f"b{turn}", "note", '{"number": 2}'))
        return ModelReply("done") if turn == TURNS else ModelReply("", calls, "calls")


class Talker:
    """A model that says when it says something."""

    name = "talker"

    async def answer(self, request: ModelRequest, on_text: OnText) -> ModelReply:  # noqa: ARG002 - as the protocol says
        for _ in range(PIECES):
            await asyncio.sleep(0.005)
            on_text(repr(time.perf_counter()))
        return ModelReply("done")


@tool(idempotency=Key.forever())
async def add(number: int) -> str:
    return f"{number}{current_operation().key[:0]}"


@tool(idempotency=Key.forever())
async def note(number: int) -> str:
    return f"{number}{current_operation().key[:0]}"


@agent(tools=[add, note])
async def worker(run: Run, text: str) -> str:
    return await ModelLoop(Instant(), limits=LoopLimits(turns=TURNS + 1), compaction=None)(run, text)


@agent(tools=[])
async def talker(run: Run, text: str) -> str:
    return await ModelLoop(Talker())(run, text)


def answers(messages: list[ModelMessage], _: Any) -> ModelResponse:
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if turn == TURNS:
        return ModelResponse(parts=[TextPart("done")])
    parts = [ToolCallPart("add", {"number": 1}, f"a{turn}"), ToolCallPart("note", {"number": 2}, f"b{turn}")]
    return ModelResponse(parts=parts)


peer = PydanticAgent(FunctionModel(answers))


@peer.tool_plain(name="add")
async def peer_add(number: int) -> str:
    return str(number)


@peer.tool_plain(name="note")
async def peer_note(number: int) -> str:
    return str(number)


async def spent_ms(work: Callable[[], Awaitable[object]]) -> float:
    """Processor time of one turn."""
    before = time.process_time()
    await work()
    return (time.process_time() - before) / TURNS * 1000


async def late_ms(app: Beforehand) -> float:
    """The median time from a piece of text to the caller."""
    late = [
        (time.perf_counter() - float(event.text)) * 1000
        async for event in app.stream(talker, "x", run_id="talk")
        if event.kind == "text_delta" and event.text.count(".") == 1
    ]
    return statistics.median(late)


async def main() -> int:
    ours: list[float] = []
    theirs: list[float] = []
    limits = UsageLimits(request_limit=None)
    with tempfile.TemporaryDirectory() as place:
        async with Beforehand(f"{place}/loop.db", agents=[worker, talker], recover=False) as app:
            for number in range(PAIRS + 1):  # the first pair only warms up
                ours.append(await spent_ms(lambda number=number: app.run(worker, "x", run_id=f"w{number}")))
                theirs.append(await spent_ms(lambda: peer.run("x", usage_limits=limits)))
            late = await late_ms(app)
    mine, other = statistics.median(ours[1:]), statistics.median(theirs[1:])
    print(
        f"a turn with two tools: {mine:.2f} ms, in Pydantic AI {other:.2f} ms: {mine / other:.2f}, at most {MOST_RATIO}"
    )
    print(f"a piece of text reaches the caller after {late:.2f} ms, at most {MOST_MS}")
    return int(mine / other > MOST_RATIO or late > MOST_MS)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
