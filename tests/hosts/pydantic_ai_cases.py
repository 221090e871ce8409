"""Cases of Pydantic AI that need more than its slim distribution: `... -m tests.hosts.pydantic_ai_cases CASE DIRECTORY`.

Its other cases are tests in the environment for development (`test_pydantic_ai.py`).
"""

import asyncio
import functools
import sys
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import DynamicToolset

from beforehand import Run, agent
from beforehand.hosts.pydantic_ai import BeforehandDurability
from tests.hosts import casework
from tests.hosts.casework import CASE, SERVER, resolve


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A payment, and then what the tool returned."""
    ended = [part.content for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    if ended:
        return ModelResponse(parts=[TextPart(str(ended[-1]))])
    return ModelResponse(parts=[ToolCallPart("pay", {"cents": 5}, "call_1")])


@agent
async def desk(run: Run, task: str) -> str:
    server = StdioTransport(command=sys.executable, args=SERVER)
    tools: Any = MCPToolset(server, id="till", init_timeout=60)  # a busy machine starts a server slowly
    if "read" in CASE:
        tools = tools.with_metadata(beforehand={"effect": "read"})
    if "dynamic" in CASE:
        served = tools
        tools = DynamicToolset(lambda _: served, id="desk")
    payer = Agent(FunctionModel(answer), name="payer", toolsets=[tools], capabilities=[BeforehandDurability()])
    return (await payer.run(task)).output


run = functools.partial(casework.run, desk)


async def main() -> None:
    """What agents with the tools of an MCP server answer."""
    match CASE:
        case "tools of an MCP server":
            asked = [await run(), await run()]
            assert "paid 5" in asked[0] == asked[1], asked
        case (
            "tools of an MCP server, an error"
            | "tools of an MCP server, an error, dynamic"
            | "tools of an MCP server, no answer"
        ):
            assert "an attempt may have landed" in await run(resolve)
            assert "paid, says ann" in await run()
        case "tools of an MCP server, an error of a read":
            assert "of an MCP server reports an error" in (said := await run()), said
        case _:
            raise AssertionError(CASE)
    casework.paid_at_server()


if __name__ == "__main__":
    asyncio.run(main())
