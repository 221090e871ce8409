"""A plan: everything about one simulation that is not the program's own doing. It is data, and a seed draws it.

Faults are told where they strike by counting: the n-th *point* that any process reaches (a crash point, a
journal call, a send, a receive), or the n-th call of a service. So a fault can be taken out of a plan and the
rest still means something: that is how a failing plan is made small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from beforehand.policies import RunBudget
from beforehand.queues.firing_times import Schedule
from beforehand.queues.limits import DeclaredLimits

KINDS: Final = ("charge", "pay", "mail", "ticket", "switch", "note", "ship", "order", "book", "transfer", "look")
"""The kinds of tool in the standard world: see `tools.py`."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that goes wrong. `at` counts points where `service` is empty, else calls of that service."""

    kind: str
    at: int
    service: str = ""
    ms: int = 0


PARTS: Final = ("seat", "room", "gift", "both", "post", "send")
"""What a trip may be made of: see `trips.py`. In some there is a `guide` besides."""

BODY: Final = 31
"""From this group on, steps are taken in tasks beside the body, which takes the last one of its group itself."""


EXTRAS: Final = ("sign", "think", "hurry")
"""Steps besides the tools: a write with a secret among its arguments, a question to a model whose answer differs each
time, and a mail under a time limit."""


LIMITED: Final = ("mail", "look", "rent", "think", "transfer", "pause", "nap", "oversleep", "beside", "within")
"""What may be done under a time limit: calls, pauses, several calls at once, and another limit with something in it."""


LATER: Final = ("rent", "visa", "permit", "nag")
"""Steps whose outcome comes later: see `answers.py`. One that is drawn apart is `insist`."""


ASKING: Final = ("ask", "hand_over", "pass")
"""Steps at which people or another agent decide, or go on. See `asking.py`."""


TIMING: Final = ("relabel", "build", "dispatch", "consult")
"""Steps that are about time: see `timing.py`."""


HARM: Final = ("haul", "risk", "crash", "creep")
"""Steps at which a process comes to harm: see `processes.py`."""


HOLDS_UP: Final = ("pause", "slow", "journal_lost", "disk_full", "asleep", "blackout")
"""Faults that hold processes up for a while, none of which dies of them."""


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a plan: `tools` are what is tried, in order.

    It begins when step `after` is over (-1: at once), is about what that one gave where it `refers` to it, is needed
    `perhaps`, by what that one gave, and calls the plan off where its own result says so and it `aborts`.
    """

    tools: tuple[str, ...]
    after: int = -1
    refers: bool = False
    perhaps: bool = False
    aborts: bool = False


class HostCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call that the model of a host chooses, which the host makes after `ms`.

    The host makes it again with the same id: `after` it has ended, `beside` it, or once it has `cancelled` it. It is
    `dropped` where the host begins it and does not wait for it, and `forgotten` where a host that is called anew may
    not make it.
    """

    tool: str
    ms: int = 0
    again: Literal["", "after", "beside", "cancelled"] = ""
    dropped: bool = False
    forgotten: bool = False


class ChildPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One child run that a step starts: what it does, whether its parent joins it, and whether it may outlive it.

    It may have a `budget` of its own, beside those of the runs above it.
    """

    steps: tuple[Step, ...]
    joined: bool = True
    outlives: bool = False
    budget: RunBudget | None = None


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of an agent: a call of a tool on one thing. Steps with the same `group` run at once.

    A step of the kind `trip` is a transaction of its `parts`, whose body raises at its end where it `fails`. One of
    the kind `plan` executes a plan of its `acts`, which belong `together` in a transaction or not. One of the kind
    `spend` or `buy` is about `cents`, one of the kind `rest` sleeps for `ms`, as one of the kind `insist` does
    before it asks once more. One that asks people waits for `ms`, and goes on with a default where `cents` says
    which. One of the kind `limit` does its `parts` within `ms`, and those of its `way_out` where the time ends
    first; where it `fails`, another part of a gather fails then, in place of the limit. A trip and a limit also do
    the steps `inside` them. One of the kind `host` calls an agent framework, whose model chooses the calls of each
    of its `turns`. One of the kind `family` starts its `children`, and then joins those that are to be joined. One of
    the kind `query` asks the models of its `route`; without one, a model that has no name.
    """

    kind: str
    thing: str
    group: int = 0
    by_model: bool = False
    parts: tuple[str, ...] = ()
    way_out: tuple[str, ...] = ()
    inside: tuple[Step, ...] = ()
    fails: bool = False
    acts: tuple[Act, ...] = ()
    together: bool = False
    cents: int = 0
    ms: int = 0
    turns: tuple[tuple[HostCall, ...], ...] = ()
    children: tuple[ChildPlan, ...] = ()
    route: str = ""

    def all(self) -> Iterator[Step]:
        """Yield the step and those inside it."""
        yield self
        for one in self.inside:
            yield from one.all()


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


