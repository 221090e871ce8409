"""`beforehand top`: queues, runs, processes and costs as they are now, and what needs attention."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Final

import click
from msgspec.structs import replace

from beforehand.cli.apps import ending_by_signal
from beforehand.cli.common import CommandCall, command
from beforehand.cli.config import existing_journal
from beforehand.cli.costs import prices_from
from beforehand.cli.queues import ListedQueue, list_queues
from beforehand.cli.top_frame import AgentRuns, Attention, DrivingProcess, RecentSpending, TopFrame, asked, draw
from beforehand.cli.undriven import UndrivenFinder
from beforehand.engine.breaker import ALL, unpausing
from beforehand.engine.shared_budgets import waiting_by_budget
from beforehand.inspect.reader import JournalReader, troubles_of
from beforehand.inspect.spending import Spending
from beforehand.inspect.text import count, moment
from beforehand.journal.host import wall_ms
from beforehand.journal.port import RunStatus
from beforehand.model.shell import to_type
from beforehand.model.system import is_system
from beforehand.people.items import placed

_EVERY_S: Final = 1.0
_LISTED: Final = 1000
"""How many driven runs, and how many that wait for a worker, are read for one frame."""
_ENTER, _LEAVE, _HOME, _CLEAR = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"


@command(
    "top", examples=("beforehand top", "beforehand top --once", "beforehand top --json | jq '.attention[] | .what'")
)
@click.option("--once", is_flag=True, help="Print one frame and end; the default if the output is not a terminal.")
@click.option("--prices", default=None, metavar="FILE", help="Your prices; by default the project's prices.yaml.")
async def top(call: CommandCall, once: bool, prices: str | None) -> None:
    """Show queues, runs, processes and costs, and what needs attention.

    In a terminal the view is refreshed every second until Ctrl-C. The costs are those
    of the calls of models in the last hour; beforehand costs has the sums over all runs.
    Only processes that drive a run are listed.
    """
    screen = call.screen
    async with call.with_raw_reader() as (reader, journal):
        view = Overview(call, reader, Spending(journal, prices_from(prices)))
        if screen.as_json:
            screen.document(await view.look(wall_ms()))
        elif once or not sys.stdout.isatty():
            for line in draw(await view.look(wall_ms()), max(40, shutil.get_terminal_size().columns)):
                screen.line(*line)
        else:
            with ending_by_signal() as stop, _whole_terminal():
                await _live(call, view, stop)


async def _live(call: CommandCall, view: Overview, stop: asyncio.Event) -> None:
    from rich.cells import cell_len  # noqa: PLC0415 - only what is laid out needs it

    while not stop.is_set():
        frame = await view.look(wall_ms())
        width, height = shutil.get_terminal_size()
        sys.stdout.write(_HOME)
        for line in draw(frame, width - 1, height - 1):
            filled = sum(cell_len(text) for text, _ in line)
            call.screen.line(*line, " " * (width - 1 - filled))
        sys.stdout.write(_CLEAR)
        sys.stdout.flush()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _EVERY_S)


@contextlib.contextmanager
def _whole_terminal() -> Generator[None]:
    """Use the terminal's second screen; the first one comes back as it was."""
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


# --- reading ---------------------------------------------------------------------------------------------------------


