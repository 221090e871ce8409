"""The desk as a user of Pydantic AI writes it."""

from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast.hosts.pydantic_ai import HoldfastDurability
from tests.hosts.world import Scene


async def converse(world: Scene, payer: Any, task: str) -> str:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ended = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
        calls = world.turn({part.tool_call_id for part in ended})
        if calls:
            return ModelResponse(parts=[ToolCallPart("pay", {"what": what}, call) for call, what in calls])
        return ModelResponse(parts=[TextPart("; ".join(str(part.content) for part in ended))])

    pay = Tool(payer, name="pay", requires_approval=world.tool == "host asks")
    capabilities = [HoldfastDurability()] if world.durable else []
    return (await Agent(FunctionModel(model), tools=[pay], capabilities=capabilities).run(task)).output
