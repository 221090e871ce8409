"""`beforehand ps`: the runs, one line each, the newest first."""

from __future__ import annotations

from typing import Final

import click
import msgspec

from beforehand.cli.common import CommandCall, command
from beforehand.cli.inputs import read_past
from beforehand.cli.screen import Screen
from beforehand.cli.undriven import Undriven, UndrivenFinder, commands_for
from beforehand.inspect.reader import JournalReader, Listing, troubles_of, waits_of
from beforehand.inspect.text import ago
from beforehand.journal.host import wall_ms
from beforehand.journal.port import RunRow, RunStatus
from beforehand.model.shell import to_type
from beforehand.model.system import Trouble, is_system
from beforehand.model.waits import PEOPLE, ListedWait

_STATUSES: Final[tuple[RunStatus, ...]] = ("queued", "running", "suspended", "completed", "stopped", "undone")
_LIMIT: Final = 50
_MARKS: Final = {
    "queued": "info",
    "running": "open",
    "suspended": "info",
    "completed": "ok",
    "stopped": "failed",
    "undone": "off",
}


class ListedRun(msgspec.Struct, frozen=True):
    """One run as `ps --json` lists it; `_line` makes the columns of the table from it."""

    run: str
    agent: str
    status: str
    reason: str
    due_ms: int | None
    driven: bool
    created_ms: int
    updated_ms: int
    waits: list[ListedWait]
    abandoned: bool
    ready: bool
    contradicted: list[str] = []
    program: str = ""
    undriven: Undriven | None = None


@command(
    "ps",
    examples=(
        "beforehand ps",
        "beforehand ps --status suspended --agent refund_desk",
        "beforehand ps --since 2h --search A-17",
        "beforehand ps --json | jq -r '.runs[].run'",
    ),
)
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs in this state.")
@click.option("--agent", default="", metavar="NAME", help="Only runs of this agent.")
@click.option("--since", default="", metavar="WHEN", help="Only runs begun since then: 2h, 7d, 2027-01-31.")
@click.option("--search", default="", metavar="TEXT", help="Only runs whose name or reason contains this text.")
@click.option(
    "--limit", default=_LIMIT, show_default=True, metavar="N", type=click.IntRange(1), help="How many to list."
)
@click.option("--after", default="", metavar="RUN", help="Continue with runs begun before this one: the next page.")
@click.option("--children", is_flag=True, help="Include child runs; beforehand show PARENT has their tree.")
@click.option("--all", "everything", is_flag=True, help="Include runs that send webhooks and notifications.")
def ps(call: CommandCall, limit: int, after: str, status: RunStatus | None, since: str, **wanted: str | bool) -> None:
    """List the runs, the newest first, and what each waits for."""
    now = wall_ms()
    only = Listing(
        status, str(wanted["agent"]), read_past(since, now) if since else 0, str(wanted["search"]),
        everything=bool(wanted["everything"]), children=bool(wanted["children"]),
    )  # fmt: skip
    runs, more, counts, failing = call.read(lambda reader: _found(reader, only, limit, after, now))
    if call.screen.wrote_json({"runs": runs, "more": more}):
        return
    call.screen.columns([_line(call.screen, run, now) for run in runs])
    for one in failing:
        call.screen.note(("Housekeeping fails in a process: ", "yellow"), f"{one.task}: {one.error}. Next: restart it")
    _sum_up(call, only, runs, counts)
    if more:
        call.screen.next(_next_page(only, since, limit, runs[-1].run))
    _next_steps(call, runs)


async def _found(
    reader: JournalReader, only: Listing, limit: int, after: str, now: int
) -> tuple[list[ListedRun], bool, dict[tuple[str, RunStatus], int], list[Trouble]]:
    """One page of runs, if there are more, and which house-keeping fails in the processes that drive its runs."""
    rows = await reader.newest(only, limit + 1, after)
    disputed = await reader.contradicted_steps()
    finder = UndrivenFinder(reader, now)
    runs = [await _listed(finder, row, disputed.get(row.run, [])) for row in rows[:limit]]
    counts = await reader.journal.counts()
    owners = {row.owner for row, run in zip(rows, runs, strict=False) if row.owner is not None and run.driven}
    failing = [one for owner in sorted(owners) for one in await troubles_of(reader.journal, owner)]
    return runs, len(rows) > limit, counts, failing


