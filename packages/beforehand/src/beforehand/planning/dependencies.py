"""The dependencies of a running plan: which steps relied on which facts, and what corrections did to them.

Another branch may correct facts at any moment. Each step's check of its facts is journaled where it was
made, so that a replay drops the same steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec

from beforehand.agent.conditions import inputs_used
from beforehand.agent.run_context import RunContext
from beforehand.agent.tool import Tool
from beforehand.errors import UsageError
from beforehand.model.errors import Shaken
from beforehand.model.facts import Known
from beforehand.model.plan import DEPENDENCIES, Call, Plan, PlanStep, facts_named, resolved
from beforehand.model.values import json_form

NamedFacts: TypeAlias = Mapping[str, Any] | tuple[str, ...]
"""Facts, or facts with the values that the plan's author was shown."""


APPROVE: Final = "approve"
"""The prefix of questions that approve a plan or a step of it."""


class PlanDependencies:
    """The dependencies of one plan. Its steps are known by their place in the run: `trip/seat`."""

    def __init__(self, known: Known, plan: Plan, given: Any, relies_on: NamedFacts) -> None:
        self._known = known
        facts = known.values()
        inputs = {name: value for name, value in _as_mapping(given).items() if name in facts}
        self.facts: dict[str, Any] = {**facts, **inputs, **_as_mapping(relies_on)}
        everywhere = {*relies_on}
        if missing := sorted(everywhere - self.facts.keys()):
            raise UsageError(f"the plan {plan.name} relies on what is not known: {', '.join(missing)}")
        own = {step.id: _own(step, frozenset(inputs)) | everywhere for step in plan.steps}
        relies = {step.id: own[step.id].union(*(own[name] for name in plan.before(step))) for step in plan.steps}
        self._relies = {step: frozenset(names) for step, names in relies.items() if names}
        named = {name for step in plan.steps for call in step.calls for name in facts_named(call.arguments)}
        self._named = {name: self.facts.get(name) for name in sorted(named)}
        self._input = _input_of(plan, given)
        self._plan = plan
        self._path = ""
        self._over: set[str] = set()

    @property
    def digest(self) -> str:
        """The digest that an approval is bound to: of the plan, the facts that it names, and the input that it uses."""
        if not (self._named or self._input):
            return self._plan.digest
        parts = [self._plan, self._named, self._input]
        text = msgspec.json.encode(parts, order="deterministic", enc_hook=json_form)
        return hashlib.sha256(text).hexdigest()[:16]

    def shown(self, tools: Mapping[str, Tool[..., Any]]) -> dict[str, Any]:
        """The steps as a reviewer is shown them: with those facts and the defaults of the tools in their places.

        Beside them is the input that their conditions use.
        """

        def call(one: Call) -> dict[str, Any]:
            defaults = {name: value for name, value in tools[one.tool].spec.defaults.items() if value is not None}
            plain: dict[str, Any] = msgspec.to_builtins(one)
            return {**plain, "arguments": {**_plain(defaults), **resolved(one.arguments, None, self._named)}}

        steps: list[dict[str, Any]] = []
        for step in self._plan.steps:
            plain = msgspec.to_builtins(msgspec.structs.replace(step, primary=Call(""), fallbacks=()))
            others = {"fallbacks": [call(one) for one in step.fallbacks]} if step.fallbacks else {}
            steps.append({**plain, "primary": call(step.primary), **others})
        return {"steps": steps, "input": self._input} if self._input else {"steps": steps}

    def begin(self, path: str) -> None:
        """Record that the plan begins, with its steps below `path`."""
        self._path = path
        for step, names in self._relies.items():
            self._known.plan(path + step, names, self.facts)

    def end(self) -> None:
        """Record that the plan has ended."""
        self._known.over(self._path + step for step in self._relies)

    def sending(self, step: str) -> None:
        """Record that a call of this step is about to be made."""
        if step in self._relies:
            self._known.begin(self._path + step)

    def sent(self, step: str, *, done: bool, effect: bool) -> None:
        """Record that the call has ended. `done`: the step needs no other. `effect`: it may have changed something."""
        if done or effect:
            self._over.add(step)
        if step in self._relies:
            self._known.end(self._path + step, effect=effect)

    def kept(self, held: Iterable[str]) -> None:
        """Record that the plan has completed: the effects that it held will be sent."""
        for step in held:
            self.sent(step, done=True, effect=True)

    async def wrong(self, context: RunContext, step: str) -> tuple[str, ...]:
        """The facts that this step relies on and that have since been corrected."""
        if step not in self._relies:
            return ()
        found = await context.value(DEPENDENCIES, lambda: _listed(self._wrong(step)))
        return tuple(found["corrected"])

    async def shaken(self, context: RunContext) -> Shaken | None:
        """The result of corrections for the plan as a whole; None if they changed nothing."""
        if not self._relies:
            return None
        found = await context.value(DEPENDENCIES, self._all)
        facts, dropped, executed = (tuple(found[name]) for name in ("corrected", "dropped", "executed"))
        return Shaken(facts, dropped, executed) if facts else None

    def _wrong(self, step: str) -> frozenset[str]:
        return self._known.shaken.get(self._path + step, frozenset())

    def _all(self) -> dict[str, Any]:
        steps = [step for step in self._relies if self._wrong(step)]
        executed = [self._path + step for step in steps if self._path + step in self._known.executed]
        dropped = [self._path + step for step in steps if step not in self._over]
        facts = frozenset[str]().union(*map(self._wrong, steps))
        return {**_listed(facts), "dropped": dropped, "executed": executed}


def named_facts(facts: Mapping[str, Any] | Iterable[str]) -> NamedFacts:
    """The facts as they were named: a mapping keeps the values that were shown."""
    return _as_mapping(cast("object", facts)) or tuple(facts)


def _as_mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _listed(facts: frozenset[str]) -> dict[str, Any]:
    return {"corrected": sorted(facts)}


def _input_of(plan: Plan, given: Any) -> Any:
    """The parts of the input that conditions of the plan use; all of it where one may use any."""
    conditions = [text for step in plan.steps for text in (step.when, step.ask_if, *step.abort_if) if text]
    used = [inputs_used(text) for text in conditions]
    whole = _plain(given)
    if None in used or not isinstance(whole, dict):
        return whole if any(each != frozenset() for each in used) else None
    parts = cast("dict[str, Any]", whole)
    return {name: parts[name] for each in used for name in sorted(each or ()) if name in parts}


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value, order="deterministic", enc_hook=json_form))


def _own(step: PlanStep, inputs: frozenset[str]) -> set[str]:
    conditions = [text for text in (step.when, step.ask_if, *step.abort_if) if text]
    found = {*step.relies_on, *(name for call in step.calls for name in facts_named(call.arguments))}
    for text in conditions:
        used = inputs_used(text)
        found |= inputs if used is None else used & inputs
    return found
