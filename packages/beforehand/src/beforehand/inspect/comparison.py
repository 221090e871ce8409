"""Comparison of two runs, step by step, and of two sets of arguments, name by name."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

import msgspec

from beforehand.inspect.timeline import Timeline, TimelineEntry
from beforehand.model import records as r


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One named value that is different. `before` or `now` is missing where there was none."""

    name: str
    before: r.Raw | msgspec.UnsetType = msgspec.UNSET
    now: r.Raw | msgspec.UnsetType = msgspec.UNSET


class ComparedRun(msgspec.Struct, frozen=True):
    """One of two compared runs. `effects` counts its writes that succeeded; `cost` is in the unit of its own calls."""

    run: str
    agent: str
    status: str
    reason: str
    steps: int
    effects: int
    took_ms: int
    cost: float


class StepOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a step ended in one run: its status, and its result or, without one, what is known."""

    status: str = ""
    text: str = ""
    result: r.Raw | None = None


class ComparedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step that is not the same in both runs: its name, its changed arguments and its outcome in each.

    The name is empty for a run without that step. Outcomes that are equal are left out.
    """

    kind: str
    name: str
    first: str = ""
    second: str = ""
    arguments: tuple[Change, ...] = ()
    first_outcome: StepOutcome | None = None
    second_outcome: StepOutcome | None = None


class RunComparison(msgspec.Struct, frozen=True):
    """Two runs and everything that differs between them, in the order of the first. `same` counts the equal steps."""

    equal: bool
    first: ComparedRun
    second: ComparedRun
    run: tuple[Change, ...]
    steps: list[ComparedStep]
    same: int


def differences(before: r.Raw, now: r.Raw) -> tuple[Change, ...]:
    """The arguments that are not the same, by name."""
    old = msgspec.json.decode(before, type=dict[str, r.Raw])
    new = msgspec.json.decode(now, type=dict[str, r.Raw])
    return tuple(
        Change(name, old.get(name, msgspec.UNSET), new.get(name, msgspec.UNSET))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def change_texts(change: Change) -> tuple[str, str]:
    """The value before and the value now, as they are written down."""
    values = (change.before, change.now)
    before, now = ("nothing" if one is msgspec.UNSET else bytes(one).decode("utf-8", "replace") for one in values)
    return before, now


def compare(first: Timeline, second: Timeline) -> RunComparison:
    """List the differences between two runs, without times, attempts and keys: these differ between any two runs.

    Steps of the same name are compared with each other. A step without one, such as a call that a model named, is
    compared with the next one of the other run that has the same kind and tool.
    """
    ours, theirs = _steps(first), _steps(second)
    found = [_compared(one, other) for one, other in _pairs(ours, theirs)]
    steps = [step for step in found if step.arguments or step.first_outcome or step.second_outcome]
    about_run = _about_run(first, second)
    return RunComparison(
        equal=not steps and not about_run,
        first=_figures(first, ours),
        second=_figures(second, theirs),
        run=about_run,
        steps=steps,
        same=len(found) - len(steps),
    )


def _figures(run: Timeline, steps: dict[str, TimelineEntry]) -> ComparedRun:
    effects = sum(one.kind == "write" and one.status == "succeeded" for one in steps.values())
    took_ms = max(0, run.ended - run.started)
    return ComparedRun(run.run, run.agent, run.status, run.reason, len(steps), effects, took_ms, run.cost)


def _steps(run: Timeline) -> dict[str, TimelineEntry]:
    """The steps in order, each with its last state: one that goes on after a pause has another entry there."""
    found: dict[str, TimelineEntry] = {}
    for entry in run.entries:
        if entry.kind == "run":
            continue
        before = found.get(entry.step)
        arguments = before.arguments if before is not None and entry.arguments is None else entry.arguments
        found[entry.step] = msgspec.structs.replace(entry, arguments=arguments)
    return found


def _pairs(
    ours: dict[str, TimelineEntry], theirs: dict[str, TimelineEntry]
) -> Iterator[tuple[TimelineEntry | None, TimelineEntry | None]]:
    """The steps that are compared with each other, and those that only one run has, each where it came in its run."""
    partners = {step: step for step, one in ours.items() if step in theirs and _what(one) == _what(theirs[step])}
    waiting: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
    for step, other in theirs.items():
        if step not in partners:
            waiting[_what(other)].append(step)
    for step, one in ours.items():
        if step not in partners and (left := waiting[_what(one)]):
            partners[step] = left.popleft()
    paired, places = set(partners.values()), {step: place for place, step in enumerate(theirs)}
    alone = deque(step for step in theirs if step not in paired)
    for step, one in ours.items():
        partner = partners.get(step)
        while partner is not None and alone and places[alone[0]] < places[partner]:
            yield None, theirs[alone.popleft()]
        yield one, theirs[partner] if partner is not None else None
    for step in alone:
        yield None, theirs[step]


def _what(entry: TimelineEntry) -> tuple[str, str]:
    return entry.kind, entry.name


def _compared(one: TimelineEntry | None, other: TimelineEntry | None) -> ComparedStep:
    either = one or other
    assert either is not None
    ends = tuple(None if entry is None else _outcome(entry) for entry in (one, other))
    return ComparedStep(
        either.kind,
        either.name,
        one.step if one is not None else "",
        other.step if other is not None else "",
        _arguments(one, other) if one is not None and other is not None else (),
        *(ends if ends[0] != ends[1] else ()),
    )


def _outcome(entry: TimelineEntry) -> StepOutcome:
    """The outcome of a step. The text of a timer is a length of time, and its result is part of the text of others."""
    text = "" if entry.kind == "timer" or entry.result is not None else entry.text
    reused = (entry.kind, entry.mark, entry.status) == ("write", "ok", "cancelled")  # of another run: nothing was sent
    return StepOutcome("reused" if reused else entry.status, text, entry.result)


def _arguments(one: TimelineEntry, other: TimelineEntry) -> tuple[Change, ...]:
    before, now = one.arguments or r.Raw(b"{}"), other.arguments or r.Raw(b"{}")
    if one.kind != "decision" and bytes(before).startswith(b"{") and bytes(now).startswith(b"{"):
        return differences(before, now)
    return (Change("input", before, now),) if before != now else ()


def _about_run(first: Timeline, second: Timeline) -> tuple[Change, ...]:
    """The differences of the runs as wholes: in code, input, state and result."""
    names = ("program", "agent", "status", "reason")
    values = [
        ("input", _input(first), _input(second)),
        *((name, _text(getattr(first, name)), _text(getattr(second, name))) for name in names),
        ("result", _result(first.entries), _result(second.entries)),
    ]
    return tuple(Change(name, before, now) for name, before, now in values if before != now)


def _input(run: Timeline) -> r.Raw | msgspec.UnsetType:
    return msgspec.json.decode(run.input, type=dict[str, r.Raw]).get("input", msgspec.UNSET)


def _text(text: str) -> r.Raw | msgspec.UnsetType:
    return r.Raw(msgspec.json.encode(text)) if text else msgspec.UNSET


def _result(entries: Iterable[TimelineEntry]) -> r.Raw | msgspec.UnsetType:
    found = (one.result for one in entries if (one.kind, one.step) == ("run", "completed"))
    return next((one for one in found if one is not None), msgspec.UNSET)
