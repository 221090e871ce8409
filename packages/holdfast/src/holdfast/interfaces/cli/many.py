"""Many runs from one file of inputs: some at a time, with progress, and a summary of how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from holdfast.engine.at_once import at_once
from holdfast.errors import JournalError, UsageError
from holdfast.interfaces.cli.apps import AnyAgent, Holdfast, app_of
from holdfast.interfaces.cli.common import Call
from holdfast.interfaces.cli.endings import Ended, ended_of
from holdfast.interfaces.cli.inputs import Line, lines_in, lines_of, parsed
from holdfast.interfaces.cli.screen import Screen, grid, phrase
from holdfast.interfaces.cli.status import DONE, USAGE, problem_of
from holdfast.interfaces.cli.words import count

_WORST_FIRST: Final = (4, 1, 2, 3, 0)
_SHOWN: Final = 20
_MARKS: Final = {"completed": "ok", "suspended": "asks", "stopped": "failed", "refused": "failed"}


class Summary(msgspec.Struct, frozen=True):
    """All lines of a file, in the order of their lines."""

    outcomes: dict[str, int]
    exit_status: int
    runs: list[Ended]


async def run_many(call: Call, agent: AnyAgent, inputs: str, concurrency: int) -> int:
    """Run the agent once per line. The status is the worst of all."""
    ends: list[Ended] = []
    total = lines_in(inputs) if inputs == "-" else _counted(agent, inputs)
    async with app_of(call, [agent], create=True) as app:
        with _progress(call.screen, total) as advance:
            calls = (_one(app, agent, line) for line in lines_of(agent, inputs))  # read as there is room for them
            async for ended in at_once(calls, concurrency):
                ends.append(ended)
                advance(ended)
    ends.sort(key=lambda ended: ended.line or 0)
    outcomes = Counter(ended.status for ended in ends)
    statuses = {ended.exit_status for ended in ends}
    # A line that does not fit is a failure of this batch, not of the command line.
    status = next((worst for worst in _WORST_FIRST if worst in statuses), DONE)
    summary = Summary(dict(outcomes), 1 if status == USAGE else status, ends)
    if call.screen.as_json:
        call.screen.document(summary)
    else:
        _tell(call.screen, summary)
    return summary.exit_status


def _counted(agent: AnyAgent, inputs: str) -> int | None:
    try:
        return lines_in(inputs)
    except OSError:
        return sum(1 for _ in lines_of(agent, inputs))  # says what is wrong with it


async def _one(app: Holdfast, agent: AnyAgent, line: Line) -> Ended:
    run = ""
    if line.problem:
        return _refused(run, line, UsageError(line.problem))
    try:
        value = parsed(agent, line.text)
        run = agent.run_id_for(value)
        return await ended_of(app, run, app.run(agent, value, run_id=run), line.number)
    except JournalError:
        raise
    except Exception as error:  # noqa: BLE001 - what is wrong with one line is that line's end
        return _refused(run, line, error)


def _refused(run: str, line: Line, error: Exception) -> Ended:
    problem = problem_of(error)
    return Ended(run, "refused", problem.exit_status, reason=problem.message, problem=problem, line=line.number)


@contextmanager
def _progress(screen: Screen, total: int | None) -> Generator[Callable[[Ended], None]]:
    """A bar on standard error where somebody watches; otherwise nothing."""
    if screen.as_json or not screen.err.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - only where somebody watches

    columns: tuple[Any, ...] = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    outcomes: Counter[str] = Counter()
    with Progress(*columns, console=screen.err, transient=True) as progress:
        bar = progress.add_task("", total=total)

        def advance(ended: Ended) -> None:
            outcomes[ended.status] += 1
            text = ", ".join(f"{number} {status}" for status, number in outcomes.items())
            progress.update(bar, advance=1, description=text)

        yield advance


def _tell(screen: Screen, summary: Summary) -> None:
    """What did not complete, with its line, and how many ended how."""
    rest = [ended for ended in summary.runs if ended.status != "completed"]
    rows = [
        (
            screen.mark(_MARKS.get(ended.status, "info")),
            phrase((f"line {ended.line}", "dim")),
            phrase((ended.run or "-", "bold")),
            phrase(ended.status),
            phrase(_short(ended)),
        )
        for ended in rest[:_SHOWN]
    ]
    if rows:
        screen.show(grid(rows, (1,)))
        if len(rest) > _SHOWN:
            screen.line(f"... and {len(rest) - _SHOWN} more: holdfast ps, or --json for all of them")
        screen.line("")
    parts = [f"{number} {status}" for status, number in sorted(summary.outcomes.items())]
    screen.line((count(len(summary.runs), "line"), "bold"), f": {', '.join(parts) or 'nothing to do'}")
    if summary.outcomes.get("suspended"):
        screen.next("holdfast inbox (for people), holdfast pending (for answers)")


def _short(ended: Ended) -> str:
    if ended.status == "suspended":
        return ended.reason
    problem = ended.problem
    return f"{problem.error}: {problem.message}" if problem is not None else ended.reason
