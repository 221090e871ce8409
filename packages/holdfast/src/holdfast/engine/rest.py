"""Rest: when everything in a run waits, and none of it will be over soon, the run is suspended and holds no process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.waits import Then

if TYPE_CHECKING:
    from holdfast.engine.instance import Instance


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


def listed(pauses: Iterable[Pause]) -> bytes:
    """What a run waits for, as its row of the listing has it."""
    return msgspec.json.encode([_listed(pause) for pause in pauses])


def _listed(pause: Pause) -> dict[str, object]:
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


def how_to_rest(instance: Instance) -> Ending | None:
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
    horizon = instance.engine.seams.clock.wall_ms() + instance.engine.settings.hold_ms
    dues = [*instance.limits.values(), *(pause.due for pause in pauses if pause.due is not None)]
    waits = tuple(pause for pause in pauses if pause.kind != "operation")
    if waits and all(due > horizon for due in dues):
        return Ending("suspended", "; ".join(_sentences(waits)), min(dues, default=None), waits)
    return None


def _sentences(waits: Iterable[Pause]) -> list[str]:
    return list(dict.fromkeys(pause.asks or f"{pause.step} waits ({pause.kind})" for pause in waits))
