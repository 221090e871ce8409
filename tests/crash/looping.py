"""A process with an agent in a ready loop: `python -m tests.crash.looping JOURNAL MODEL WITNESS AFTER CLIENT`.

It prints each event of the run as a line of JSON, and ends when the run has ended.
"""

import asyncio
import json
import sys
import urllib.request
from datetime import timedelta

import msgspec

from beforehand import Beforehand, DidNotHappen, Happened, Key, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.engine.settings import Settings
from beforehand.loop import AnthropicMessages, GoogleGemini, ModelLoop, OpenAIChat, Route
from beforehand.policies import Retry

JOURNAL, MODEL, WITNESS, AFTER, CLIENT = sys.argv[1:6]
CLIENTS = {"openai": OpenAIChat, "anthropic": AnthropicMessages, "google": GoogleGemini}


def post(path: str, **body: object) -> dict[str, object]:
    request = urllib.request.Request(WITNESS + path, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


@tool(idempotency=Key.forever())
def refund(order: str) -> str:
    """Give the money of an order back. The service knows its keys."""
    return str(post("/refund", key=current_operation().key, what=f"refund {order}")["said"])


@tool
def note(order: str) -> str:
    """Write a note. The service takes every request for a new one."""
    return str(post("/note", key=current_operation().marker, what=f"note {order}")["said"])


@note.verify(settle_window=timedelta(0))
def in_the_notes(operation: Operation[str], order: str) -> Verdict[str]:
    found = post("/find", key=operation.marker)["said"]
    return Happened(str(found)) if found else DidNotHappen()


def model() -> OpenAIChat | AnthropicMessages | GoogleGemini | Route:
    if CLIENT != "route":
        return CLIENTS[CLIENT]("m", key="of-a-test", base_url=MODEL)
    return Route([OpenAIChat(name, key="of-a-test", base_url=MODEL) for name in ("down", "m")])


loop = ModelLoop(model(), "Help.", retry=Retry(base=timedelta(milliseconds=10)))


@agent(run_id="talk-{text}", tools=[refund, note])
async def talk(run: Run, text: str) -> str:
    return await loop(run, text)


async def main() -> None:
    settings = Settings(lease_ms=3000, margin_ms=500)
    async with Beforehand(JOURNAL, agents=[talk], settings=settings, recover=False) as app:
        async for event in app.stream(talk, "x", after=int(AFTER)):
            print(msgspec.json.encode(event).decode(), flush=True)


asyncio.run(main())
