"""A timeline, and a state, as a person reads them at 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.interfaces.cli.place import split_command
from holdfast.interfaces.cli.screen import Screen, grid, phrase
from holdfast.interfaces.cli.undriven import Undriven
from holdfast.interfaces.cli.words import count, duration, safe, short
from holdfast.interfaces.moments import moment
from holdfast.interfaces.states import StateAt
from holdfast.interfaces.telling import plain_input
from holdfast.interfaces.timeline import Entry, Note, Timeline
from holdfast.model.handoff import after_stop

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDEST_STEP = 26
_NARROWEST_STEP = 12
_BESIDE = 17  # the time, the sign, and the gaps between the columns


def show_timeline(screen: Screen, story: Timeline, undriven: Undriven | None) -> None:
    """The whole run: a head, a line per entry, why no process drives it, and what to do next."""
    show_head(screen, story)
    show_entries(screen, story.entries, story.started)
    if undriven is not None:
        screen.line("")
        screen.line((f"{undriven.why[:1].upper()}{undriven.why[1:]}.", "yellow"))
    if lines := _afterwards(story, undriven):
        screen.line("")
        screen.line("Next:")
        screen.commands(*lines)


def show_head(screen: Screen, story: Timeline) -> None:
    """Which run it is, its state, and its input."""
    head = "bold red" if story.status == "stopped" else "bold yellow" if story.status == "suspended" else "bold green"
    screen.line((story.run, "bold"), f"  {story.agent}  ", (story.status, head))
    started = moment(story.started) if story.started else "not yet"
    facts = [f"started {started}", f"took {duration(max(0, story.ended - story.started))}"]
    facts += [f"cost {story.cost:g}"] if story.cost else []
    screen.line((", ".join([*facts, count(story.records, "record")]), "dim"))
    screen.line((f"input {short(safe(plain_input(story.input)), screen.out.width - 7)}", "dim"))
    screen.line("")


class Following:
    """Shows a run, and then each line of it that is new or has changed."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._shown: list[Entry] | None = None

    def show(self, story: Timeline) -> None:
        """Show what is new since the last time."""
        if self._shown is None:
            show_head(self._screen, story)
        before = self._shown or []
        fresh = [entry for index, entry in enumerate(story.entries) if entry not in before[index : index + 1]]
        show_entries(self._screen, fresh, story.started)
        self._shown = story.entries


def show_entries(screen: Screen, entries: list[Entry], since: int) -> None:
    """One line per entry, what happened to it below."""
    longest = max((len(entry.step) for entry in entries), default=0)
    width = min(_WIDEST_STEP, max(_NARROWEST_STEP, longest))
    rows: list[tuple[RenderableType, ...]] = []
    for entry in entries:
        rows.append(_entry_line(screen, entry, since, width))
        rows.extend(_note_line(note, since) for note in entry.notes)
    screen.show(grid(rows, (8, 1, width)))


def _entry_line(screen: Screen, entry: Entry, since: int, width: int) -> tuple[RenderableType, ...]:
    room = max(20, screen.out.width - _BESIDE - width)
    style = "italic dim" if entry.kind == "run" else "bold" if entry.kind == "write" else ""
    whole = entry.kind == "run" or entry.mark in {"unknown", "asks", "failed", "open"}
    text = (
        f"{entry.title}: {entry.text}"
        if entry.title and whole
        else entry.text
        if whole
        else _with_arguments(entry, room)
    )
    return (
        _offset(entry.at, since),
        screen.mark(entry.mark),
        phrase((entry.step, style)),
        phrase((split_command(text)[0] if entry.kind == "run" else text, _tone(entry))),
    )


def _with_arguments(entry: Entry, room: int) -> str:
    """The result behind the arguments of a call and how long it took, on one line."""
    took = f"  {duration(entry.took_ms)}" if entry.took_ms is not None else ""
    result, left = safe(entry.text), room - len(took)
    if entry.arguments is None or entry.kind not in {"write", "read"}:
        return short(result, left) + took
    call = safe(entry.title or bytes(entry.arguments).decode("utf-8", "replace"))
    least = left // 3 if entry.title else left * 2 // 3  # a title is read first, and its result after it
    result = short(result, max(least, left - len(call) - 3))
    return f"{short(call, left - len(result) - 3)} → {result}{took}"


def _note_line(note: Note, since: int) -> tuple[RenderableType, ...]:
    took = f" ({duration(note.took_ms)})" if note.took_ms is not None else ""
    return (_offset(note.at, since), phrase(""), phrase((f"  {note.label}", "dim")), phrase((note.text + took, "dim")))


def _offset(at: int, since: int) -> RenderableType:
    text = phrase((f"+{duration(max(0, at - since))}", "dim"))
    text.justify = "right"
    return text


def _tone(entry: Entry) -> str:
    return {"failed": "red", "unknown": "yellow", "asks": "yellow"}.get(
        entry.mark, "dim" if entry.kind == "run" else ""
    )


def _afterwards(story: Timeline, undriven: Undriven | None) -> list[str]:
    """What a person can do about it now."""
    last = {entry.step: entry for entry in story.entries}
    asked = [step for step, entry in last.items() if entry.kind == "write" and entry.mark in {"unknown", "asks"}]
    lines = [f"holdfast why {story.run}/{step}" for step in asked]
    _, command = split_command(story.reason)
    lines += [command] if command and story.status == "suspended" else []
    if not lines and undriven is not None:
        resume = f"holdfast resume {story.run}"
        lines = list(dict.fromkeys([resume, undriven.command] if not undriven.moved else [undriven.command]))
    if story.status == "stopped":
        _, go_on = after_stop(story.run, story.reason.partition(":")[0])
        lines.extend([go_on] if go_on else [])
    return lines


def show_state(screen: Screen, state: StateAt) -> None:
    """A run at one of its steps."""
    screen.line(
        (state.run, "bold"),
        f"  {state.agent}  as of record {state.record} of {state.of}, {moment(state.at)}: {state.status}",
    )
    screen.line("")
    since = state.entries[0].at if state.entries else state.at
    show_entries(screen, state.entries, since)
    if state.open:
        screen.line("")
        screen.line(f"Open then: {', '.join(state.open)}")
    if state.not_yet:
        screen.line("")
        screen.line(f"Not yet reached: {', '.join(state.not_yet)}")
    if state.focus is not None:
        _show_in_full(screen, state.focus)


def _show_in_full(screen: Screen, entry: Entry) -> None:
    """A step with its arguments and its result, not cut."""
    screen.line("")
    screen.line((entry.step, "bold"), f"  {entry.kind} {entry.name}  {entry.status}")
    if entry.title:
        screen.line(f"  {safe(entry.title)}")
    for label, raw in (("arguments", entry.arguments), ("result", entry.result)):
        if raw is not None:
            screen.line((f"  {label}", "dim"))
            screen.block(f"  {bytes(raw).decode('utf-8', 'replace')}")
