"""What thinks of a plan: any callable, or an agent of Pydantic AI. Nothing of that package is imported here.

An agent of Pydantic AI is known by its `run(prompt)`, whose answer has an `output` and a `usage`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from holdfast.agent.decisions import shown
from holdfast.model.plan import Plan


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a thought took: tokens, and the cost in whatever unit you count."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class Thought(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan, and what is recorded with it: why, how sure (from 0 to 1), and what it took."""

    plan: Plan
    why: str = ""
    confidence: float | None = None
    usage: Usage = Usage()


@runtime_checkable
class Planner(Protocol):
    """An agent of Pydantic AI, or anything that is asked as one is: with a text."""

    async def run(self, prompt: str, /) -> Any:
        """Answer with an object that has `output`, and `usage` where that is counted."""
        ...


Thinker: TypeAlias = Planner | Callable[..., Any]
"""What takes a goal, the facts and the trouble so far, and gives a plan; or a planner, which is asked in a text."""


def thinker(think: Thinker) -> Callable[[Any, Mapping[str, Any], Sequence[str]], Awaitable[Thought]]:
    """It as a function that `run.decide` takes. What is not a plan raises, and counts as a failed try."""

    async def asked(goal: Any, facts: Mapping[str, Any], trouble: Sequence[str]) -> Thought:
        if isinstance(think, Planner) and not inspect.isroutine(think):
            answer = await think.run(prompt_of(goal, facts, trouble))
            return msgspec.structs.replace(thought_of(answer.output), usage=_usage(answer))
        answer = think(goal, facts, trouble)
        return thought_of(await answer if inspect.isawaitable(answer) else answer)

    name = getattr(think, "__name__", "")
    asked.__name__ = name if name.isidentifier() else "think"
    return asked


def prompt_of(goal: Any, facts: Mapping[str, Any], trouble: Sequence[str]) -> str:
    """What a planner is asked: the goal, what is known, and why earlier plans came to nothing."""
    parts = [f"Goal: {_text(goal)}", f"What is known: {_text(facts)}"]
    if trouble:
        parts.append("Earlier plans came to nothing:\n" + "\n".join(f"- {one}" for one in trouble))
    parts.append('Make a plan. Where an argument is a fact, name it: {"$fact": "its name"}.')
    return "\n\n".join(parts)


def thought_of(answer: Any) -> Thought:
    """The plan that was answered: a thought, a plan, its JSON, or what it is made of. Raises `ValueError`."""
    match answer:
        case Thought():
            return answer
        case Plan():
            return Thought(answer)
        case str() | bytes():
            return Thought(msgspec.json.decode(answer, type=Plan))
        case _:
            return Thought(msgspec.convert(shown(answer) if hasattr(answer, "model_dump") else answer, Plan))


def _usage(answer: Any) -> Usage:
    """Tokens, where they were counted: a property of the answer, and a method of it in earlier versions."""
    counted = getattr(answer, "usage", None)
    if not hasattr(counted, "input_tokens") and callable(counted):
        counted = counted()
    return Usage(int(getattr(counted, "input_tokens", 0) or 0), int(getattr(counted, "output_tokens", 0) or 0))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=shown).decode()
