"""`ModelPlanner`: a model that thinks for the production loop. It answers with a plan, and code executes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from beforehand.agent.tool import Tool
from beforehand.loop.model import Model, ModelRequest, unusable, user
from beforehand.model.usage import Usage
from beforehand.planning.schema import plan_schema


class ProposedPlan(msgspec.Struct, frozen=True):
    """The answer of a planner: a plan as JSON, and what it cost."""

    output: str
    usage: Usage


class ModelPlanner:
    """A planner for `ProductionLoop(observe, ModelPlanner(model, tools), verify)`.

    The model receives the goal, the facts and the failures of earlier plans. Its answer has to fit the schema of plans
    made of these tools. `instructions` describe a good plan.
    """

    def __init__(
        self, model: Model, tools: Iterable[Tool[..., Any]], instructions: str = "", max_tokens: int = 4096
    ) -> None:
        self._model = model
        self._request = ModelRequest(instructions, returns=plan_schema(tools), max_tokens=max_tokens)

    async def run(self, prompt: str, /) -> ProposedPlan:
        """Return the plan that the model proposes. Raises `ModelError` for a refusal and for an answer that was cut."""
        request = msgspec.structs.replace(self._request, messages=(user(prompt),))
        reply = await self._model.answer(request, lambda _text: None)
        if reply.stop == "refusal":
            raise unusable(f"{self._model.name} refused: {reply.text}", reply, "refusal", "ask another way")
        if reply.stop == "length":
            text = f"the plan of {self._model.name} was cut at {self._request.max_tokens} tokens"
            raise unusable(text, reply, "malformed", "raise ModelPlanner(max_tokens=...)")
        named = reply.model or self._model.name
        return ProposedPlan(reply.text, msgspec.structs.replace(reply.usage, model=named))
