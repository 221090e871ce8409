"""`run.facts`: the facts that a run knows, infers, or has to ask for. Each step is journaled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec

from beforehand.agent.run_context import RunContext
from beforehand.errors import StaleFacts, UsageError
from beforehand.model.facts import Correction, Fact, Guess, Known, Stakes, weigh
from beforehand.model.ids import NAME_LIMIT, can_name
from beforehand.model.questions import Scalar
from beforehand.policies import milliseconds

T = TypeVar("T")


class Facts:
    """The facts of one run. A replay restores them."""

    def __init__(self, context: Callable[[], RunContext], known: Known) -> None:
        self._context = context
        self._known: Final = known

    def get(self, name: str) -> Fact | None:
        """The fact of that name, known or inferred, or None."""
        return self._known.facts.get(name)

    def values(self) -> dict[str, Any]:
        """Every fact's value by name, as shown to a model."""
        return self._known.values()

    @property
    def corrections(self) -> tuple[Correction, ...]:
        """The corrections so far, in order: by facts that were learned, and by facts that tools reported."""
        return tuple(self._known.corrections)

    async def learn(
        self, name: str, value: Any, *, source: str, inferred_from: Sequence[str] = (), confidence: float = 1.0
    ) -> Correction:
        """Learn a fact that a person stated, a tool read, or an effect changed as a side effect.

        A new value of a known fact is a correction. The returned `Correction` lists its consequences. Steps of a
        running plan that relied on the fact send nothing more, and the plan ends in `NewPlanNeeded`. `inferred_from`
        names the facts from which this one follows. Raises `UsageError` for a name that cannot name a step, a
        confidence outside 0 to 1, and a value that has no JSON form.
        """
        inferred = bool(inferred_from) or confidence < 1
        fact = _checked(Fact(name, value, source, 0, confidence, tuple(inferred_from), inferred))
        context = self._context()
        recorded = await self._journaled(
            f"fact:{name}", lambda: msgspec.structs.replace(fact, at_ms=context.now_ms()), Fact
        )
        correction = context.learn(recorded)
        if correction is None:
            return Correction(name)
        return await self._journaled(f"corrected:{name}", lambda: correction, Correction)

    async def ask_or_infer(
        self,
        name: str,
        question: str,
        *,
        guess: Guess | None = None,
        stakes: Stakes = Stakes(),  # noqa: B008 - a frozen value
        choices: Sequence[Scalar] = (),
    ) -> Fact:
        """The fact, inferred or asked of a person, whichever has the smaller expected cost. The figures are recorded.

        Raises `TimeoutError` if no answer arrives within the time of the stakes and no guess was given.
        """
        weighed = weigh(name, guess, stakes)
        recorded = await self._journaled(f"weighed:{name}", lambda: weighed, type(weighed))
        if recorded.chosen == "infer" and guess is not None:
            return await self._infer(name, guess, guess.source)
        try:
            answer = await self._context().ask(question, choices=choices, within=stakes.within)
        except TimeoutError:
            if guess is None:
                raise
            return await self._infer(name, guess, f"{guess.source}; no answer came in time")
        await self.learn(name, answer, source="a person's answer")
        return self._known.facts[name]

    async def _infer(self, name: str, guess: Guess, source: str) -> Fact:
        await self.learn(
            name, guess.value, source=source, inferred_from=guess.inferred_from, confidence=guess.confidence
        )
        return self._known.facts[name]

    async def fresh(self, name: str, within: timedelta) -> Fact | None:
        """The fact, or None if it is missing or older than `within`. Then read it again."""
        fact = self.get(name)
        now_ms = await self._now_ms()
        return fact if fact is not None and now_ms - fact.at_ms <= milliseconds(within) else None

    async def require(self, within: timedelta, *names: str) -> dict[str, Any]:
        """The values of these facts. Raises `StaleFacts` if one is missing or older than `within`; it names them."""
        now_ms = await self._now_ms()
        stale = self._known.older_than(now_ms - milliseconds(within), names)
        if stale:
            raise StaleFacts(
                f"missing, or older than {within}: {', '.join(stale)}", names=stale, next_step="read them again"
            )
        return {name: self._known.facts[name].value for name in names}

    def rely(self, step: str, *names: str) -> None:
        """Record that a step, of a plan or of code, relies on these facts. Raises `UsageError` for a missing one."""
        self._known.rely(step, names)

    def executed(self, *steps: str) -> None:
        """Record that steps were executed: a correction then lists them as `executed` instead of `dropped`."""
        self._known.executed.update(steps)

    async def _now_ms(self) -> int:
        context = self._context()
        return await context.value("now", context.now_ms)

    async def _journaled(self, what: str, fresh: Callable[[], T], kind: type[T]) -> T:
        def text() -> dict[str, Any]:
            plain: dict[str, Any] = msgspec.to_builtins(fresh())
            return plain

        return msgspec.convert(await self._context().value(what, text), kind)


def _checked(fact: Fact) -> Fact:
    """The fact, if it can be recorded under its name. Raises `UsageError`."""
    if not can_name(fact.name):
        raise UsageError(
            f"{fact.name[:NAME_LIMIT]!r} cannot name a fact",
            next_step=f"use 1 to {NAME_LIMIT} printable characters without / ~ and #",
        )
    if not 0 <= fact.confidence <= 1:
        raise UsageError(f"the confidence of {fact.name} is {fact.confidence}", next_step="give a number from 0 to 1")
    try:
        msgspec.json.encode(fact)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"the value of {fact.name} has no JSON form: {error}",
            next_step="give plain values, a dataclass, or a Struct",
        ) from error
    return fact
