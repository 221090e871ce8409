"""`holdfast take-over`: look at a run that was handed over, and go on in its place."""

from __future__ import annotations

import click
import msgspec

from holdfast.interfaces.cli.common import Call, by_option, command
from holdfast.interfaces.cli.screen import Screen
from holdfast.interfaces.cli.words import safe
from holdfast.interfaces.people.answers import TakeOver
from holdfast.interfaces.people.repeated import answer_again
from holdfast.interfaces.people.state import RunState, state_of
from holdfast.interfaces.telling import stored
from holdfast.model.ids import split_operation_id


@command(
    "take-over",
    examples=(
        "holdfast take-over trip-17/hand_off#1 --look",
        "holdfast take-over trip-17/hand_off#1 --why 'I call the airline' --by anna",
    ),
)
@click.argument("item")
@click.option("--look", is_flag=True, help="Only show the state of the run.")
@click.option("--why", default="", metavar="TEXT", help="What you are going to do; it is recorded.")
@by_option
async def take_over(call: Call, item: str, look: bool, why: str, by: str) -> None:
    """Take a run over that was handed to people (RUN/STEP), or that cannot go on (RUN), and end it.

    Nothing more is sent for it; what it has done, has open and knows is shown, so that
    you can go on. To give the run an answer instead, use `holdfast answer`. With --look
    ITEM may be any run.
    """
    run, step = (item, "") if "/" not in item else split_operation_id(item)
    async with call.serving() as service:
        if not look:
            await answer_again(service, item, TakeOver(why), by=by)
        state = await state_of(service.looking, run, step)
    if call.screen.as_json:
        call.screen.document(state)
        return
    if not look:
        call.screen.line(f"{safe(run)} is yours, {safe(by)}: nothing more is sent for it.")
    show_run_state(call.screen, state)


def show_run_state(screen: Screen, state: RunState) -> None:
    """The state of a run, a line for each thing."""
    screen.line((safe(state.run), "bold"), f"  {safe(state.agent)}  {state.status}")
    screen.line(f"  why: {safe(state.why)}" + (f" (to {safe(state.queue)})" if state.queue else ""))
    if stored(state.given) not in {"null", "{}"}:
        screen.line(f"  its code says: {safe(stored(state.given))}")
    for fact in state.facts:
        value = msgspec.json.encode(fact.value).decode()
        screen.line(f"  knows {safe(fact.name)}: {safe(value)} ({safe(fact.source)})")
    for done in state.done:
        screen.line(f"  did {safe(done.operation)} ({safe(done.tool)}), under the key {safe(done.key)}")
    for one in state.open:
        more = f" of {safe(one.part_of)}" if one.part_of else f" {safe(stored(one.arguments, 200))}"
        screen.line(
            f"  open: {safe(one.operation)} is {one.phase}{more}" + (f": {safe(one.reason)}" if one.reason else "")
        )
    for waits in (*state.asks, *state.sleeps):
        screen.line(f"  waits: {safe(waits)}")
    for message in state.unheard:
        screen.line(f"  unheard: {safe(message.by)}: {safe(message.text)}")
    for what, cost in state.spent.items():
        screen.line(f"  spent on {what}: {cost:g}")
