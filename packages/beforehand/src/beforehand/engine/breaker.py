"""The circuit breaker and the shared retry budget of each tool, seen by all processes.

The state is one small hint per tool in the journal: it is written on failures and on the first success
after them, never on the quiet path, and losing it costs a few extra calls at most. An open breaker
makes nothing failed: it only makes attempts wait. Verification bypasses it.

The figures follow common practice: consecutive failures open it, the pause doubles while probes fail,
and retries spend from a bucket that refills slowly, so that an outage is not answered by a storm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from beforehand.errors import Unreadable, UsageError
from beforehand.journal.backend_rules import SENDING
from beforehand.journal.cells import read_hint
from beforehand.journal.entry_codec import read, set_aside, written
from beforehand.journal.port import HintRequest, Journal, JournalReads, LedgerEntry, Post
from beforehand.model.shell import to_type
from beforehand.queues.modes import Restriction

FAILURES_TO_OPEN: Final = 5
FORGET_MS: Final = 30_000
FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 60_000
BUCKET: Final = 50.0
REFILL_PER_MS: Final = 0.002


class BreakerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Failures in a row, when the last one was, until when the breaker is open, and what retries may spend."""

    failures: int = 0
    last_ms: int = 0
    open_until_ms: int = 0
    opened: int = 0
    tokens: float = BUCKET


CLOSED: Final = BreakerState()


def after_failure(state: BreakerState, now_ms: int) -> BreakerState:
    """The state after one more call that failed or got no answer."""
    since = max(state.last_ms, state.open_until_ms)  # no call could fail while it was open
    failures = 1 + (state.failures if now_ms - since <= FORGET_MS else 0)
    opens = failures >= FAILURES_TO_OPEN
    pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(state.opened, 16))
    return msgspec.structs.replace(
        state,
        failures=failures,
        last_ms=now_ms,
        open_until_ms=now_ms + pause if opens else state.open_until_ms,
        opened=state.opened + 1 if opens else 0,
        tokens=tokens_now(state, now_ms),
    )


def after_retry(state: BreakerState, now_ms: int) -> BreakerState:
    """The state after one retry from the shared bucket."""
    left = tokens_now(state, now_ms) - 1
    return msgspec.structs.replace(state, tokens=max(0.0, left), last_ms=now_ms)


def tokens_now(state: BreakerState, now_ms: int) -> float:
    """The present content of the bucket, refilled since it was last touched."""
    return min(BUCKET, state.tokens + max(0, now_ms - state.last_ms) * REFILL_PER_MS)


def credible(state: BreakerState, now_ms: int) -> BreakerState:
    """The state; a closed breaker where a clock that was set back since has noted it."""
    ahead = max(state.last_ms, state.open_until_ms) > now_ms + 2 * LONGEST_PAUSE_MS  # a pause, and as much of error
    return CLOSED if ahead else state


def wait_ms(state: BreakerState, now_ms: int, *, retry: bool) -> int:
    """How long a new attempt has to wait: for the breaker, and a retry also for the bucket."""
    state = credible(state, now_ms)
    wait = max(0, min(state.open_until_ms - now_ms, LONGEST_PAUSE_MS))
    if retry and (short := 1 - tokens_now(state, now_ms)) > 0:
        wait = max(wait, int(short / REFILL_PER_MS) + 1)
    return wait


class BreakerStates:
    """The states of breakers as this process knows them."""

    def __init__(self, journal: JournalReads, wall_ms: Callable[[], int], tools: Iterable[str]) -> None:
        self._journal = journal
        self._wall_ms = wall_ms
        self._tools = tools
        self.states: Final[dict[str, tuple[BreakerState, bytes | None]]] = {}
        self.troubled = False
        """True once this process has seen a failure of any tool."""

    def wait_ms(self, tool: str, *, retry: bool) -> int:
        """How long an attempt of this tool has to wait now."""
        if tool not in self.states:
            return 0
        return wait_ms(self.states[tool][0], self._wall_ms(), retry=retry)

    async def refresh(self) -> None:
        """Read the hints of all tools of this app."""
        for tool in self._tools:
            await self._read(tool)

    async def _read(self, tool: str) -> tuple[BreakerState, bytes | None]:
        stored = await read_hint(self._journal, f"breaker/{tool}")
        state = _state_in(stored)
        if stored is not None or tool in self.states:
            self._know(tool, state, stored)
        return state, stored

    def _know(self, tool: str, state: BreakerState, stored: bytes | None) -> None:
        self.states[tool] = (state, stored)
        self.troubled = True