class Permit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A permission that a person gives in advance, after `given_ms`, and revokes after `revoked_ms` more; 0: never.

    It is for calls of `tool` of up to `most` cents each, so many `times`, of `total` cents together; 0 is no bound.
    """

    tool: str
    by: str
    given_ms: int = 0
    lasts_ms: int = 24 * 3_600_000
    most: int = 0
    times: int = 0
    total: int = 0
    revoked_ms: int = 0


class Telling(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message for a run, sent after `at_ms`."""

    run: str
    at_ms: int
    stop: bool = False


class Submission(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run that is submitted to a queue after `at_ms`, by each of these `workers` (by their places in the plan).

    It is about `about`, and does not begin before `delay_ms` more. Who submits it also waits for its result where it
    `joins`, and where it `differs` submits the same run with another input afterwards, which has to be refused.
    """

    script: int
    agent: str
    queue: str
    workers: tuple[int, ...]
    tenant: str = ""
    priority: int = 0
    about: str = ""
    at_ms: int = 0
    delay_ms: int = 0
    joins: bool = False
    differs: bool = False
    budget: RunBudget | None = None


class Declaration(msgspec.Struct, frozen=True):
    """Limits that are declared after `at_ms`. Processes that start from then on declare them, too."""

    limits: DeclaredLimits
    at_ms: int = 0


class QueueOrder(msgspec.Struct, frozen=True):
    """A command to a run, given after `at_ms`. One to `raise` its budget adds `more` times what people usually add."""

    run: str
    word: Literal["cancel", "pause", "unpause", "raise"]
    at_ms: int
    more: int = 1


class Timetable(msgspec.Struct, frozen=True):
    """Schedules that are declared after `at_ms`. Processes that start from then on declare them, too."""

    schedules: dict[str, Schedule]
    at_ms: int = 0


class ScheduleOrder(msgspec.Struct, frozen=True):
    """A command to a schedule, given after `at_ms`."""

    schedule: str
    word: Literal["pause", "resume"]
    at_ms: int


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
    permits: tuple[Permit, ...] = ()
    tellings: tuple[Telling, ...] = ()
    policy: bool = False
    """Whether a policy says what is asked about: see `rulings.py`."""
    reviews: bool = False
    """Whether people look at what no rule could decide: see `reviews.py`."""
    strangers: int = 0
    """How many runs of another program are due for ever: see `strangers.py`."""
    submissions: tuple[Submission, ...] = ()
    """Runs that are submitted to queues, beside those that are started: see `generator/queues.py`."""
    declarations: tuple[Declaration, ...] = ()
    """The limits of these queues, the first of them from the beginning."""
    orders: tuple[QueueOrder, ...] = ()
    undeclared: tuple[int, ...] = ()
    """The workers that have no file of limits."""
    timetables: tuple[Timetable, ...] = ()
    """Schedules, the first of them from the beginning: see `generator/schedules.py`."""
    schedule_orders: tuple[ScheduleOrder, ...] = ()
    budgets: dict[str, RunBudget] = {}
    """The budgets of runs that are started, by run."""
    generous: int = 1
    """How much people add to the budget of a run that stopped at it: see `agents/budgets.py`."""

    @property
    def has_families(self) -> bool:
        """Whether some runs start others."""
        return any(one.children for script in self.scripts for step in script.steps for one in step.all())

    def expected(self) -> tuple[Script, ...]:
        """The scripts that are started or submitted."""
        if not self.submissions:
            return self.scripts
        asked = {number for worker in self.workers for number in worker.scripts}
        asked |= {one.script for one in self.submissions}
        return tuple(self.scripts[number] for number in sorted(asked))
