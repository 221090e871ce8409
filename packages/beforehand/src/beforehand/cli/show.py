"""`show` and `why`: the timeline of a run, its state at a step, and the explanation of one operation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import replace

from beforehand.cli.common import CommandCall, command, wait_for
from beforehand.cli.screen import Screen, grid, phrase
from beforehand.cli.undriven import Undriven, UndrivenFinder
from beforehand.errors import UsageError
from beforehand.inspect.family import Family, FamilyMember, family_of
from beforehand.inspect.model_text import said_text, seen_text
from beforehand.inspect.reader import waits_of
from beforehand.inspect.render_records import plain_input, stored
from beforehand.inspect.run_state import StateAt, state_at
from beforehand.inspect.text import count, cut, duration, marked, moment, safe, short
from beforehand.inspect.timeline import Timeline, TimelineEntry, TimelineNote, timeline
from beforehand.journal.host import wall_ms
from beforehand.model.shell import to_type
from beforehand.model.stop_reasons import after_stop
from beforehand.model.waits import answers_with, brings
from beforehand.model.wording import arguments_text

if TYPE_CHECKING:
    from rich.text import Text

    from beforehand.inspect.explain import Explanation, Policing
    from beforehand.inspect.reader import JournalReader, ReadRecord


_cut: Final = partial(cut, where=": --json has all of it")
_POLL_S: Final = 0.3  # between two looks of `show --follow`


@command(
    "show",
    examples=(
        "beforehand show ticket-17",
        "beforehand show ticket-17 --at refund#1",
        "beforehand show ticket-17 --follow",
    ),
)
@click.argument("run")
@click.option("--at", "step", metavar="STEP", help="The state when this step (or record number) was recorded.")
@click.option("--follow", is_flag=True, help="Go on showing what is recorded until the run has ended.")
def show(call: CommandCall, run: str, step: str | None, follow: bool) -> None:
    """Show the timeline of RUN: each effect on a line, and below it what happened to it; then the tree of its children.

    --at shows the state of the run when that step got its outcome, and the step in full.
    --follow adds new lines as they are recorded; interrupting it does not affect the run.
    """
    if follow:
        if call.screen.as_json or step is not None:
            raise UsageError("--follow goes with neither --json nor --at", next_step=to_type("show", run, "--follow"))
        wait_for(_follow(call, run))
        return
    rows, undriven, family, awaited = call.read(lambda reader: _records_of(reader, run))
    if step is not None:
        state = state_at(run, rows, step)
        if not call.screen.wrote_json(state):
            show_state(call.screen, state)
        return
    story = replace(timeline(run, (record for _, record in rows)), family=family)
    if not call.screen.wrote_json(story):
        show_timeline(call.screen, story, undriven, awaited)


async def _records_of(
    reader: JournalReader, run: str
) -> tuple[list[ReadRecord], Undriven | None, Family | None, list[str]]:
    rows = await reader.all_records(run)
    family = await family_of(reader, [record for _, record in rows])
    row = await reader.row(run)
    awaited = [  # as `answers_to`, whose module would load the whole inbox
        command
        for one in waits_of(row)
        for command in brings(run, one.kind, one.shown, one.tool)
        or answers_with(run, one.kind, one.step, sent=not one.unsent, shown=one.shown, result=one.result)
    ]
    return rows, await UndrivenFinder(reader, wall_ms()).find(row), family, awaited


async def _follow(call: CommandCall, run: str) -> None:
    """Show the run, and then each line of it that is new or has changed, until it has ended."""
    from beforehand.engine.environment import SystemClock  # noqa: PLC0415 - only this waits between two looks

    clock, last, status = SystemClock(), 0, ""
    before: list[TimelineEntry] = []
    while status not in {"completed", "stopped", "undone"}:
        async with call.reader() as reader:
            has_grown = not last or await reader.journal.read(run, last, 1)
            rows = await reader.all_records(run) if has_grown else []
        if rows:
            story = timeline(run, [record for _, record in rows])
            if not last:
                show_head(call.screen, story)
            fresh = [entry for index, entry in enumerate(story.entries) if entry not in before[index : index + 1]]
            show_entries(call.screen, fresh, story.started)
            before, last, status = story.entries, rows[-1][0].seq, story.status
        await clock.sleep(_POLL_S)


@command("why", examples=("beforehand why ticket-17/refund#1", "beforehand why ticket-17/refund#1 --json"))
@click.argument("operation")
def why(call: CommandCall, operation: str) -> None:
    """Explain OPERATION (RUN/STEP): what is proven, and whether it may be sent again."""
    found = call.read(lambda reader: _explained(reader, operation))
    if not call.screen.wrote_json(found):
        _show_explanation(call.screen, found)


async def _explained(reader: JournalReader, operation: str) -> Explanation:
    from beforehand.inspect.explain import explain  # noqa: PLC0415 - `show` explains nothing, and starts without it
    from beforehand.model.decision.situation import Now  # noqa: PLC0415 - as above

    now = reader.journal.clock()
    return await explain(reader, operation, Now(now.epoch, now.earliest_ms, now.wall_ms, now.latest_ms))


def _show_explanation(screen: Screen, found: Explanation) -> None:
    screen.line((found.operation, "bold"), f"  {found.phase}")
    if found.title:
        screen.line(f"  {marked(safe(found.title))}")
    screen.line(f"  {found.tool}({_cut(arguments_text(bytes(found.arguments)))})")
    screen.line((f"  key {found.key}", "dim"))
    for label, raw in (("relied on", found.relied_on), ("expected as evidence", found.expected)):
        if raw is not None:
            screen.line((f"  {label} {safe(stored(raw))}", "dim"))
    screen.line("")
    rows = [
        ("attempted", found.attempted),
        ("acknowledged", found.acknowledged),
        ("proven", found.proven),
        ("landed", found.landed),
        ("safe to retry", found.retry),
        ("compensation", found.amends),
    ]
    lines = [((f"  {name}", ""), (answer.answer, "bold"), (_cut(answer.because), "")) for name, answer in rows]
    lines[1:1] = [(("", ""), ("", ""), (_cut(attempt), "dim")) for attempt in found.attempts]
    screen.folded(lines)
    screen.line("")
    if found.policy is not None:
        _show_ruling(screen, found.policy)
    for evidence in found.contradicted:
        screen.line("  contradicted: ", (_cut(evidence), "bold yellow"))
    for relied in found.relied:
        screen.line("  relied on it: ", (_cut(relied), "bold"))
    for word in found.words:
        screen.line("  people: ", (_cut(word), "bold"))
    if found.decided_by:
        screen.line("  decided by: ", (found.decided_by, "bold"))
    until = f" until {moment(found.due)}" if found.due else ""
    screen.line("  next move: ", (found.move + until, "bold"), f" ({found.rule})")
    if found.unread:
        screen.line((f"  not read here, and it may change the next move: {safe('; '.join(found.unread))}", "dim"))
    screen.line("")
    screen.line("Next:")
    screen.commands(*found.next_step)


def _show_ruling(screen: Screen, found: Policing) -> None:
    from beforehand.people.policy.archive import facts_text  # noqa: PLC0415 - most operations have no policy

    screen.line("  policy: ", (found.says, "bold"))
    if (rule := found.read) is not None:
        from beforehand.cli.policy import then_text  # noqa: PLC0415 - few explanations quote a rule

        screen.line((f"  it read: if {safe(rule.when)}", "dim"))
        screen.line((f"           then {safe(then_text(rule))}", "dim"))
    screen.line((f"  it knew: {facts_text(found.facts)}", "dim"))


_WIDEST_STEP = 26
_NARROWEST_STEP = 12
_TONES: Final[dict[str, str]] = {"failed": "red", "unknown": "yellow", "asks": "yellow"}
_BESIDE = 17  # the time, the sign, and the gaps between the columns


def show_timeline(screen: Screen, story: Timeline, undriven: Undriven | None, awaited: list[str]) -> None:
    """Show the whole run: a head, a line per entry, why no process drives it, and what to do next.

    `awaited` are the commands that bring the answers and events which it waits for.
    """
    show_head(screen, story)
    show_entries(screen, story.entries, story.started)
    if (family := story.family) is not None:
        screen.line("")
        if family.parent:
            screen.line("Started by: ", (family.parent, "bold"))
        if family.children:
            screen.line("Children:")
            _show_members(screen, family.children, family.more, "  ")
    if undriven is not None:
        screen.line("")
        screen.line((f"{undriven.why[:1].upper()}{undriven.why[1:]}.", "yellow"))
    if lines := _afterwards(story, undriven, awaited):
        screen.line("")
        screen.line("Next:")
        screen.commands(*lines)


def show_head(screen: Screen, story: Timeline) -> None:
    """Show the head: the run, its state, and its input."""
    head = "bold red" if story.status == "stopped" else "bold yellow" if story.status == "suspended" else "bold green"
    screen.line((story.run, "bold"), f"  {story.agent}  ", (story.status, head))
    started = moment(story.started) if story.started else "not yet"
    facts = [f"started {started}", f"took {duration(max(0, story.ended - story.started))}"]
    facts += [f"{story.tokens:,} tokens"] if story.tokens else []
    facts += [f"cost {story.cost:g}"] if story.cost else []
    screen.line((", ".join([*facts, count(story.records, "record")]), "dim"))
    screen.line((f"input {short(safe(plain_input(story.input)), screen.out.width - 7)}", "dim"))
    screen.line("")


def _show_members(screen: Screen, members: tuple[FamilyMember, ...], more: int, indent: str) -> None:
    for member in members:
        before = (indent, (member.run, "bold"), f"  {member.agent}  {member.status}")
        screen.report(member.reason, *before, ": ") if member.reason else screen.line(*before)
        _show_members(screen, member.children, member.more, f"{indent}  ")
    if more:
        screen.line((f"{indent}and {more:,} more", "dim"))


def show_entries(screen: Screen, entries: list[TimelineEntry], since: int) -> None:
    """Show one line per entry, with its events below it."""
    names = [name for entry in entries for name in (entry.step, *(f"  {note.label}" for note in entry.notes))]
    width = min(_WIDEST_STEP, max(_NARROWEST_STEP, *map(len, names), 0))
    rows: list[tuple[Text, ...]] = []
    for entry in entries:
        rows.append(_entry_line(screen, entry, since, width))
        rows.extend(_note_line(screen, note, since) for note in entry.notes)
    screen.show(grid(rows, (8, 1, width)))


def _entry_line(screen: Screen, entry: TimelineEntry, since: int, width: int) -> tuple[Text, ...]:
    room = max(20, screen.out.width - _BESIDE - width)
    style = "italic dim" if entry.kind == "run" else "bold" if entry.kind == "write" else ""
    whole = entry.kind == "run" or entry.mark in {"unknown", "asks", "failed", "open"}
    text = entry.text if whole else _with_arguments(entry, room)
    if whole and entry.title:
        text = f"{entry.title}: {entry.text}"
    tone = _TONES.get(entry.mark, "dim" if entry.kind == "run" else "")
    return (
        _offset(entry.at, since),
        screen.mark(entry.mark),
        phrase((entry.step, style)),
        phrase((_cut(screen.located_report(text) if entry.kind == "run" else text), tone)),
    )


def _with_arguments(entry: TimelineEntry, room: int) -> str:
    """The result behind the arguments of a call and how long it took, on one line."""
    took = f"  {duration(entry.took_ms)}" if entry.took_ms is not None else ""
    result, left = safe(entry.text), room - len(took)
    if entry.arguments is None or entry.kind not in {"write", "read"}:
        return short(result, left) + took
    call = safe(entry.title or arguments_text(bytes(entry.arguments)))
    least = left // 3 if entry.title else left * 2 // 3  # a title is read first, and its result after it
    result = short(result, max(least, left - len(call) - 3))
    return f"{short(call, left - len(result) - 3)} → {result}{took}"


def _note_line(screen: Screen, note: TimelineNote, since: int) -> tuple[Text, ...]:
    took = f" ({duration(note.took_ms)})" if note.took_ms is not None else ""
    text = screen.located(note.text) if note.label == "answer with" else _cut(note.text) + took
    return (_offset(note.at, since), phrase(""), phrase((f"  {note.label}", "dim")), phrase((text, "dim")))


def _offset(at: int, since: int) -> Text:
    text = phrase((f"+{duration(max(0, at - since))}", "dim"))
    text.justify = "right"
    return text


def _afterwards(story: Timeline, undriven: Undriven | None, awaited: list[str]) -> list[str]:
    """The next commands for a person."""
    last = {entry.step: entry for entry in story.entries}
    asked = [step for step, entry in last.items() if entry.kind == "write" and entry.mark in {"unknown", "asks"}]
    lines = [to_type("why", f"{story.run}/{step}") for step in asked]
    lines += awaited if story.status == "suspended" else []
    if not lines and undriven is not None:
        resume = to_type("resume", story.run)
        lines = list(dict.fromkeys([resume, undriven.command] if not undriven.moved else [undriven.command]))
    if story.status == "stopped":
        _, go_on = after_stop(story.run, story.stopped)
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


def _show_in_full(screen: Screen, entry: TimelineEntry) -> None:
    """A step with its arguments and its result, not cut: of a model's decision as messages, of others as recorded."""
    screen.line("")
    screen.line((entry.step, "bold"), f"  {entry.kind} {entry.name}  {entry.status}")
    if entry.title:
        screen.line(f"  {marked(safe(entry.title))}")
    decided = entry.kind == "decision"
    labels = ("saw", "said") if decided else ("arguments", "result")
    for label, raw, spoken in zip(labels, (entry.arguments, entry.result), (seen_text, said_text), strict=True):
        if raw is not None:
            screen.line((f"  {label}", "dim"))
            text = spoken(raw, entry.name) if decided else bytes(raw).decode("utf-8", "replace")
            screen.block(f"  {text}")
