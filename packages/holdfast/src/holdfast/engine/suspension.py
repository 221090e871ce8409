"""Rest: when everything in a run waits, and none of it will be over soon, the run is suspended and holds no process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec.structs import replace

from holdfast.errors import JournalError
from holdfast.journal.port import LeaseGranted, RunChange, Write
from holdfast.model import records as r
from holdfast.model.questions import HALTED, TAKE_OVER, why_ended
from holdfast.model.system import is_system
from holdfast.model.waits import HALT, UNREADABLE, Then

if TYPE_CHECKING:
    from holdfast.engine.active_run.run import ActiveRun, Stamp
    from holdfast.engine.engine import Engine
    from holdfast.engine.settings import Settings
    from holdfast.model.run_history import RunHistory


class Pause(msgspec.Struct, frozen=True):
    """What somebody waits for. `due` is the wall clock in milliseconds at which it ends by itself, if it does.

    `at` is when a person was asked, by the same clock: asked again, it is another moment. 0: it is not known.
    """

    kind: str
    step: str = ""
    due: int | None = None
    asks: str = ""
    sent: bool = True  # whether something may have been sent already
    at: int = 0
    queue: str = ""  # where the question is put
    tool: str = ""  # of what a person is asked about
    until: int = 0  # the wall clock by which an answer is wanted, whether or not the wait ends then; 0: there is none
    then: Then = ""  # and what happens at that moment
    shown: str = ""  # the digest of exactly what a person is asked to approve


PLACED = ("queue", "tool", "then", "shown")


def encode_waits(pauses: Iterable[Pause]) -> bytes:
    """What a run waits for, as its row of the listing has it."""
    return msgspec.json.encode([_encoded_wait(pause) for pause in pauses])


def _encoded_wait(pause: Pause) -> dict[str, object]:
    place = {name: text for name in PLACED if (text := getattr(pause, name))}
    due = pause.until or pause.due
    return {"kind": pause.kind, "step": pause.step, "asks": pause.asks, "due": due, "at": pause.at, **place}


class Ending(msgspec.Struct, frozen=True):
    """Why an instance ends before its agent returns."""

    kind: str  # suspended, diverged, failed, lost, unavailable, shutdown, cancelled, quarantined
    reason: str = ""
    due: int | None = None
    waits: tuple[Pause, ...] = ()
    error: BaseException | None = None


def ending_at_rest(instance: ActiveRun) -> Ending | None:
    """How the instance has to end, if everything waits and none of it will be over soon."""
    if instance.sealed is not None or instance.ending.done() or not instance.at_rest():
        return None
    if instance.taking_orders.locked():
        return None  # what an order changed is in the history before the driver that waits for it is woken
    if any(future.done() for future in (*instance.pauses, *(instance.wakers[step] for step in instance.resting))):
        return None  # somebody was woken and has not had its turn yet
    pauses = [*instance.resting.values(), *instance.pauses.values()]
    if any(pause.kind == "replay" for pause in pauses):
        return Ending("diverged", "every branch waits, and recorded steps have not come back")
    horizon = instance.engine.environment.clock.wall_ms() + instance.engine.settings.hold_ms
    dues = [*instance.limits.values(), *(pause.due for pause in pauses if pause.due is not None)]
    waits = tuple(pause for pause in pauses if pause.kind != "operation")
    if waits and all(due > horizon for due in dues):
        return Ending("suspended", "; ".join(_sentences(waits)), min(dues, default=None), waits)
    return None


def _sentences(waits: Iterable[Pause]) -> list[str]:
    return list(dict.fromkeys(pause.asks or f"{pause.step} waits ({pause.kind})" for pause in waits))


# A run that stopped and cannot go on by itself asks a person: how it is listed, and what their word adds to it.


_ENDS: Final[dict[str, Literal["cancelled", "handed_over"]]] = {"cancel": "cancelled", TAKE_OVER: "handed_over"}


def stopped_change(stopped: r.RunStopped, agent: str, due_ms: int | None) -> RunChange:
    """How the listing stands for a run of that agent. `due_ms`: when to look again at what is in doubt."""
    why = f"{stopped.reason}: {stopped.error}"
    asks = Pause(HALT, asks=why, at=stopped.at, until=stopped.until, then="hold")
    waits = encode_waits([asks] if stopped.reason in HALTED and not is_system(agent) else [])
    return RunChange("stopped", why[:500], due_ms, waits, release=True)


def unreadable_change(error: JournalError, now_ms: int) -> RunChange:
    """How the listing stands for a run that needs a record or a ledger entry that cannot be read.

    The listing alone says so: no record can be added to a run that cannot be read. `resume` tries again.
    """
    why = f"unreadable: {error.message}"
    return RunChange(
        "stopped", why[:500], None, encode_waits([Pause(UNREADABLE, asks=why[:500], at=now_ms)]), release=True
    )


async def stop_unreadable(engine: Engine, claimed: LeaseGranted, error: JournalError) -> None:
    """List the run as stopped: it asks a person, and recovery does not take it again and again."""
    change = unreadable_change(error, engine.environment.clock.wall_ms())
    try:
        await engine.journal.append(Write(claimed.lease, (), change))
    except JournalError:
        engine.leases.give_back(claimed.row)


def asks_until(reason: str, now_ms: int, settings: Settings) -> int:
    """By when a person is to say how a run goes on that stops now; 0 where nobody is asked, or whenever they like."""
    return settings.answer_by(now_ms) if reason in HALTED else 0


def records_on_stopped(history: RunHistory, order: r.CommandApplied, stamp: Stamp) -> tuple[r.Record, ...]:
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
