"""The desk as a user of Google ADK writes it."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types

from beforehand.hosts.google_adk import BeforehandPlugin
from tests.hosts.script import Call, Offered, Script
from tests.hosts.world import Scene


class Scripted(BaseLlm):
    """A model that follows the plan of the scene."""

    world: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for one in llm_request.contents for part in one.parts]
        ended = [part.function_response for part in parts if part.function_response]
        chosen = self.world.turn({one.id: "error" not in one.response for one in ended})
        calls = [
            types.Part(function_call=types.FunctionCall(name="pay", args={"what": what}, id=call))
            for call, what in chosen
        ]
        said = types.Part(text="; ".join(str(one.response.get("result", one.response)) for one in ended))
        yield LlmResponse(content=types.Content(role="model", parts=calls or [said]))


async def converse(world: Scene, payer: Any, task: str) -> str:
    pay = FunctionTool(payer, require_confirmation=world.tool == "host asks")
    pay.name = "pay"
    desk = LlmAgent(name="desk", model=Scripted(model="scripted", world=world), tools=[pay])
    plugins = [BeforehandPlugin()] if world.durable else []
    runner = InMemoryRunner(app=App(name="desk", root_agent=desk, plugins=plugins))
    events = await runner.run_debug(task, quiet=True)
    return str(events[-1].content.parts[0].text)


async def without(world: Scene, payer: Any, task: str) -> str:
    return await converse(world._replace(tool="plain"), payer, task)


class Following(BaseLlm):
    """A model that follows a script."""

    script: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for one in llm_request.contents for part in one.parts]
        ended = [part.function_response.response for part in parts if part.function_response]
        texts = [str(one.get("result", one.get("error", one))) for one in ended]
        answer = self.script.answer(sum(one.role == "model" for one in llm_request.contents), texts)
        if answer is None:
            yield LlmResponse()
            return
        made = [types.Part(text=answer)] if isinstance(answer, str) else [*map(_part, answer)]
        yield LlmResponse(content=types.Content(role="model", parts=made))


def _part(call: Call) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=call.tool, args=dict(call.arguments), id=call.id or None))


async def talk(script: Script, offered: Sequence[Offered], task: str) -> str:
    desk = LlmAgent(name="desk", model=Following(model="following", script=script), tools=[*map(_tool, offered)])
    plugin = BeforehandPlugin(clauses={one.name: one.clauses for one in offered if one.clauses})
    events = await InMemoryRunner(app=App(name="desk", root_agent=desk, plugins=[plugin])).run_debug(task, quiet=True)
    content = events[-1].content if events else None
    return str(content.parts[0].text) if content is not None and content.parts else ""


def _tool(one: Offered) -> FunctionTool:
    made = FunctionTool(one.function, require_confirmation=one.asks)
    made.name = made.name if one.name is None else one.name
    return made
