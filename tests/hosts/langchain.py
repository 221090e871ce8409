"""The desk as a user of LangChain writes it."""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool

from holdfast.hosts.langchain import HoldfastMiddleware
from tests.hosts.world import Scene


class Scripted(BaseChatModel):
    """A model that follows the plan of the scene."""

    world: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        ended = [one for one in messages if isinstance(one, ToolMessage)]
        chosen = self.world.turn({one.tool_call_id: one.status != "error" for one in ended})
        calls = [{"name": "pay", "args": {"what": what}, "id": call} for call, what in chosen]
        said = "" if calls else "; ".join(str(one.content) for one in ended)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said, tool_calls=calls))])


async def converse(world: Scene, payer: Any, task: str) -> str:
    approved = ("pay",) if world.tool == "host asks" else ()
    middleware: list[Any] = [ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)]
    if world.durable:
        middleware.append(HoldfastMiddleware(approve=approved))
    pay = StructuredTool.from_function(coroutine=payer, name="pay", description="Pay.")
    graph = create_agent(Scripted(world=world), [pay], middleware=middleware)
    ended = await graph.ainvoke({"messages": [{"role": "user", "content": task}]})
    return str(ended["messages"][-1].content)


async def without(world: Scene, payer: Any, task: str) -> str:
    return await converse(world, payer, task)
