"""A dossier on a terminal: what a person has to know to answer one item, in lines that fold at 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.interfaces.cli.handing import show_run_state
from holdfast.interfaces.cli.screen import Screen, grid, phrase
from holdfast.interfaces.cli.words import short
from holdfast.interfaces.long_texts import cut
from holdfast.interfaces.moments import moment
from holdfast.interfaces.people.dossier import Dossier
from holdfast.interfaces.people.earlier import Change, Earlier
from holdfast.model.records import NOTHING

_WHERE = ": --json has all of it"
_LABEL = 10  # the width of the column of labels
_TEXT = 400  # of what a model saw and said: all of it is in --json


def show_dossier(screen: Screen, found: Dossier) -> None:
    """The whole dossier."""
    screen.line((f"{found.kind} ", "bold"), (found.item, "cyan"), ("" if found.open else "  answered", "dim"))
    screen.block(cut(found.asks, where=_WHERE))
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
    yield from _labelled("changed", map(_change, found.changes))
    yield "why", found.why
    yield from _labelled("earlier", map(_earlier, found.earlier))
    for thought in found.thoughts:
        sure = "" if thought.confidence is None else f" (confidence {thought.confidence:g})"
        yield "model", short(f"{thought.function}{sure}: {thought.said} {thought.why}", _TEXT)
        yield "saw", short(thought.seen, _TEXT)
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
        yield (label if number == 0 else ""), text


def _change(one: Change) -> str:
    before = "nothing" if isinstance(one.before, msgspec.UnsetType) else bytes(one.before).decode("utf-8", "replace")
    now = "nothing" if isinstance(one.now, msgspec.UnsetType) else bytes(one.now).decode("utf-8", "replace")
    return f"{one.name}: {before} -> {now}"


def _earlier(one: Earlier) -> str:
    return f"{one.step}: {one.by} {one.text}"


def _cost(found: Dossier) -> str:
    cost = found.cost
    said = [f"models {cost.models:g}"] if cost.models else []
    said += [f"{cost.tokens} tokens"] if cost.tokens else []
    said += [f"tools {cost.tools:g}"] if cost.tools else []
    return ", ".join(said)


def _similar(found: Dossier) -> str:
    one = found.similar
    counts = {
        "approved": one.approved, "edited": one.edited, "declined": one.declined, "asked back": one.asked_back,
        "answered in its place": one.stood_in,
    }  # fmt: skip
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{said} (in {one.runs} runs)" if said else ""
