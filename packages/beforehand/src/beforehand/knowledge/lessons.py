"""`run.lessons()`: the lessons that people have approved for the agent, as they were when the run first asked.

Each recall is a step. The first one reads the ledger, and the later ones of the run repeat it, so a lesson that is
approved or retired meanwhile changes nothing for a run under way, and a replay is shown the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from beforehand.agent.run_context import RunContext
from beforehand.model.lessons import (
    ADVICE,
    LESSON_ENTRY,
    AgentLesson,
    ShownLessons,
    advice_text,
    agent_lessons_stream,
    in_effect,
)


class AgentLessons:
    """The approved lessons about the agent: advice for its runs, never a fact."""

    def __init__(self, context: Callable[[], RunContext], shown: dict[str, ShownLessons]) -> None:
        self._context = context
        self._shown: Final = shown

    async def recall(self) -> tuple[AgentLesson, ...]:
        """The lessons that were in effect when this run first asked, the oldest first."""
        context = self._context()
        agent = context.agent

        async def fresh() -> dict[str, Any]:
            shown = self._shown.get(agent)
            if shown is None:
                entries = await context.entries(agent_lessons_stream(agent), LESSON_ENTRY)
                shown = in_effect(one for _, one in entries)
            plain: dict[str, Any] = msgspec.to_builtins(shown)
            return plain

        answer = msgspec.convert(await context.value(ADVICE, fresh), ShownLessons)
        # Of two branches that asked at once, the one that is delivered first counts: a replay keeps that order.
        return self._shown.setdefault(agent, answer).lessons

    async def as_text(self) -> str:
        """The lessons as a block for a prompt, which says that they are advice; empty if there are none."""
        return advice_text(await self.recall())