def _next_page(only: Listing, since: str, limit: int, last: str) -> str:
    """The command that lists the next page, with the same filters."""
    given = {
        "--status": only.status or "", "--agent": only.agent, "--since": since, "--search": only.search,
        "--limit": str(limit) if limit != _LIMIT else "", "--after": last,
    }  # fmt: skip
    options = [word for name, value in given.items() if value for word in (name, value)]
    flags = [*(["--all"] if only.everything else []), *(["--children"] if only.children else [])]
    return to_type("ps", *flags, *options)


async def _listed(finder: UndrivenFinder, row: RunRow, disputed: list[str]) -> ListedRun:
    abandoned, undriven = await finder.is_abandoned(row), await finder.find(row)
    driven = row.owner is not None and not abandoned
    ready = undriven is not None and not abandoned and row.status != "queued"
    return ListedRun(
        row.run, row.agent, row.status, row.reason, row.due_ms, driven, row.created_ms, row.updated_ms,
        waits_of(row), abandoned, ready, disputed, row.program, undriven,
    )  # fmt: skip


def _line(screen: Screen, run: ListedRun, now_ms: int) -> tuple[str, ...]:
    """The columns of one run; the first is the name of its mark."""
    asks = any(wait.kind in PEOPLE for wait in run.waits)
    mark = "open" if run.ready or run.abandoned else _MARKS[run.status]
    if run.contradicted or (asks and not run.ready):
        mark = "asks"
    status = "abandoned" if run.abandoned else run.status
    return mark, run.run, run.agent, status, ago(run.updated_ms, now_ms), screen.located_report(detail(run, now_ms))


def detail(run: ListedRun, now_ms: int) -> str:
    """The reason why the run waits, without its own name; first, what contradicts a recorded outcome."""
    if run.contradicted:
        more = f" and {len(run.contradicted) - 1} more" if len(run.contradicted) > 1 else ""
        return f"contradicted: {run.contradicted[0]}{more}"
    if run.undriven is not None:
        return run.undriven.why
    if run.status not in {"queued", "suspended", "stopped"}:
        return ""
    reason, asked = run.reason.removeprefix(f"{run.run}/"), [wait for wait in run.waits if wait.kind in PEOPLE]
    if len(asked) == 1 and asked[0].kind == "approval":  # its question names the call
        reason = reason.removeprefix(f"{asked[0].step}: ")
    timed = run.due_ms is not None and not asked
    return f"due {ago(run.due_ms or 0, now_ms)}: {reason}" if timed else reason


def _sum_up(call: CommandCall, only: Listing, runs: list[ListedRun], counts: dict[tuple[str, RunStatus], int]) -> None:
    """How many runs there are, by status."""
    screen = call.screen
    by_status = dict.fromkeys(_STATUSES, 0)
    for (agent, status), number in counts.items():
        if only.agent in ("", agent) and (only.everything or not is_system(agent)):
            by_status[status] += number
    total = sum(by_status.values())
    summary = ", ".join(f"{number:,} {status}" for status, number in by_status.items() if number)
    whose = f" of {only.agent}" if only.agent else ""
    shown = f"{len(runs):,} of {total:,}" if len(runs) != total else f"{total:,}"
    screen.line((f"{shown} run{'' if total == 1 else 's'}{whose}" + (f": {summary}" if summary else " yet"), "dim"))


def _next_steps(call: CommandCall, runs: list[ListedRun]) -> None:
    """The next command to type: one line for all runs that need the same."""
    screen = call.screen
    disputed = [run for run in runs if run.contradicted]
    if len(disputed) == 1:
        screen.next(to_type("why", f"{disputed[0].run}/{disputed[0].contradicted[0]}"))
    elif disputed:
        screen.next("beforehand inbox")
    for next_step in commands_for((run.agent, run.program, run.undriven) for run in runs):
        screen.next(next_step)
