"""`beforehand plan`: look at a plan before it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from beforehand.cli.apps import load_agent
from beforehand.cli.common import CommandCall, command
from beforehand.cli.exit_status import USAGE
from beforehand.cli.screen import Screen
from beforehand.errors import UsageError
from beforehand.inspect.plan_preview import PlannedCall, ShownPlan, ShownStep, dry_run, read_plan, shown, tools_of
from beforehand.planning.schema import plan_schema

_WORDS: Final = ("show", "check", "dry-run", "schema")


@command(
    "plan",
    examples=(
        "beforehand plan show trip.json desk.py:planner",
        "beforehand plan check - desk.py:planner --json < trip.json",
        "beforehand plan dry-run trip.json desk.py:planner",
        "beforehand plan schema desk.py:planner",
    ),
)
@click.argument("what", type=click.Choice(_WORDS))
@click.argument("names", nargs=-1, required=True, metavar="[FILE] TARGET")
async def plan(call: CommandCall, what: str, names: tuple[str, ...]) -> int:
    """Inspect the plan in FILE (JSON, or -) for the agent TARGET, whose tools it uses.

    `show` lists its steps with what each tool promises, `check` only what is wrong
    with it. `dry-run` makes its reads now, and describes its writes. `schema`
    prints the JSON Schema of plans for a model. Nothing is written or recorded.
    """
    if what == "schema":
        schema = plan_schema(tool for tool in tools_of(load_agent(names[-1])).values() if not tool.spec.redact)
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(schema)) + b"\n")
        return 0
    if len(names) != 2:
        raise UsageError("name the file of the plan, and the agent whose tools it uses")
    tools, wanted = tools_of(load_agent(names[1])), read_plan(_text(names[0]))
    found = await dry_run(wanted, tools) if what == "dry-run" else shown(wanted, tools)
    if not call.screen.wrote_json(found):
        if what != "check":
            _show(call.screen, found)
        for fault in found.faults:
            call.screen.line((f"  {fault}", "red"))
        refused = f"{len(found.faults)} faults: an agent refuses this plan."
        call.screen.line(refused if found.faults else "No faults were found.")
    return USAGE if found.faults else 0


def _text(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error


def _show(screen: Screen, found: ShownPlan) -> None:
    screen.line((found.name, "bold"), f"  {found.goal}")
    together = "its steps are one transaction" if found.together else "the steps are independent"
    screen.line((f"{found.digest}, {together}", "dim"))
    screen.line("")
    for step in found.steps:
        waits = f"after {', '.join(step.waits_for)}" if step.waits_for else "at once"
        screen.line((step.id, "bold"), f"  {waits}")
        for line in _lines(step):
            screen.line(f"  {line}")
    screen.line("")


def _lines(step: ShownStep) -> list[str]:
    lines = [f"only when {step.when}"] if step.when else []
    lines += [f"aborts the plan before it sends anything if {condition}" for condition in step.abort_if]
    lines += [f"a person is asked if {step.ask_if}"] if step.ask_if else []
    lines += [f"relies on {', '.join(step.relies_on)}"] if step.relies_on else []
    for number, one in enumerate(step.calls):
        lines.append(("" if number == 0 else f"else ({number}) ") + f"{one.tool} {one.arguments}")
        lines += [f"  {about}" for about in [_about(one, hold=step.hold)] if about]
        lines += [f"  an approval of the plan covers it within {one.within}"] if one.within else []
        lines += [f"  answered {one.answer}"] if one.answer else []
    return [*lines, *(f"aborts the plan after this step if {condition}" for condition in step.abort_after)]


def _about(one: PlannedCall, *, hold: bool) -> str:
    if one.effect != "write":
        return ""
    parts = [f"danger {one.danger}", f"undone by {one.undone_by}" if one.undone_by else "cannot be undone"]
    parts += ["is sent at the commit"] if hold else []
    parts += [f"may cost {one.budget:g}"] if one.budget is not None else []
    return ", ".join(parts)
