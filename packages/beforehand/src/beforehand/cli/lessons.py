"""`beforehand lessons`: what a finding or a review taught, proposed by one person and approved by another."""

from __future__ import annotations

import click

from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.monitors import declared_settings
from beforehand.cli.screen import Screen
from beforehand.inspect.text import safe
from beforehand.journal.host import wall_ms
from beforehand.model.lessons import KINDS, LessonKind, LessonProposed, ReviewedLesson
from beforehand.model.shell import to_type
from beforehand.people.lessons import decide_lesson, evidence_for, list_lessons, propose_lesson, retire_lesson

_PRESENT = ("proposed", "approved")


@click.group("lessons")
def lessons() -> None:
    """Lessons about an agent: advice that its later runs are shown."""


@command(
    "propose",
    examples=(
        "beforehand lessons propose 'read the balance' --kind check --of t-8/refund#1",
        "beforehand lessons propose 'refunds on Sundays' --kind avoid --of 5d41c7a0",
    ),
)
@click.argument("text")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="The kind of advice.")
@click.option(
    "--of", "about", multiple=True, required=True, metavar="WHAT",
    help="The evidence: a finding, RUN/STEP or a run. It may be repeated.",
)  # fmt: skip
@by_option
async def propose(call: CommandCall, text: str, kind: LessonKind, about: tuple[str, ...], by: str) -> None:
    """Propose a lesson about the agent that the evidence is about.

    TEXT is one sentence, without names or data of a customer: every later run of the agent is
    shown it. What is on record about the evidence now is stored with the lesson, and is shown
    to people alone. The lesson is in effect once another person approves it.
    """
    async with call.serving() as service:
        agent, evidence = await evidence_for(service.reader, about, wall_ms(), declared_settings())
        found = await propose_lesson(service.engine, LessonProposed("", agent, kind, text.strip(), evidence, by))
    _told(call, found, f"{found.id} is {found.state}, about {safe(found.agent)}.")


@command("approve", examples=("beforehand lessons approve l-1a2b3c4d --by ben",))
@click.argument("lesson")
@click.option("--why", default="", metavar="TEXT", help="Why; it is recorded.")
@by_option
async def approve(call: CommandCall, lesson: str, why: str, by: str) -> None:
    """Approve LESSON, which another person proposed.

    Runs that begin from now on are shown it.
    """
    async with call.serving() as service:
        found = await decide_lesson(service.engine, lesson, approved=True, by=by, why=why)
    _told(call, found, f"{found.id} is in effect for runs of {safe(found.agent)} that begin from now on.")


@command("decline", examples=("beforehand lessons decline l-1a2b3c4d --why 'the service is repaired'",))
@click.argument("lesson")
@click.option("--why", default="", metavar="TEXT", help="Why; it is recorded.")
@by_option
async def decline(call: CommandCall, lesson: str, why: str, by: str) -> None:
    """Decline LESSON, or withdraw one of your own: no run is shown it."""
    async with call.serving() as service:
        found = await decide_lesson(service.engine, lesson, approved=False, by=by, why=why)
    _told(call, found, f"{found.id} is declined.")


@command("retire", examples=("beforehand lessons retire l-1a2b3c4d --why 'the service is repaired'",))
@click.argument("lesson")
@click.option("--why", default="", metavar="TEXT", help="Why; it is recorded.")
@by_option
async def retire(call: CommandCall, lesson: str, why: str, by: str) -> None:
    """End LESSON. Runs that were shown it before keep it; others are not shown it."""
    async with call.serving() as service:
        found = await retire_lesson(service.engine, lesson, by=by, why=why)
    _told(call, found, f"{found.id} is retired.")


@command("list", examples=("beforehand lessons list", "beforehand lessons list --agent refund_desk --all --json"))
@click.option("--agent", default="", metavar="NAME", help="Only those about this agent.")
@click.option("--all", "everything", is_flag=True, help="Also those that were declined or retired.")
async def listed(call: CommandCall, agent: str, *, everything: bool) -> None:
    """List proposed lessons, and those in effect.

    Each has its evidence, and the people who proposed, approved or ended it.
    """
    async with call.reader() as reader:
        every = await list_lessons(reader.journal, agent)
    found = [one for one in every if everything or one.state in _PRESENT]
    if call.screen.wrote_json(found):
        return
    for one in found:
        show_lesson(call.screen, one)
    if not found:
        others = f" {len(every)} earlier: beforehand lessons list --all" if every else ""
        call.screen.line(f"No lesson is proposed or in effect.{others}")


def show_lesson(screen: Screen, one: ReviewedLesson, *, evidence: bool = True) -> None:
    """Print a lesson, and the command for what comes next."""
    screen.line((one.id, "cyan"), f"  {safe(one.agent)}", (f"  {one.state}", "bold yellow"))
    screen.line(f"  {one.kind}: {safe(one.text)}")
    for ground in one.evidence if evidence else ():
        screen.line((f"    {safe(ground.about)}: {safe('; '.join(ground.says))}", "dim"))
    people = [f"proposed by {safe(one.proposed_by)}"]
    if one.decided_by:
        people.append(f"{'declined' if one.state == 'declined' else 'approved'} by {safe(one.decided_by)}")
    if one.retired_by:
        people.append(f"retired by {safe(one.retired_by)}")
    screen.line((f"  {', '.join(people)}{': ' + safe(one.why) if one.why else ''}", "dim"))
    if one.state == "proposed":
        screen.commands(to_type("lessons", "approve", one.id), to_type("lessons", "decline", one.id))


def _told(call: CommandCall, found: ReviewedLesson, sentence: str) -> None:
    if call.screen.wrote_json(found):
        return
    call.screen.line(sentence)
    if found.state == "proposed":
        call.screen.line(("Another person approves it: ", "dim"), to_type("lessons", "approve", found.id))


for _command in (propose, approve, decline, retire, listed):
    lessons.add_command(_command)
