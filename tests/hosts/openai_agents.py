"""The desk as a user of the OpenAI Agents SDK writes it."""

import json
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

from agents import Agent, FunctionTool, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from beforehand import tool
from beforehand.hosts.openai_agents import durable
from tests.hosts.script import Offered, Script
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


class Following(Model):
    """A model that follows a script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002 - the name is the SDK's
        items = [] if isinstance(input, str) else input
        ended = [str(item["output"]) for item in items if item.get("type") == "function_call_output"]
        turns = [item.get("type") for item in items]
        turn = sum(a == "function_call" and b != a for a, b in pairwise([*turns, ""]))
        answer = self.script.answer(turn, ended)
        if answer is None:
            return ModelResponse(output=[], usage=Usage(), response_id=None)
        if isinstance(answer, str):
            text = ResponseOutputText(text=answer, annotations=[], type="output_text", logprobs=[])
            made: list[Any] = [
                ResponseOutputMessage(id="m1", content=[text], role="assistant", status="completed", type="message")
            ]
        else:
            made = [
                ResponseFunctionToolCall(
                    call_id=one.id, name=one.tool, arguments=json.dumps(one.arguments), type="function_call"
                )
                for one in answer
            ]
        return ModelResponse(output=made, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError  # as above


async def talk(script: Script, offered: Sequence[Offered], task: str) -> str:
    agent = Agent(name="desk", model=Following(script), tools=[*map(_tool, offered)])
    made = durable(agent, clauses={one.name: one.clauses for one in offered if one.clauses})
    return str((await Runner.run(made, task, run_config=RunConfig(tracing_disabled=True))).final_output)


def _tool(one: Offered) -> Any:
    if one.schema is not None:

        async def invoke(context: Any, sent: str) -> Any:
            return await one.function(**json.loads(sent))

        return FunctionTool(
            name=one.name, description="", params_json_schema=dict(one.schema), on_invoke_tool=invoke,
            strict_json_schema=False,
        )  # fmt: skip
    if isinstance(one.function, type(tool(talk))) and not one.asks:
        return one.function
    return function_tool(one.function, name_override=one.name, needs_approval=one.asks)
