"""Checking a plan before anything runs: all its faults at once, each naming its step."""

from __future__ import annotations

import dataclasses
import typing
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from beforehand.agent.conditions import names_limited, steps_used
from beforehand.agent.tool import Tool
from beforehand.model.errors import ArgumentError
from beforehand.model.ids import can_name
from beforehand.model.parameters import offered, parameters_schema, parse_arguments, strict
from beforehand.model.plan import Call, Plan, PlanStep, facts_named, references, resolved

MOST_STEPS: Final = 200
MOST_FALLBACKS: Final = 20
SHORTEST_S: Final = 0.001
LONGEST_S: Final = 30 * 24 * 3600


class Given(msgspec.Struct, frozen=True):
    """The context of a plan: the tools, the run's facts by name, and whether it is executed inside a transaction.

    `facts` is None without a run.
    """

    tools: Mapping[str, Tool[Any, Any]]
    facts: Mapping[str, Any] | None = None
    inside: bool = False


class PlanFault(msgspec.Struct, frozen=True):
    """One thing that is wrong with a plan; `step` is empty where it is about the plan as a whole."""

    step: str
    what: str

    def __str__(self) -> str:
        """As a person (or a model) reads it."""
        return f"step {self.step}: {self.what}" if self.step else self.what


def faults_of(plan: Plan, given: Given) -> list[PlanFault]:
    """Everything that is wrong with the plan; an empty list means that it can run."""
    found = [*_as_a_whole(plan)]
    ids = {step.id for step in plan.steps}
    for step in plan.steps:
        found += [PlanFault(step.id, what) for what in _of_step(plan, step, ids, given)]
        found += [PlanFault(step.id, what) for call in step.calls for what in _of_bound(call, given)]
    cycle = _cycle(plan)
    if cycle:
        found.append(PlanFault(cycle[0], f"it waits for itself: {' -> '.join((*cycle, cycle[0]))}"))
    elif not any(fault.what.startswith("there is no step") for fault in found):
        found += [PlanFault(step.id, what) for step in plan.steps for what in _of_conditions(plan, step)]
    return found


def _as_a_whole(plan: Plan) -> Iterator[PlanFault]:
    if not plan.steps:
        yield PlanFault("", "a plan needs at least one step")
    if len(plan.steps) > MOST_STEPS:
        yield PlanFault("", f"{len(plan.steps)} steps, and {MOST_STEPS} are allowed")
    if not can_name(plan.name):
        yield PlanFault("", f"{plan.name[:80]!r} cannot name a plan: use printable characters without / ~ and #")
    for name, times in Counter(step.id for step in plan.steps).items():
        if times > 1:
            yield PlanFault(name, f"there are {times} steps of this id")
        if not can_name(name) or "." in name:
            yield PlanFault(name, "it cannot name a step: use printable characters without / ~ # and .")


def _of_step(plan: Plan, step: PlanStep, ids: set[str], given: Given) -> Iterator[str]:
    for name in step.after:
        if name not in ids:
            yield f"there is no step {name!r} to come after"
    yield from _of_limits(step)
    if step.hold and not (plan.together or given.inside):
        yield "it is held, and there is no transaction whose commit it could wait for"
    if given.facts is not None:
        named = {*step.relies_on, *(name for call in step.calls for name in facts_named(call.arguments))}
        for name in sorted(named - given.facts.keys()):
            yield f"there is no fact {name!r}; known are: {', '.join(sorted(given.facts)) or 'none'}"
    for number, call in enumerate(step.calls):
        place = "" if number == 0 else f"fallback {number}: "
        yield from (place + what for what in _of_call(plan, step, call, ids, given))


def _of_limits(step: PlanStep) -> Iterator[str]:
    if step.timeout_s is not None and not SHORTEST_S <= step.timeout_s <= LONGEST_S:
        yield f"timeout_s is {step.timeout_s:g}, and has to be from {SHORTEST_S} to {LONGEST_S}"
    if step.attempts is not None and step.attempts < 1:
        yield f"attempts is {step.attempts}, and has to be at least 1"
    if len(step.fallbacks) > MOST_FALLBACKS:
        yield f"it has {len(step.fallbacks)} fallbacks, and {MOST_FALLBACKS} are allowed"
    if step.hold and step.fallbacks:
        yield "it is held, and what is sent at the commit has no fallback"


def _of_call(plan: Plan, step: PlanStep, call: Call, ids: set[str], given: Given) -> Iterator[str]:
    tool = given.tools.get(call.tool)
    for name, _ in references(call.arguments):
        if name not in ids:
            yield f"there is no step {name!r} to take a result from"
    if tool is None:
        yield f"there is no tool {call.tool!r}; the tools are: {', '.join(sorted(given.tools)) or 'none'}"
        return
    if (plan.together or given.inside) and tool.contract.irreversible and not step.hold:
        yield f"{call.tool} cannot be undone: inside a transaction it needs hold"
    yield from _of_arguments(plan, call, ids, given, tool)


def _of_bound(call: Call, given: Given) -> Iterator[str]:
    """A bound limits each argument that is a result, or an approval of the plan would cover any value of it."""
    tool = given.tools.get(call.tool)
    if not call.within or tool is None:
        return
    try:
        open_ones = {name for name, value in call.arguments.items() if any(references(value))}
        for name in sorted(open_ones - names_limited(call.within, sorted(tool.spec.judged))):
            yield f"within does not limit {name!r} of {call.tool}, which is a result: compare it by <=, <, == or in"
    except ValueError as error:
        yield f"within of {call.tool}: {error}"


