"""The desk as a user of CrewAI writes it."""

import json
import os
import tempfile
from collections.abc import Sequence
from typing import Any

os.environ.update(
    CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false",
    CREWAI_STORAGE_DIR=tempfile.mkdtemp(prefix="beforehand-"),  # processes at once break the file that they would share
)  # fmt: skip

from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool

from beforehand.agent.tool import Tool
from beforehand.hosts.crewai import durable
from tests.hosts.script import Offered, Script
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


class Following(BaseLLM):
    """A model that follows a script."""

    script: Any

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        ended = [one["content"] for one in messages if one["role"] == "tool"]
        answer = self.script.answer(sum(one["role"] == "assistant" for one in messages), ended)
        if answer is None or isinstance(answer, str):
            return answer
        return [
            {"id": one.id, "type": "function", "function": {"name": one.tool, "arguments": json.dumps(one.arguments)}}
            for one in answer
        ]


async def talk(script: Script, offered: Sequence[Offered], task: str) -> str:
    desk = Agent(
        role="desk", goal="pay", backstory="a desk", llm=Following(model="following", script=script),
        tools=[*map(_tool, offered)],
    )  # fmt: skip
    crew = Crew(agents=[desk], tasks=[Task(description=task, expected_output="paid", agent=desk)])
    approve = tuple(one.name for one in offered if one.asks)
    clauses = {one.name: one.clauses for one in offered if one.clauses}
    return str(await durable(crew, approve=approve, clauses=clauses).kickoff_async())


def _tool(one: Offered) -> Any:
    return durable(one.function) if isinstance(one.function, Tool) else tool(one.name)(one.function)
