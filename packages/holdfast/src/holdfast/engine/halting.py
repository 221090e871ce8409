"""A run that stopped and cannot go on by itself asks a person: how it is listed, and what their word adds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from holdfast.engine.instance import Stamp
from holdfast.engine.rest import Pause, listed
from holdfast.engine.settings import Settings
from holdfast.errors import JournalError
from holdfast.journal.port import Claimed, RunChange, Write
from holdfast.model import records as r
from holdfast.model.questions import HALTED, TAKE_OVER, why_ended
from holdfast.model.run_history import RunHistory
from holdfast.model.system import is_system
from holdfast.model.waits import HALT, UNREADABLE

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

_ENDS: Final[dict[str, Literal["cancelled", "handed_over"]]] = {"cancel": "cancelled", TAKE_OVER: "handed_over"}


def stopped_change(stopped: r.RunStopped, agent: str, due_ms: int | None) -> RunChange:
    """How the listing stands for a run of that agent. `due_ms`: when to look again at what is in doubt."""
    why = f"{stopped.reason}: {stopped.error}"
    asks = Pause(HALT, asks=why, at=stopped.at, until=stopped.until, then="hold")
    waits = listed([asks] if stopped.reason in HALTED and not is_system(agent) else [])
    return RunChange("stopped", why[:500], due_ms, waits, release=True)


def unreadable_change(error: JournalError, now_ms: int) -> RunChange:
    """How the listing stands for a run that needs a record or a ledger entry that cannot be read.

    The listing alone says so: no record can be added to a run that cannot be read. `resume` tries again.
    """
    why = f"unreadable: {error.message}"
    return RunChange("stopped", why[:500], None, listed([Pause(UNREADABLE, asks=why[:500], at=now_ms)]), release=True)


async def stop_unreadable(engine: Engine, claimed: Claimed, error: JournalError) -> None:
    """List the run as stopped: it asks a person, and recovery does not take it again and again."""
    change = unreadable_change(error, engine.seams.clock.wall_ms())
    try:
        await engine.journal.append(Write(claimed.lease, (), change))
    except JournalError:
        engine.leases.give_back(claimed.row)


def asks_until(reason: str, now_ms: int, settings: Settings) -> int:
    """By when a person is to say how a run goes on that stops now; 0 where nobody is asked, or whenever they like."""
    return settings.answer_by(now_ms) if reason in HALTED else 0


def word_on_stopped(history: RunHistory, order: r.CommandApplied, stamp: Stamp) -> tuple[r.Record, ...]:
    """What an order adds to a run that has stopped: it goes on, or it ends otherwise than it was left.

    A run that was cancelled, or that a person has taken over, stays as it is. What cannot be is recorded as refused.
    """
    stopped = history.stopped if history.status == "stopped" else None
    if order.command == "reopen":
        if stopped is None or stopped.reason == "handed_over":
            return (replace(order, refused=f"the run is {stopped.reason if stopped else history.status}"),)
        return (order, r.RunReopened(by=order.by, note=order.note, **stamp))
    if stopped is None or stopped.reason not in HALTED or order.command not in _ENDS:
        return (order,)
    reason = _ENDS[order.command]
    left = r.RunStopped(reason=reason, error=why_ended(order), open=stopped.open, renews=stopped.renews, **stamp)
    return (order, left)
