"""The desk as a user of Google ADK writes it."""

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types

from holdfast.hosts.google_adk import HoldfastPlugin
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
    plugins = [HoldfastPlugin()] if world.durable else []
    runner = InMemoryRunner(app=App(name="desk", root_agent=desk, plugins=plugins))
    events = await runner.run_debug(task, quiet=True)
    return str(events[-1].content.parts[0].text)


async def without(world: Scene, payer: Any, task: str) -> str:
    return await converse(world._replace(tool="plain"), payer, task)
