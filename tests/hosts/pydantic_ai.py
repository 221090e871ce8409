"""The desk as a user of Pydantic AI writes it."""

from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent, ModelRetry, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from beforehand.hosts.pydantic_ai import BeforehandDurability
from tests.hosts.script import Offered, Script
from tests.hosts.world import Scene


async def converse(world: Scene, payer: Any, task: str) -> str:
    capabilities = [BeforehandDurability()] if world.durable else []
    pay = Tool(payer, name="pay", requires_approval=world.tool == "host asks")
    return (await Agent(FunctionModel(model_of(world)), tools=[pay], capabilities=capabilities).run(task)).output


async def without(world: Scene, payer: Any, task: str) -> str:
    async def pay(what: str) -> str:
        """Pay."""
        try:
            return await payer(what)
        except ConnectionError as error:
            raise ModelRetry(str(error)) from error  # the way of this host to try again

    return await converse(world._replace(tool="plain"), pay, task)


def model_of(world: Scene) -> Any:
    """A model that follows the plan of the scene."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ended = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
        calls = world.turn({part.tool_call_id: isinstance(part, ToolReturnPart) for part in ended})
        if calls:
            return ModelResponse(parts=[ToolCallPart("pay", {"what": what}, call) for call, what in calls])
        return ModelResponse(parts=[TextPart("; ".join(str(part.content) for part in ended))])

    return model


async def talk(script: Script, offered: Sequence[Offered], task: str) -> str:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ended = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
        answer = script.answer(
            sum(isinstance(one, ModelResponse) for one in messages), [str(part.content) for part in ended]
        )
        if isinstance(answer, str):
            return ModelResponse(parts=[TextPart(answer)])
        return ModelResponse(parts=[ToolCallPart(one.tool, dict(one.arguments), one.id) for one in answer or ()])

    return str(
        (
            await Agent(FunctionModel(model), tools=[*map(_tool, offered)], capabilities=[BeforehandDurability()]).run(
                task
            )
        ).output
    )


def _tool(one: Offered) -> Tool:
    metadata = {"beforehand": dict(one.clauses)} if one.clauses else None
    if one.schema is not None:
        return Tool.from_schema(one.function, one.name, None, dict(one.schema))
    return Tool(one.function, name=one.name, requires_approval=one.asks, metadata=metadata)