class Breakers(BreakerStates):
    """The breakers of a process that sends: refreshed while anything fails, and changed by its calls."""

    def __init__(self, journal: Journal, wall_ms: Callable[[], int], tools: Iterable[str]) -> None:
        super().__init__(journal, wall_ms, tools)
        self._shared = journal

    async def failed(self, tool: str) -> None:
        """Count a call that failed without a proof of refusal."""
        await self._change(tool, failure=True)

    async def retried(self, tool: str) -> None:
        """Count a retry that is about to be made."""
        await self._change(tool, failure=False)

    async def succeeded(self, tool: str) -> None:
        """Close the breaker after a call that came back."""
        if tool in self.states and self.states[tool][0].failures:
            state, stored = self.states[tool]
            closed = msgspec.structs.replace(state, failures=0, open_until_ms=0, opened=0)
            await self._write(tool, closed, stored)

    async def _change(self, tool: str, *, failure: bool) -> None:
        for _ in range(3):
            state, stored = await self._read(tool)
            before = credible(state, now := self._wall_ms())
            after = after_failure(before, now) if failure else after_retry(before, now)
            if await self._write(tool, after, stored):
                return

    async def _write(self, tool: str, state: BreakerState, previous: bytes | None) -> bool:
        body = msgspec.json.encode(state)
        self._know(tool, state, body)
        return await self._shared.commit(HintRequest(f"breaker/{tool}", body, previous))


def _state_in(note: bytes | None) -> BreakerState:
    """The state in a losable note. One that cannot be read counts as lost: the breaker is closed."""
    if note is None:
        return CLOSED
    try:
        return msgspec.json.decode(note, type=BreakerState)
    except (msgspec.MsgspecError, ValueError):
        return CLOSED


PAUSES: Final = "pause/"
ALL: Final = SENDING.removeprefix(PAUSES)
"""In the place of a tool: all sending. The journal itself refuses attempts then (`Write.sends`); reads go on."""


class ToolPause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One command about a tool, or about all sending: pause it, or let it go on."""

    word: Literal["pause", "unpause"]
    by: str
    why: str = ""


def pause_post(tool: str, command: ToolPause) -> Post:
    """The command as a ledger entry. Raises `ArgumentError` for one that could not be read."""
    if tool == ALL:  # an entry without a key would end a pause of all sending
        raise UsageError("* is no tool", next_step=f"use {command.word} with --all: beforehand pause --all")
    return Post(PAUSES + tool, "", written(command))


async def pauses_of(journal: JournalReads) -> dict[str, str]:
    """Why each tool is paused, and `ALL`; empty where a pause is over. A command that cannot be read is a pause."""
    found: dict[str, str] = {}
    for entry in await journal.entries(PAUSES):
        tool = entry.stream.removeprefix(PAUSES)
        try:
            pause = restriction_in(entry)
        except Unreadable as error:
            await set_aside(journal, entry, error)
            found[tool] = f"the command in ledger entry {entry.id} cannot be read: {unpausing(tool)}"
        else:
            found[tool] = "" if pause is None else _why(tool, pause)
    return found


async def paused_tools(journal: JournalReads) -> dict[str, str]:
    """The paused tools, and why; `ALL` where all sending is paused."""
    return {tool: why for tool, why in (await pauses_of(journal)).items() if why}


def restriction_in(entry: LedgerEntry) -> Restriction | None:
    """Who has paused a tool or all sending with this command; None where it ends a pause. Raises `Unreadable`."""
    command = read(entry, ToolPause)
    return Restriction(command.by, entry.at_ms, command.why) if command.word == "pause" else None


def _why(tool: str, pause: Restriction) -> str:
    return f"all sending, {dated(pause)}" if tool == ALL else pause.why or f"paused {pause}"


def dated(pause: Restriction) -> str:
    """By whom something is paused, since when, and why."""
    since = datetime.fromtimestamp(pause.at_ms / 1000, UTC)
    return f"by {pause.by} since {since:%Y-%m-%d %H:%M} UTC" + (f": {pause.why}" if pause.why else "")


def paused_with(pauses: Mapping[str, str], tool: str) -> str:
    """The tool, or `ALL` where it is paused only with all sending."""
    return ALL if not pauses.get(tool) and pauses.get(ALL) else tool


def unpausing(tool: str) -> str:
    """The command that ends the pause of a tool, or of all sending."""
    return to_type("unpause", *(("--all",) if tool == ALL else ("--tool", tool)))
