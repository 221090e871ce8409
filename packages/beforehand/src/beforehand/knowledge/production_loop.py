"""`ProductionLoop`: observe, ask or infer, think, gate, act with recovery, verify, record; else hand over."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from beforehand.agent.run import Run
from beforehand.errors import Interrupted, OperationFailed, PlanError, PlanRefused, TransactionAborted
from beforehand.model.facts import Guess, Stakes
from beforehand.model.plan import Plan
from beforehand.model.questions import ANYBODY, Scalar
from beforehand.model.usage import Usage, usage_of
from beforehand.model.values import json_form
from beforehand.planning.executor import PlanResult

G = TypeVar("G")


class Need:
    """A fact that is required before planning, the question that asks for it, and a possible inference."""

    def __init__(
        self, name: str, question: str, guess: Guess | None = None, stakes: Stakes | None = None,
        choices: tuple[Scalar, ...] = (),
    ) -> None:  # fmt: skip
        self.name, self.question, self.guess, self.choices = name, question, guess, choices
        self.stakes = stakes or Stakes()


class ProductionLoop(Generic[G]):
    """A loop of observing, planning and executing: `await loop(run, goal)` inside any agent.

    - `observe(run, goal, trouble)` learns facts, and returns the facts that are still needed.
    - `think` makes the plan, and `run.decide` records it. It is a callable of (goal, facts, trouble) that returns a
      `Plan` or a `Thought`, or an agent of Pydantic AI, which receives a text. `trouble` lists the failures of earlier
      plans and the messages of people.
    - `gate(plan, facts)` returns True if a person has to approve the plan first.
    - `verify(run, result)` records the result in `run.facts`, and returns True if the goal is reached.
    - `queue` receives the run if the goal is not reached within `rounds`. The answer is used in as many further rounds.
    """

    def __init__(
        self, observe: Callable[[Run, G, list[str]], Awaitable[Iterable[Need]]], think: Thinker,
        verify: Callable[[Run, PlanResult], Awaitable[bool]],
        gate: Callable[[Plan, dict[str, Any]], bool] = lambda _plan, _facts: False, rounds: int = 12,
        queue: str = ANYBODY,
    ) -> None:  # fmt: skip
        self._observe, self._think, self._verify = observe, thinker(think), verify
        self._gate, self._rounds, self._queue = gate, rounds, queue

    async def __call__(self, run: Run, goal: G) -> PlanResult:
        """Return the result of the plan that reached the goal. Raises `TimeoutError` if no answer arrived in time."""
        trouble: list[str] = []
        number, left = 0, self._rounds
        while True:
            try:
                if left == 0:
                    left, why = self._rounds, f"the goal is not reached (rounds so far: {number})"
                    reply = await run.hand_off(self._queue, why=why, state={"trouble": trouble})
                    trouble = [*trouble, f"a person says: {reply}"]
                number, left = number + 1, left - 1
                with run.branch(f"round-{number}"):
                    result = await self._round(run, goal, trouble)
                if result is not None:
                    return result
            except Interrupted as message:
                if message.stop:
                    raise
                trouble = [*trouble, f"{message.sender or 'a person'} says: {message.text}"]
            except (PlanError, PlanRefused, TransactionAborted, OperationFailed) as problem:
                trouble = [*trouble, str(problem)]

    async def _round(self, run: Run, goal: G, trouble: list[str]) -> PlanResult | None:
        """Perform one round: the result of the plan, or None if the goal is not reached yet."""
        for need in await self._observe(run, goal, trouble):  # what is missing is asked for, or inferred
            if run.facts.get(need.name) is None:
                await run.facts.ask_or_infer(
                    need.name, need.question, guess=need.guess, stakes=need.stakes, choices=need.choices
                )
        facts = run.facts.values()
        thought = await run.decide(self._think, goal, facts, trouble)
        approve = self._gate(thought.plan, facts)
        result = await run.execute(thought.plan, facts, approve=approve, relies_on=facts)
        return result if await self._verify(run, result) else None


# --- what proposes a plan ---------------------------------------------------------------------------------------------


class Thought(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan, and what is recorded with it: the reason, the confidence (from 0 to 1), and the usage."""

    plan: Plan
    why: str = ""
    confidence: float | None = None
    usage: Usage = Usage()


@runtime_checkable
class Planner(Protocol):
    """An agent of Pydantic AI, or any object with the same interface: it receives a text."""

    async def run(self, prompt: str, /) -> Any:
        """Answer with an object that has `output`, and `usage` if that is counted."""
        ...


Thinker: TypeAlias = Planner | Callable[..., Any]
"""A callable of the goal, the facts and the trouble so far that returns a plan; or a planner, which receives a text."""


def thinker(think: Thinker) -> Callable[[Any, Mapping[str, Any], Sequence[str]], Awaitable[Thought]]:
    """The thinker as a function for `run.decide`. An answer that is not a plan raises, and counts as a failed try."""

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
    """The prompt of a planner: the goal, what is known, and why earlier plans failed."""
    parts = [f"Goal: {_text(goal)}", f"What is known: {_text(facts)}"]
    if trouble:
        parts.append("Earlier plans failed:\n" + "\n".join(f"- {one}" for one in trouble))
    parts.append('Make a plan. Where an argument is a fact, name it: {"$fact": "its name"}.')
    return "\n\n".join(parts)


def thought_of(answer: Any) -> Thought:
    """The plan in an answer: a thought, a plan, its JSON, or its parts. Raises `ValueError`."""
    match answer:
        case Thought():
            return answer
        case Plan():
            return Thought(answer)
        case str() | bytes():
            return Thought(msgspec.json.decode(answer, type=Plan))
        case _:
            return Thought(msgspec.convert(json_form(answer) if hasattr(answer, "model_dump") else answer, Plan))


def _usage(answer: Any) -> Usage:
    """The usage, if it was counted: a property of the answer, and a method of it in earlier versions."""
    counted = getattr(answer, "usage", None)
    if not hasattr(counted, "input_tokens") and callable(counted):
        return usage_of({"usage": counted()})
    return usage_of(answer)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=json_form).decode()
