"""One frame of `beforehand top`: what it shows, and how that is drawn. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec

from beforehand.cli.queues import ListedQueue
from beforehand.cli.screen import folds
from beforehand.inspect.text import count, duration, moment, safe, short

Line: TypeAlias = list[tuple[str, str]]
"""Texts, each with its style."""
_OPEN: Final = ("queued", "running", "suspended", "stopped")
_ENDED: Final = ("completed", "undone")
_NAME: Final = 24
_NUMBER: Final = 10
_FOLDED: Final = 3  # lines of one remark


class AgentRuns(msgspec.Struct, frozen=True):
    """The runs of one agent, by status."""

    agent: str
    runs: dict[str, int]


class DrivingProcess(msgspec.Struct, frozen=True):
    """A process that drives runs. `gone`: it is proven dead, or its lease is over."""

    worker: str
    pid: int
    runs: int
    gone: bool


class RecentSpending(msgspec.Struct, frozen=True):
    """The calls of models since that wall clock, with the sums of those that are known; `cost` is by currency."""

    since_ms: int
    calls: int
    unknown: int
    tokens: int
    cost: dict[str, Decimal]


class Attention(msgspec.Struct, frozen=True):
    """One thing that a person should look at, and the command to type; empty where nothing needs to be typed."""

    what: str
    command: str = ""


class TopFrame(msgspec.Struct, frozen=True):
    """The state of a journal at one moment of the wall clock."""

    at_ms: int
    journal: str
    runs: dict[str, int]
    agents: list[AgentRuns]
    queues: list[ListedQueue]
    processes: list[DrivingProcess]
    spent: RecentSpending
    attention: list[Attention]


def draw(frame: TopFrame, width: int = 80, height: int | None = None) -> list[Line]:
    """The lines of a frame, none wider than `width`, and no more than `height` of them."""
    most = 20 if height is None else max(2, (height - 12) // 3)
    title = f"beforehand top  {safe(frame.journal)}"
    when = moment(frame.at_ms)
    runs = ", ".join(f"{frame.runs[name]:,} {name}" for name in (*_OPEN, *_ENDED) if frame.runs.get(name))
    models = folds(_spent(frame.spent, frame.at_ms), width - 7)[:_FOLDED]
    lines: list[Line] = [
        [(_fit(title, width - len(when) - 1), "bold"), (f" {when}", "dim")],
        [("Runs   ", "bold"), (runs or "none yet", "")],
        *[[("       " if number else "Models ", "bold"), (text, "")] for number, text in enumerate(models)],
        [],
        *_attention(frame.attention, most, width),
        *_section("QUEUE", ("waiting", "running", "at most", "oldest"), map(_queue, frame.queues), most),
        *_section("PROCESS", ("pid", "runs", "state"), map(_process, frame.processes), most),
        *_section("AGENT", _OPEN, map(_agent, frame.agents), most),
    ]
    while lines and not lines[-1]:
        lines.pop()
    return [_cut(line, width) for line in lines[:height]]


def _attention(found: Sequence[Attention], most: int, width: int) -> Iterator[Line]:
    if not found:
        yield [("Nothing needs you.", "green")]
    for one in found[:most]:
        for number, text in enumerate(folds(safe(one.what), width - 2)[:_FOLDED]):
            yield [("| " if number else "! ", "bold yellow"), (text, "yellow")]
        if one.command:
            yield [(f"  {short(safe(one.command), width - 2)}", "dim")]
    if len(found) > most:
        yield [(f"  and {len(found) - most:,} more: --json lists them", "dim")]
    yield []


def _section(
    title: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str], str]], most: int
) -> Iterator[Line]:
    """A head and a line per row (name, cells, style); nothing where there are no rows."""
    listed = list(rows)
    if listed:
        yield [(_row(title, columns), "dim")]
    for name, cells, style in listed[:most]:
        yield [(_row(name, cells), style)]
    if len(listed) > most:
        yield [(f"and {len(listed) - most:,} more", "dim")]
    if listed:
        yield []


def _row(name: str, cells: Sequence[str]) -> str:
    return (_fit(safe(name), _NAME) + "".join(f" {cell:>{_NUMBER}}" for cell in cells)).rstrip()


def _queue(one: ListedQueue) -> tuple[str, Sequence[str], str]:
    most = "-" if one.limits.concurrency is None else f"{one.limits.concurrency:,}"
    oldest = "-" if one.oldest_ms is None else duration(one.oldest_ms)
    mode = "paused" if one.mode.paused else "draining" if one.mode.draining else ""
    return one.queue, (f"{one.waiting:,}", f"{one.running:,}", most, oldest, mode), "yellow" if mode else ""


def _process(one: DrivingProcess) -> tuple[str, Sequence[str], str]:
    pid = str(one.pid) if one.pid else "-"
    return one.worker, (pid, f"{one.runs:,}", "gone" if one.gone else "alive"), "red" if one.gone else ""


def _agent(one: AgentRuns) -> tuple[str, Sequence[str], str]:
    return one.agent, [f"{one.runs[status]:,}" if one.runs.get(status) else "-" for status in _OPEN], ""


def _spent(spent: RecentSpending, now_ms: int) -> str:
    if not spent.calls:
        return f"no call in the last {duration(now_ms - spent.since_ms)}"
    cost = [
        f"{amount:,.{2 if amount >= 100 else 4}f} {safe(currency)}" for currency, amount in sorted(spent.cost.items())
    ]
    parts = [f"{spent.calls:,} call{'' if spent.calls == 1 else 's'}", f"{spent.tokens:,} tokens", *cost]
    parts += [f"{spent.unknown:,} of unknown cost"] if spent.unknown else []
    return f"{', '.join(parts)} in the last {duration(now_ms - spent.since_ms)}"


def _fit(text: str, width: int) -> str:
    """The text in exactly so many columns of a terminal."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 - only what is laid out needs it

    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)


def _cut(line: Line, width: int) -> Line:
    """The line in no more columns than that."""
    from rich.cells import cell_len  # noqa: PLC0415 - as above

    cut: Line = []
    for text, style in line:
        room = width - sum(cell_len(done) for done, _ in cut)
        if cell_len(text) > room:
            cut.append((_fit(text, room), style))
            break
        cut.append((text, style))
    return cut


def asked(kinds: dict[str, int], oldest_ms: int, now_ms: int) -> Attention:
    """The remark on the questions to people, by kind."""
    each = ", ".join(count(number, kind) for kind, number in sorted(kinds.items()))
    return Attention(
        f"waiting for people: {each}; the oldest for {duration(max(0, now_ms - oldest_ms))}", "beforehand inbox"
    )
