"""A plan: everything about one simulation that is not the program's own doing. It is data, and a seed draws it.

Faults are told where they strike by counting: the n-th *point* that any process reaches (a crash point, a
journal call, a send, a receive), or the n-th call of a service. So a fault can be taken out of a plan and the
rest still means something: that is how a failing plan is made small.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Process = Literal[
    "kill", "pause", "shutdown", "power", "disk_full", "disk_broken", "journal_lost", "clock_jump", "deploy",
    "restore", "slow", "cancel_run",
]  # fmt: skip
"""What the nemesis does to the process that reached the point (`power`, `disk_full` and `restore`: to all)."""

Answer = Literal[
    "refused", "lost", "reply_lost", "late", "error_before", "error_after", "rejected", "busy", "garbage", "slow",
    "duplicate", "outage", "lie", "partial", "other_actor",
]  # fmt: skip
"""What becomes of one call of a service."""

PROCESS: Final[tuple[Process, ...]] = Process.__args__  # type: ignore[attr-defined]  # a Literal knows its values
ANSWER: Final[tuple[Answer, ...]] = Answer.__args__  # type: ignore[attr-defined]  # as above

KINDS: Final = ("charge", "pay", "mail", "ticket", "switch", "note", "ship", "order", "book", "transfer", "look")
"""The kinds of tool in the standard world: see `tools.py`."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that goes wrong. `at` counts points where `service` is empty, else calls of that service."""

    kind: str
    at: int
    service: str = ""
    ms: int = 0


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of an agent: a call of a tool on one thing. Steps with the same `group` run at once."""

    kind: str
    thing: str
    group: int = 0
    by_model: bool = False


class Script(msgspec.Struct, frozen=True):
    """What one agent does. Its run has this id."""

    id: str
    steps: tuple[Step, ...]


class WorkerPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One worker: whether it lives in a container of its own, and how soon its supervisor starts it again."""

    name: str
    contained: bool = False
    restart_ms: int = 1_000
    scripts: tuple[int, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """One simulation, before it is run."""

    seed: int
    scripts: tuple[Script, ...]
    workers: tuple[WorkerPlan, ...]
    faults: tuple[Fault, ...] = ()
    schedule: Literal["fifo", "random", "priorities"] = "fifo"
    settings: dict[str, int] = {}
    disk_ms: int = 2
    skew_ms: int = 0
    person_ms: int = 0
    """How long a person takes to answer what is parked; 0: nobody does."""
