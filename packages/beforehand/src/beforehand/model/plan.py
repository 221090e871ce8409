"""A plan as a value: steps with what to try first, what to try then, and when to stop. JSON, and nothing else.

A plan is proposed by a model or written by a person, checked whole before anything runs, and executed without
either. It holds no code: conditions are expressions over earlier results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

REFERENCE: Final = "$result"
FACT: Final = "$fact"


class Call(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One call of a tool.

    An argument `{"$result": "flight.code"}` is a part of an earlier step's result. An argument `{"$fact": "airport"}`
    is the run's fact of that name. `within` limits each argument that is a result, by comparisons with constants such
    as `cents <= 50000 && city in ['Rome', 'Oslo']`: who approves the plan approves the call within it before the result
    is known. Otherwise the call is asked about when it comes.
    """

    tool: str
    arguments: dict[str, Any] = {}
    within: str = ""


class PlanStep(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """One step.

    `fallbacks` are tried in order, each only if the previous call is proven to have failed. The step begins when the
    steps that it refers to and those in `after` have ended. `when` is the condition under which the step is needed.
    `abort_if` are conditions that abort the plan. They are evaluated before anything of the step is sent; a condition
    that reads the step's own result is evaluated after the step. `ask_if` is a condition under which a person has to
    approve each call of it. `timeout_s` limits one call, `attempts` the attempts of one call, both within the limits
    of the tool. `hold` delays an irreversible effect until everything else has succeeded. `relies_on` are facts that
    the step needs besides those that its arguments name. If one of them is corrected, the step is dropped.
    """

    id: str
    primary: Call
    fallbacks: tuple[Call, ...] = ()
    after: tuple[str, ...] = ()
    when: str = ""
    abort_if: tuple[str, ...] = ()
    ask_if: str = ""
    timeout_s: float | None = None
    attempts: int | None = None
    hold: bool = False
    relies_on: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls to try, in order."""
        return (self.primary, *self.fallbacks)


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Steps towards a goal. With `together` they are one transaction, which an abort compensates."""

    goal: str
    steps: tuple[PlanStep, ...]
    name: str = "plan"
    together: bool = True

    @property
    def digest(self) -> str:
        """Sixteen characters that identify exactly this plan. An approval is bound to them."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]

    def step(self, name: str) -> PlanStep:
        """The step of that id. Raises `KeyError`."""
        return next(step for step in self.steps if step.id == name)

    def waits_for(self, step: PlanStep) -> tuple[str, ...]:
        """The steps that have to end before this one begins, in the plan's order."""
        wanted = {*step.after, *(name for call in step.calls for name, _ in references(call.arguments))}
        return tuple(one.id for one in self.steps if one.id in wanted)

    def before(self, step: PlanStep) -> frozenset[str]:
        """Every step whose result is known when this one begins, directly or not. Its conditions may use them."""
        found: set[str] = set()
        left = list(self.waits_for(step))
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left.extend(self.waits_for(self.step(name)))
        return frozenset(found)


def references(value: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The results that an argument refers to: the step, and the path inside its result."""
    match value:
        case {"$result": str() as text} if len(cast("dict[str, object]", value)) == 1:
            step, *path = text.split(".")
            yield step, tuple(path)
        case dict():
            for item in cast("dict[str, object]", value).values():
                yield from references(item)
        case list() | tuple():
            for item in cast("list[object]", value):
                yield from references(item)
        case _:
            return


def facts_named(value: object) -> Iterator[str]:
    """The facts that an argument names."""
    match value:
        case {"$fact": str() as name} if len(cast("dict[str, object]", value)) == 1:
            yield name
        case dict():
            for item in cast("dict[str, object]", value).values():
                yield from facts_named(item)
        case list() | tuple():
            for item in cast("list[object]", value):
                yield from facts_named(item)
        case _:
            return


def resolved(value: Any, results: Mapping[str, Any] | None, facts: Mapping[str, Any]) -> Any:
    """An argument with every reference and fact replaced, once: the replacements are not searched again.

    Without `results` a reference becomes a text for people, `{"result": "seat.code"}`.

    Raises `LookupError` for a part that a result does not have, or a fact that is missing.
    """
    match value:
        case {"$result": str() as text} if len(cast("dict[str, object]", value)) == 1:
            step, *path = text.split(".")
            return {"result": text} if results is None else _part(results[step], path)
        case {"$fact": str() as name} if len(cast("dict[str, object]", value)) == 1:
            return facts[name]
        case dict():
            return {name: resolved(item, results, facts) for name, item in cast("dict[str, object]", value).items()}
        case list() | tuple():
            return [resolved(item, results, facts) for item in cast("list[object]", value)]
        case _:
            return value


def _part(value: Any, path: list[str]) -> Any:
    """The part of a result at that path. Raises `LookupError` where it has none."""
    for part in path:
        listed = cast("list[object] | dict[str, object]", value)
        if isinstance(listed, list) and not part.isdecimal():
            raise LookupError(f"a list has no part {part!r}")
        value = listed[int(part)] if isinstance(listed, list) else listed[part]
    return value


DEPENDENCIES: Final = "grounds"
"""The name of a journaled value: a step's check whether the facts that it relies on were corrected."""
JUDGED: Final = "judged"
"""The judgement on the `abort_if` of a step, as a journaled value."""


class Chosen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The choice made for one step, and why.

    With `primary` or `fallback 1`, that call was performed. With `skipped`, `stale`, `dropped` or `aborted`, nothing
    was sent. With `failed`, every call of the step failed.
    """

    step: str
    chosen: str
    tool: str = ""
    why: str = ""


class JudgedConditions(msgspec.Struct, frozen=True):
    """The judgement on conditions of one step: `held` is the first that was true, empty if none was."""

    conditions: tuple[str, ...]
    after: bool
    held: str = ""
