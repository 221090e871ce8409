"""`holdfast inbox` and `holdfast answer`: what waits for people, and their words."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Final

import click
import msgspec

from holdfast.engine.seams import SystemClock
from holdfast.errors import UsageError
from holdfast.interfaces.cli.common import Call, by_option, command
from holdfast.interfaces.cli.health import show_health
from holdfast.interfaces.cli.status import DONE
from holdfast.interfaces.cli.words import safe
from holdfast.interfaces.people.items import Item, Wanted, items
from holdfast.interfaces.service import Service
from holdfast.interfaces.telling import moment
from holdfast.model.ids import split_operation_id

_WORDS: Final = {"yes": True, "true": True, "no": False, "false": False}


class Given(msgspec.Struct, frozen=True):
    """What was answered, as `answer --json` gives it."""

    run: str
    question: str
    answer: str | int | float | bool
    by: str
    next_step: str


@command(
    "answer",
    examples=(
        "holdfast answer 'trip-17/ask#1' Paris --by anna",
        "holdfast answer 'refund-9/refund#1' yes --by anna --hours 4",
        "holdfast answer 'refund-9/refund#1' no --by anna --why 'the customer kept it'",
    ),
)
@click.argument("question")
@click.argument("value")
@click.option("--why", default="", metavar="TEXT", help="The reason; of a no, the agent is told.")
@click.option(
    "--hours", type=click.FloatRange(min=0, min_open=True), default=24.0, metavar="N",
    help="How long a yes holds if nothing is sent meanwhile. Default: 24.",
)  # fmt: skip
@by_option
async def answer(call: Call, question: str, value: str, why: str, hours: float, by: str) -> None:
    """Answer QUESTION (RUN/STEP), as `holdfast inbox` lists it.

    VALUE answers a question of the agent, checked against its choices or type; or it is
    yes or no to an operation that waits for approval. The first answer is final. A yes
    is to exactly what is shown: where that changes before it is sent, you are asked again.
    """
    async with call.serving() as service:
        if await _is_approval(service, question):
            given: str | int | float | bool = _yes_or_no(value)
            if given:
                await service.approve(question, by=by, note=why, lasts=timedelta(hours=hours))
            else:
                await service.decline(question, by=by, reason=why)
        else:
            given = await service.answer(question, value, by=by)
    run, _ = split_operation_id(question)
    done = Given(run, question, given, by, f"holdfast resume {run}")
    if call.screen.as_json:
        call.screen.document(done)
        return
    shown = ("yes" if given else "no") if isinstance(given, bool) else given
    call.screen.line(f"{question} is answered: {shown}, on the word of {by}.")
    call.screen.line(("Next: ", "dim"), done.next_step)


async def _is_approval(service: Service, name: str) -> bool:
    run, step = split_operation_id(name)
    return step in (await service.history(run)).operations


def _yes_or_no(value: str) -> bool:
    if value.strip().lower() not in _WORDS:
        raise UsageError(f"{value!r} answers no approval", known="an approval is answered by yes or no")
    return _WORDS[value.strip().lower()]


@command("inbox", examples=("holdfast inbox", "holdfast inbox --mine anna --queue money", "holdfast inbox --json"))
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, metavar="N", help="Show the first N; JSON has all. Default: 50."
)
@click.option("--mine", default="", metavar="NAME", help="Only what was given to this person.")
@click.option("--queue", default="", metavar="Q", help="Only what is in this queue; with --mine, that as well.")
@click.option("--health", is_flag=True, help="Whether people keep up: figures, alarms, and whose turn it is.")
async def inbox(call: Call, limit: int, mine: str, queue: str, *, health: bool) -> int:
    """List what waits for a person: what is urgent, then the nearest deadline first.

    Approvals of operations, questions of agents, and reviews: effects that nobody knows
    about, and transactions that cannot end by themselves. What somebody lets rest comes last.

    With --health how people keep up with it, over the last week; the exit status is then
    1 where something rings, for a monitor.
    """
    if health:
        return await show_health(call)
    async with call.looking() as looking:
        found = await items(looking, Wanted(mine, queue), now_ms=SystemClock().wall_ms())
    if call.screen.as_json:
        call.screen.document(found)
        return DONE
    for one in found[:limit]:
        _show(call, one)
    if len(found) > limit:
        call.screen.line(f"... and {len(found) - limit:,} more: --limit {len(found)}")
    kinds = Counter(one.kind for one in found)
    summary = ", ".join(f"{count:,} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(kinds.items()))
    call.screen.line(summary or "Nobody is asked anything.")
    return DONE


def _show(call: Call, one: Item) -> None:
    due = "" if one.due_ms is None else f"  until {moment(one.due_ms)}"
    late = one.due_ms is not None and one.due_ms <= SystemClock().wall_ms()
    call.screen.line((f"{one.kind:<9}", "bold"), (one.item, "cyan"), (due, "red" if late else "dim"))
    if whose := _whose(one):
        call.screen.line((f"  {safe(whose)}", "yellow"))
    call.screen.line(f"  {safe(one.asks)}")
    for line in one.answers:
        call.screen.line(("  " + line, "dim"))


def _whose(one: Item) -> str:
    """Who is to look at it, and when."""
    said = [f"urgent ({one.escalated})"] if one.escalated else []
    said += [f"for {one.to}"] if one.to else []
    said += [f"in the queue {one.queue}"] if one.queue else []
    said += [f"rests until {moment(one.rests_ms)}"] if one.rests_ms else []
    return ", ".join(said)