class Overview:
    """Reads frames of one journal. The cost of a frame depends on what is open, not on how many runs have ended."""

    def __init__(self, call: CommandCall, reader: JournalReader, spending: Spending) -> None:
        self._located: Final = call.screen.located
        self._journal: Final = str(existing_journal(call.journal))
        self._reader: Final = reader
        self._spending: Final = spending

    async def look(self, now_ms: int) -> TopFrame:
        """The journal as it is now."""
        reader, journal = self._reader, self._reader.journal
        by_agent = _by_agent(await journal.counts())
        sums = Counter[str]()
        for one in by_agent:
            sums.update(one.runs)
        _, queues = await list_queues(reader, now_ms)
        driven = await journal.runs(status="running", limit=_LISTED, newest=True) if sums["running"] else []
        owners = Counter(row.owner for row in driven if row.owner is not None).most_common()
        states = [(owner, number, await journal.fate(owner)) for owner, number in owners]
        processes = [DrivingProcess(owner, state.pid, number, state.gone) for owner, number, state in states]
        line = await self._spending.look(now_ms)
        spent = RecentSpending(self._spending.since_ms, line.calls, line.unknown, line.tokens, line.cost)
        attention = [*await self._of_the_journal(processes), *await self._of_runs(now_ms, queues)]
        attention += await self._of_people(now_ms)
        named = [replace(one, command=self._located(one.command)) for one in attention]
        return TopFrame(now_ms, self._journal, dict(sums), by_agent, queues, processes, spent, named)

    async def _of_the_journal(self, processes: Sequence[DrivingProcess]) -> list[Attention]:
        identity, found = self._reader.identity, list[Attention]()
        if identity.trust == "distrustful":
            found.append(Attention(f"this journal is not trusted: {identity.reason}", "beforehand doctor"))
        for one in processes:
            for trouble in await troubles_of(self._reader.journal, one.worker):
                found.append(Attention(f"housekeeping fails in process {one.pid}: {trouble.task}: {trouble.error}"))
        return found

    async def _of_runs(self, now_ms: int, queues: Sequence[ListedQueue]) -> list[Attention]:
        """Runs that nothing drives, queues that nothing empties, and what people have paused."""
        finder, waiting = UndrivenFinder(self._reader, now_ms), Counter[tuple[str, str]]()
        rows = await self._reader.journal.runs(wakeable=True, limit=_LISTED)
        for row in rows:
            if not is_system(row.agent) and (undriven := await finder.find(row)) is not None:
                waiting["a run whose code was moved away" if undriven.moved else "", undriven.command] += 1
        least = "at least " if len(rows) == _LISTED else ""
        found = [
            Attention(kind or f"{least}{count(number, 'run')} ready to continue, and no process drives them", typed)
            for (kind, typed), number in waiting.items()
        ]
        gone = await finder.lost(key for queue in queues for key in queue.agents)
        found += [Attention(f"runs of {agent} {lost.why}", lost.command) for (agent, _), lost in gone.items()]
        for queue in queues:
            if queue.mode:
                restriction = queue.mode.paused or queue.mode.draining
                since = moment(restriction.at_ms) if restriction is not None else ""
                state = "paused" if queue.mode.paused else "draining"
                remark = f"queue {queue.queue} is {state} since {since} {restriction}"
                found.append(Attention(remark, to_type("queues", "resume", queue.queue)))
            elif queue.startable(gone) and not queue.running:
                waits = f"{count(queue.waiting, 'run')} waiting" if queue.waiting else "runs wait for a slot again"
                found.append(Attention(f"queue {queue.queue}: {waits}, and none of them runs", "beforehand worker"))
        for budget, number in sorted((await waiting_by_budget(self._reader.journal)).items()):
            remark = f"shared budget {budget} has no room: {count(number, 'run')} waiting for it"
            found.append(Attention(remark, "beforehand budget"))
        for tool, why in (await self._reader.pauses()).items():
            found.append(Attention(f"{'' if tool == ALL else f'tool {tool} is '}paused: {why}", unpausing(tool)))
        return found

    async def _of_people(self, now_ms: int) -> list[Attention]:
        items = [one for one in await placed(self._reader, now_ms=now_ms) if not one.rests_ms]
        if not items:
            return []
        late = sum(one.due_ms is not None and one.due_ms <= now_ms for one in items)
        found = [asked(Counter(one.kind for one in items), min(one.since_ms for one in items), now_ms)]
        if late:
            found.append(Attention(f"{count(late, 'question')} past the deadline", "beforehand inbox"))
        return found


def _by_agent(counts: dict[tuple[str, RunStatus], int]) -> list[AgentRuns]:
    """The agents of people, those with the most open runs first."""
    found: dict[str, dict[str, int]] = {}
    for (agent, status), number in counts.items():
        if not is_system(agent):
            found.setdefault(agent, {})[status] = number
    listed = [AgentRuns(agent, runs) for agent, runs in found.items()]
    opened = {
        one.agent: sum(number for status, number in one.runs.items() if status not in {"completed", "undone"})
        for one in listed
    }
    return sorted(listed, key=lambda one: (-opened[one.agent], one.agent))
