"""The desk as a user of CrewAI writes it."""

import json
import os
from typing import Any

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")

from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool

from holdfast.agent.tool import Tool
from holdfast.hosts.crewai import durable
from tests.hosts.world import Scene


class Scripted(BaseLLM):
    """A model that follows the plan of the scene."""

    world: Any

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        ended = [one for one in messages if one["role"] == "tool"]
        chosen = self.world.turn({one["tool_call_id"]: "Error" not in one["content"] for one in ended})
        if not chosen:
            return "; ".join(one["content"] for one in ended)
        return [
            {"id": call, "type": "function", "function": {"name": "pay", "arguments": json.dumps({"what": what})}}
            for call, what in chosen
        ]


async def converse(world: Scene, payer: Any, task: str) -> str:
    settings = {"approve": ("pay",) if world.tool == "host asks" else ()}
    if isinstance(payer, Tool):
        pay = durable(payer)
    else:

        @tool("pay")
        async def pay(what: str) -> str:
            """Pay."""
            return await payer(what)

    desk = Agent(role="desk", goal="pay", backstory="a desk", llm=Scripted(model="scripted", world=world), tools=[pay])
    crew = Crew(agents=[desk], tasks=[Task(description=task, expected_output="paid", agent=desk)])
    return str(await (durable(crew, **settings) if world.durable else crew).kickoff_async())


async def without(world: Scene, payer: Any, task: str) -> str:
    return await converse(world._replace(tool="plain"), payer, task)
