"""The nemesis: strikes where the plan says, by counting the points that processes reach and the calls they make."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from beforehand.testing.loop import Actor, Died
from simulator.plan import Fault

if TYPE_CHECKING:
    from simulator.processes.worker import Life
    from simulator.world import World


class Place(NamedTuple):
    """Where a fault struck a process: at the n-th point of this name, and about this, that this process reached."""

    actor: str
    label: str
    about: str
    number: int


class Nemesis:
    """What goes wrong in one simulation, and what has gone wrong so far."""

    def __init__(self, world: World, faults: tuple[Fault, ...], strikes: Mapping[Place, Fault] | None = None) -> None:
        self._world = world
        self._at_points = {fault.at: fault for fault in faults if not fault.service}
        self._at_calls = {(fault.service, fault.at): fault for fault in faults if fault.service}
        self._strikes_at = strikes
        self._reached: Counter[tuple[str, str, str]] = Counter()
        self._calls: Counter[str] = Counter()
        self.points = 0
        self.struck: Final[list[Fault]] = []
        self.places: Final[dict[Place, Fault]] = {}
        """Where faults of processes struck."""

    def reached(self, actor: Actor, label: str, about: str) -> bool:
        """A process reached a point. True where it must stand still now. Raises `Died` where it dies here."""
        self.points += 1
        self._world.reach.point(label)
        self._reached[actor.name, label, about] += 1
        place = Place(actor.name, label, about, self._reached[actor.name, label, about])
        fault = self._at_points.get(self.points) if self._strikes_at is None else self._strikes_at.get(place)
        if fault is not None and (life := self._world.lives.get(actor)) is not None:
            self.struck.append(fault)
            self.places[place] = fault
            self._world.reach.fault(fault.kind, label)
            self._world.checker.meet(fault.kind)
            self._world.tell(actor, f"{fault.kind} at {label}" + (f", {fault.ms} ms" if fault.ms else ""))
            self._strike(life, fault)
        return actor.paused

    def of_call(self, service: str) -> Fault | None:
        """What becomes of the next call of that service."""
        self._calls[service] += 1
        fault = self._at_calls.get((service, self._calls[service]))
        if fault is not None:
            self.struck.append(fault)
            self._world.reach.fault(fault.kind, service)
            match fault.kind:
                case "outage":
                    self._world.outages[service] = self._world.now_ms() + fault.ms
                case "blackout" | "asleep":
                    self._world.later(SOON_MS, functools.partial(_DARK[fault.kind], self._world, fault.ms))
                case _:
                    pass
        return fault

    def _strike(self, life: Life, fault: Fault) -> None:
        _STRIKES[fault.kind](self._world, life, fault.ms)


SOON_MS: Final = 3_000
"""After so long it gets dark: by then the call that it is counted by has gone wrong, and the next is waited for."""


def _blackout(world: World, ms: int) -> None:
    """The machine is off: no process is there, and none is started."""
    if not world.closing:
        world.dark_until = world.now_ms() + ms
        world.checker.timing.dark(ms)
        world.tell(None, f"the power is cut for {ms} ms")
        _cut(world)


def _asleep(world: World, ms: int) -> None:
    """The machine sleeps, as laptops do: its clocks go on, and its processes do not."""
    if not world.closing:
        world.checker.timing.dark(ms)
        world.tell(None, f"the machine sleeps for {ms} ms")
        for life in world.lives.values():
            if life.actor.alive and not life.actor.paused:
                _pause(world, life, ms)


_DARK: Final[Mapping[str, Callable[[World, int], None]]] = {"blackout": _blackout, "asleep": _asleep}


def _kill(_world: World, life: Life, _ms: int) -> None:
    life.kill()
    raise Died


def _power(world: World, _life: Life, _ms: int) -> None:
    """All processes at once, and the machine starts again."""
    _cut(world)
    raise Died


def _cut(world: World) -> None:
    world.boot += "'"
    for other in list(world.lives.values()):
        if other.actor.alive:
            other.kill()


def _shutdown(_world: World, life: Life, _ms: int) -> None:
    life.leave()


def _deploy(world: World, life: Life, _ms: int) -> None:
    """Processes that start from now on run newer code; this one leaves at once."""
    world.newer = True
    life.leave()


def _disk_full(world: World, _life: Life, ms: int) -> None:
    world.full_until = world.now_ms() + ms


def _disk_broken(world: World, life: Life, _ms: int) -> None:
    """A failed sync: this process can write nothing any more, and its supervisor notices after a while."""
    life.disk.broken = True
    world.later(10_000, life.leave)


def _journal_lost(world: World, life: Life, ms: int) -> None:
    world.lost_until[life.actor] = world.now_ms() + ms


def _slow(world: World, _life: Life, ms: int) -> None:
    world.slow_until = world.now_ms() + ms


def _clock_jump(world: World, _life: Life, ms: int) -> None:
    world.skew_ms += ms
    world.jumped_ms = world.now_ms()


def _backup(world: World, _life: Life, _ms: int) -> None:
    """The journal is copied while everything goes on."""
    world.back_up()


def _restore(world: World, life: Life, ms: int) -> None:
    """The machine was lost: it starts again with the copy, and an operator confirms it `ms` later."""
    if world.restore(ms):
        _power(world, life, ms)


def _pause(world: World, life: Life, ms: int) -> None:
    """SIGSTOP, and SIGCONT after a while."""
    life.actor.paused = True

    def go_on() -> None:
        life.actor.paused, world.woke_ms = life.stopped, world.now_ms()
        world.tell(life.actor, "wakes up")

    world.later(ms, go_on)


_STRIKES: Final[Mapping[str, Callable[[World, Life, int], None]]] = {
    "kill": _kill,
    "power": _power,
    "shutdown": _shutdown,
    "deploy": _deploy,
    "disk_full": _disk_full,
    "disk_broken": _disk_broken,
    "journal_lost": _journal_lost,
    "slow": _slow,
    "clock_jump": _clock_jump,
    "pause": _pause,
    "backup": _backup,
    "restore": _restore,
}
"""What each fault of a process does, to whom, and for how many milliseconds."""
