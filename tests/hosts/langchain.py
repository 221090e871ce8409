"""The desk as a user of LangChain writes it."""

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool

from beforehand.hosts.langchain import BeforehandMiddleware
from tests.hosts.script import Offered, Script
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
        middleware.append(BeforehandMiddleware(approve=approved))
    pay = StructuredTool.from_function(coroutine=payer, name="pay", description="Pay.")
    graph = create_agent(Scripted(world=world), [pay], middleware=middleware)
    ended = await graph.ainvoke({"messages": [{"role": "user", "content": task}]})
    return str(ended["messages"][-1].content)


async def without(world: Scene, payer: Any, task: str) -> str:
    return await converse(world, payer, task)


class Following(BaseChatModel):
    """A model that follows a script."""

    script: Any

    @property
    def _llm_type(self) -> str:
        return "following"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        ended = [str(one.content) for one in messages if isinstance(one, ToolMessage)]
        answer = self.script.answer(sum(isinstance(one, AIMessage) for one in messages), ended)
        if isinstance(answer, str):
            return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])
        if answer is None:
            return ChatResult(generations=[])
        calls = [{"name": one.tool, "args": dict(one.arguments), "id": one.id} for one in answer]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=calls))])


async def talk(script: Script, offered: Sequence[Offered], task: str) -> str:
    tools = [
        StructuredTool.from_function(
            coroutine=one.function,
            name=one.name,
            description="Pay.",
            args_schema=None if one.schema is None else dict(one.schema),
        )
        for one in offered
    ]
    ours = BeforehandMiddleware(
        approve=tuple(one.name for one in offered if one.asks),
        clauses={one.name: one.clauses for one in offered if one.clauses},
    )
    retries = ToolRetryMiddleware(max_retries=1, initial_delay=0, jitter=False)
    graph = create_agent(Following(script=script), tools, middleware=[retries, ours])
    ended = await graph.ainvoke({"messages": [{"role": "user", "content": task}]})
    return str(ended["messages"][-1].content)
