"""The desk as a user of the ready loop writes it; without Beforehand, as a loop written by hand."""

import json
from typing import Any

from beforehand import current_run
from beforehand.loop import ChatMessage, ModelCall, ModelLoop, ModelReply, ModelRequest, OnText, user
from tests.hosts.world import Scene


class Scripted:
    """A model that follows the plan of the scene."""

    name = "scripted"

    def __init__(self, world: Scene) -> None:
        self.world = world

    async def answer(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        ended = [message for message in request.messages if message.role == "tool"]
        chosen = self.world.turn({message.answers: not message.failed for message in ended})
        calls = tuple(ModelCall(call, "pay", json.dumps({"what": what})) for call, what in chosen)
        said = "" if calls else "; ".join(message.text for message in ended)
        return ModelReply(said, calls, "calls" if calls else "end")


async def converse(world: Scene, payer: Any, task: str) -> str:
    return await ModelLoop(Scripted(world))(current_run(), task)


async def without(world: Scene, payer: Any, task: str) -> str:
    model, messages = Scripted(world), [user(task)]
    while (reply := await model.answer(ModelRequest(messages=tuple(messages)), print)).calls:
        messages.append(reply.as_message())
        for call in reply.calls:
            try:
                said, failed = await payer(**json.loads(call.arguments)), False
            except ConnectionError as error:
                said, failed = str(error), True
            messages.append(ChatMessage("tool", said, (), call.id, call.tool, failed))
    return reply.text