def _of_arguments(plan: Plan, call: Call, ids: set[str], given: Given, tool: Tool[Any, Any]) -> Iterator[str]:
    """Faults of the arguments: a known value has to fit the annotation, and a reference as far as its type says."""
    known, facts = offered(tool.spec.types, tool.spec.required), given.facts or {}
    for name in sorted(call.arguments.keys() - known.keys()):
        yield f"{call.tool} has no parameter {name!r}; it has: {', '.join(known) or 'none'}"
    for name in known:
        if name not in call.arguments:
            if name in tool.spec.required:
                yield f"{call.tool} needs {name!r}"
            continue
        value = call.arguments[name]
        if name in tool.spec.redact:
            yield f"{call.tool} redacts {name!r}, and a plan is on record whole: let the tool look it up"
        used = [one for one in references(value) if one[0] in ids]
        if not any(references(value)) and facts.keys() >= set(facts_named(value)):
            try:
                parse_planned({name: resolved(value, {}, facts)}, {name: known[name]}, {name} & tool.spec.required)
            except ArgumentError as error:
                yield f"{call.tool}: {error.message}"
        for source, path in used:
            yield from _of_reference(
                plan, given.tools, source, path, known[name] if value == _as_reference(source, path) else Any
            )


def _as_reference(source: str, path: tuple[str, ...]) -> dict[str, str]:
    return {"$result": ".".join((source, *path))}


def _of_reference(
    plan: Plan, tools: Mapping[str, Tool[Any, Any]], source: str, path: tuple[str, ...], wanted: Any
) -> Iterator[str]:
    if plan.step(source).hold:
        yield f"{source} is held: its result is known only after the commit"
        return
    for call in plan.step(source).calls:
        tool = tools.get(call.tool)
        if tool is None:
            continue
        given = tool.spec.returns
        for part in path:
            fields = _fields(given)
            if fields is None:
                given = Any
                break
            if part not in fields:
                yield f"the result of {source} ({call.tool}) has no {part!r}; it has: {', '.join(fields) or 'nothing'}"
                return
            given = fields[part]
        plain = (str, int, float, bool)
        if given in plain and wanted in plain and given is not wanted and (given, wanted) != (int, float):
            name = ".".join((source, *path))
            yield f"{name} is {given.__name__}, and {wanted.__name__} is wanted"


def _fields(kind: Any) -> Mapping[str, Any] | None:
    """The fields of a class with annotations; None where a type does not say what is in it."""
    if isinstance(kind, type):
        held: type[object] = kind
        if dataclasses.is_dataclass(held) or typing.is_typeddict(held) or issubclass(held, msgspec.Struct):
            return typing.get_type_hints(held)
    return {} if kind in (str, int, float, bool, type(None)) else None


def _of_conditions(plan: Plan, step: PlanStep) -> Iterator[str]:
    """Conditions before the step see what it waits for; those after it see its own result as well."""
    before = plan.before(step)
    for name, text, seen in (
        ("when", step.when, before),
        ("ask_if", step.ask_if, before),
        *(("abort_if", text, before | {step.id}) for text in step.abort_if),
    ):
        if not text:
            continue
        try:
            used = steps_used(text)
        except ValueError as error:
            yield f"{name} does not parse: {error}"
            continue
        for other in sorted(used - seen):
            yield f"{name} uses the result of {other!r}, which is not known then: put it into after"


def _cycle(plan: Plan) -> tuple[str, ...]:
    """Steps that wait for each other, in order; empty where there are none."""
    left = {step.id: set(plan.waits_for(step)) for step in plan.steps}
    while free := [name for name, waits in left.items() if not waits & left.keys()]:
        for name in free:
            del left[name]
    path: list[str] = []
    name = next(iter(left), "")
    while name and name not in path:
        path.append(name)
        name = next(other for other in sorted(left[name]) if other in left)
    return tuple(path[path.index(name) :]) if path else ()


# --- arguments as strict structured output gives them: null for absent, JSON text for open types --------------------


def parse_planned(
    sent: Mapping[str, object], types: Mapping[str, object], required: Collection[str]
) -> dict[str, object]:
    """The arguments of a planned call, typed. Raises `ArgumentError`.

    As `parse_arguments`, but null for a parameter that may be left out and accepts no null is as if it were left out,
    and text for one whose type has no strict schema is read as JSON unless it is a value itself.
    """
    known, plain = offered(types, required), dict(sent)
    for name, value in sent.items():
        if name not in known or not (value is None or isinstance(value, str)) or _fits(value, known[name]):
            continue
        if value is None and name not in required:
            del plain[name]
        elif isinstance(value, str) and _said_as_text(known[name]):
            plain[name] = _from_text(value)
    return parse_arguments(plain, types, required)


def _fits(value: object, annotation: object) -> bool:
    try:
        parse_arguments({"value": value}, {"value": annotation}, ())
    except ArgumentError:
        return False
    return True


def _said_as_text(annotation: object) -> bool:
    """True if the schema of a plan asks for the JSON text of such a value."""
    schema = parameters_schema({"value": annotation}, ())
    return strict(schema["properties"]["value"], schema.get("$defs", {})) is None


def _from_text(text: str) -> Any:
    """The value of this JSON text; the text itself where it is invalid, so that the error is about that."""
    try:
        return parse_arguments(f'{{"value": {text}}}', {"value": Any}, {"value"})["value"]
    except ArgumentError:
        return text
