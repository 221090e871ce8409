"""`beforehand diff`: where two runs part, step by step."""

from __future__ import annotations

from typing import Final

import click
from msgspec import UNSET

from beforehand.cli.common import CommandCall, command
from beforehand.cli.screen import Screen
from beforehand.inspect.comparison import (
    Change,
    ComparedRun,
    ComparedStep,
    RunComparison,
    StepOutcome,
    change_texts,
    compare,
)
from beforehand.inspect.model_text import said_text, seen_text
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.text import count, duration, safe, short
from beforehand.inspect.timeline import timeline
from beforehand.model.ids import operation_id
from beforehand.model.shell import to_type

_SHOWN: Final = 200
"""Number of characters of one value that is shown; `--json` has all of them."""


@command(
    "diff", examples=("beforehand diff ticket-17 ticket-18", "beforehand diff ticket-17 ticket-18 --json | jq .equal")
)
@click.argument("first")
@click.argument("second")
def diff(call: CommandCall, first: str, second: str) -> None:
    """Compare two runs, and show where they part: in input, steps, arguments and outcomes.

    Steps of the same name are compared with each other. Times, attempts and keys are
    not compared, since they differ between any two runs.
    """
    found = call.read(lambda reader: _compared(reader, first, second))
    if call.screen.wrote_json(found):
        return
    _show(call.screen, found)


async def _compared(reader: JournalReader, *names: str) -> RunComparison:
    runs = [timeline(run, [record for _, record in await reader.all_records(run)]) for run in names]
    return compare(*runs)


def _show(screen: Screen, found: RunComparison) -> None:
    ends = {"completed": "ok", "undone": "off", "stopped": "failed", "suspended": "asks"}
    runs = (found.first, found.second)
    screen.columns([(ends.get(one.status, "open"), one.run, one.agent, one.status, _figures(one)) for one in runs])
    screen.line("")
    for change in found.run:
        _show_values(screen, "  ", change.name, *change_texts(change))
    for step in found.steps:
        _show_step(screen, step, found)
    if found.run or found.steps:
        screen.line("")
    _sum_up(screen, found)


def _figures(one: ComparedRun) -> str:
    cost = f", cost {one.cost:g}" if one.cost else ""
    return f"{count(one.steps, 'step')}, {count(one.effects, 'effect')}{cost}, {duration(one.took_ms)}"


def _show_step(screen: Screen, step: ComparedStep, found: RunComparison) -> None:
    name = f"  {step.name}" if step.name else ""
    if not (step.first and step.second):
        run, sign, style = (found.first.run, "-", "red") if step.first else (found.second.run, "+", "green")
        end = short(_outcome(step, step.first_outcome or step.second_outcome), _SHOWN)
        screen.line((f"{sign} {step.first or step.second}", style), f"{name}  only in {run}{f'  {end}' if end else ''}")
        return
    names = step.first if step.first == step.second else f"{step.first} and {step.second}"
    screen.line((f"~ {names}", "bold yellow"), name)
    for change in step.arguments:
        _show_values(screen, "    ", change.name, *_change_texts(step, change))
    if step.first_outcome or step.second_outcome:
        _show_values(screen, "    ", "outcome", _outcome(step, step.first_outcome), _outcome(step, step.second_outcome))


def _change_texts(step: ComparedStep, change: Change) -> tuple[str, str]:
    if step.kind != "decision" or change.before is UNSET or change.now is UNSET:
        return change_texts(change)
    return seen_text(change.before, step.name, _SHOWN), seen_text(change.now, step.name, _SHOWN)


def _outcome(step: ComparedStep, found: StepOutcome | None) -> str:
    if found is None:
        return ""
    text = found.text if found.result is None else bytes(found.result).decode()
    if found.result is not None and step.kind == "decision":
        text = said_text(found.result, step.name, _SHOWN)
    return text if text.startswith(found.status) else f"{found.status} {text}".rstrip()


def _show_values(screen: Screen, indent: str, name: str, before: str, now: str) -> None:
    """On one line where it fits, else on two."""
    before, now = short(safe(before), _SHOWN), short(safe(now), _SHOWN)
    if before == now:
        screen.line(f"{indent}{name}  differs in what is not shown here: --json has all of it")
        return
    if len(line := f"{indent}{name}  {before} -> {now}") <= screen.out.width:
        screen.line(line)
        return
    screen.line(f"{indent}{name}")
    screen.line((f"{indent}- {before}", "red"))
    screen.line((f"{indent}+ {now}", "green"))


def _sum_up(screen: Screen, found: RunComparison) -> None:
    if found.equal:
        screen.line(f"The runs are equal: {count(found.same, 'step')}.")
        return
    alone = [sum(not step.second for step in found.steps), sum(not step.first for step in found.steps)]
    parts = [f"{found.same} equal", f"{len(found.steps) - sum(alone)} different"]
    parts += [f"{number} only in {one.run}" for number, one in zip(alone, (found.first, found.second), strict=True)]
    screen.line(f"Steps: {', '.join(parts)}.")
    for step in found.steps[:1]:
        run, name = (found.second.run, step.second) if step.second else (found.first.run, step.first)
        screen.next(to_type("why", operation_id(run, name)) if step.kind == "write" else to_type("show", run))
