"""An inbox item in full, and `beforehand take-over`: the text a person reads before answering, at 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
import msgspec

from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.screen import Screen, grid, phrase
from beforehand.inspect.comparison import change_texts
from beforehand.inspect.render_records import stored
from beforehand.inspect.run_state import RunState, state_of
from beforehand.inspect.text import cut, marked, moment, safe, short, split_report
from beforehand.model.ids import split_operation_id
from beforehand.model.records import NOTHING
from beforehand.people.answering import answer_idempotently
from beforehand.people.answers import TakeOver
from beforehand.people.dossier import Dossier

_WHERE = ": --json has all of it"
_LABEL = 10  # the width of the column of labels
_TEXT = 400  # of what a model saw and said: all of it is in --json


def show_dossier(screen: Screen, found: Dossier) -> None:
    """The whole dossier."""
    screen.line((f"{found.kind} ", "bold"), (found.item, "cyan"), ("" if found.open else "  takes no answer", "dim"))
    if split_report(found.asks)[1]:
        screen.report(found.asks)
    else:
        screen.block(cut(marked(found.asks), where=_WHERE))
    for line in found.frames:
        screen.line(("  in ", "dim"), line)
    if found.difference:
        screen.block(cut(found.difference, where=_WHERE))
    rows = [(phrase((label, "dim")), phrase(cut(text, where=_WHERE))) for label, text in _lines(found) if text]
    screen.show(grid(rows, (_LABEL,)))
    if found.state is not None:
        show_run_state(screen, found.state)
    screen.commands(*found.answers)


def _lines(found: Dossier) -> Iterator[tuple[str, str]]:
    yield "arguments", "" if found.arguments == NOTHING else bytes(found.arguments).decode("utf-8", "replace")
    yield from _labelled("changed", (f"{one.name}: {' -> '.join(change_texts(one))}" for one in found.changes))
    yield "why", "" if found.why in found.asks else found.why
    yield from _labelled("earlier", (f"{one.step}: {one.by} {one.text}" for one in found.earlier))
    yield "decided", "" if found.decided is None else f"{found.decided.by or 'its deadline'} {found.decided.says}"
    for thought in found.thoughts:
        sure = "" if thought.confidence is None else f" (confidence {thought.confidence:g})"
        calls = "" if thought.said.startswith("→ ") else ":"
        yield "saw", short(thought.seen, _TEXT)
        yield "said", short(f"{thought.function}{sure}{calls} {thought.said} {thought.why}", _TEXT)
    yield from _labelled("last", found.last)
    yield from _labelled("against", found.contradicted)
    yield from _labelled("relied on", found.relied)
    yield from _labelled("undoes", found.undoes)
    yield from _labelled("risk", found.risks)
    yield from _labelled("evidence", found.evidence)
    yield from _labelled("allowed", found.standing)
    yield "cost", _cost(found)
    yield from _labelled("blocked", found.blocked)
    yield "similar", _similar(found)
    yield "advice", found.recommended
    yield "expects", found.expected
    yield from _labelled("handed", found.handed.said)
    due = "no deadline" if found.due_ms is None else f"until {moment(found.due_ms)}"
    yield "deadline", f"{due}: {found.default}"
    yield "shown", found.digest
    yield "words", " | ".join(found.words)


def _labelled(label: str, texts: Iterator[str] | Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, text in enumerate(texts):
        yield (label if number == 0 else "|"), text


def _cost(found: Dossier) -> str:
    cost = found.cost
    parts = [f"models {cost.models:g}"] if cost.models else []
    parts += [f"{cost.tokens} tokens"] if cost.tokens else []
    parts += [f"tools {cost.tools:g}"] if cost.tools else []
    return ", ".join(parts)


def _similar(found: Dossier) -> str:
    one = found.similar
    counts = {
        "approved": one.approved, "edited": one.edited, "declined": one.declined, "asked back": one.asked_back,
        "answered in its place": one.stood_in,
    }  # fmt: skip
    summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{summary} (in {one.runs} runs)" if summary else ""


@command(
    "take-over",
    examples=(
        "beforehand take-over trip-17/hand_off#1 --look",
        "beforehand take-over trip-17/hand_off#1 --why 'I call the airline' --by anna",
    ),
)
@click.argument("item")
@click.option("--look", is_flag=True, help="Show the state of the run only.")
@click.option("--why", default="", metavar="TEXT", help="What you will do; it is recorded.")
@by_option
async def take_over(call: CommandCall, item: str, look: bool, why: str, by: str) -> None:
    """Take over a handed-off run (RUN/STEP) or a run that cannot continue (RUN), and end it.

    Nothing more is sent for it; what it has done, has open and knows is shown, so that
    you can go on. To give the run an answer instead, use `beforehand answer`. With --look
    ITEM may be any run.
    """
    run, step = (item, "") if "/" not in item else split_operation_id(item)
    async with call.serving() as service:
        if not look:
            await answer_idempotently(service, item, TakeOver(why), by=by)
        state = await state_of(service.reader, run, step)
    if call.screen.wrote_json(state):
        return
    if not look:
        call.screen.line(f"{safe(run)} is taken over by {safe(by)}: nothing more is sent for it.")
    show_run_state(call.screen, state)


def show_run_state(screen: Screen, state: RunState) -> None:
    """The state of a run, a line for each thing."""
    screen.line((safe(state.run), "bold"), f"  {safe(state.agent)}  {state.status}")
    screen.report(state.why + (f" (to {state.queue})" if state.queue else ""), "  why: ")
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
    for message in state.undelivered:
        screen.line(f"  not delivered: {safe(message.sender)}: {safe(message.text)}")
    for what, cost in state.spent.items():
        screen.line(f"  spent on {what}: {cost:g}")
