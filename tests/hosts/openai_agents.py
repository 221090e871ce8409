"""The desk as a user of the OpenAI Agents SDK writes it."""

import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from holdfast import tool
from holdfast.hosts.openai_agents import durable
from tests.hosts.world import Scene


class Scripted(Model):
    """A model that follows the plan of the scene."""

    def __init__(self, world: Scene) -> None:
        self.world = world

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002 - the name is the SDK's
        items = [] if isinstance(input, str) else input
        ended = [item for item in items if item.get("type") == "function_call_output"]
        calls: list[Any] = [
            ResponseFunctionToolCall(
                call_id=call, name="pay", arguments=json.dumps({"what": what}), type="function_call"
            )
            for call, what in self.world.turn({item["call_id"]: not _failed(item) for item in ended})
        ]
        text = ResponseOutputText(
            text="; ".join(str(item["output"]) for item in ended), annotations=[], type="output_text", logprobs=[]
        )
        said = ResponseOutputMessage(id="m1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=calls or [said], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError  # no scene streams with this model; those that do have their own


def _failed(item: Any) -> bool:
    return str(item["output"]).startswith("An error occurred")  # the host's own words


async def converse(world: Scene, payer: Any, task: str) -> str:
    ours = isinstance(payer, type(tool(converse)))
    pay = payer if ours else function_tool(payer, name_override="pay", needs_approval=world.tool == "host asks")
    agent = Agent(name="desk", model=Scripted(world), tools=[pay])
    quiet = RunConfig(tracing_disabled=True)
    return str((await Runner.run(durable(agent) if world.durable else agent, task, run_config=quiet)).final_output)


async def without(world: Scene, payer: Any, task: str) -> str:
    return await converse(world._replace(tool="plain"), payer, task)
