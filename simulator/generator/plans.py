"""From a seed to a plan. Each seed switches a random set of faults on, each at a rate of its own (swarm testing)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, Literal

from simulator.generator.bodies import BODIES, with_bodies
from simulator.generator.branches import with_branches, with_limits
from simulator.generator.budgets import BUDGETED, with_budgets
from simulator.generator.calls import COMMON, dice, of_calls
from simulator.generator.deferred import (
    of_offices,
    of_recalls,
    of_requests_beside,
    with_answers,
    with_requests_beside,
)
from simulator.generator.families import FAMILIES, with_families
from simulator.generator.hosts import HOSTED, with_hosts
from simulator.generator.models import ROUTED, with_models
from simulator.generator.people import (
    of_compensations,
    of_people,
    of_questions,
    of_reviews,
    permits_of,
    tellings_of,
    with_gates,
    with_guides,
    with_money,
    with_purchases,
    with_questions,
    with_rests,
)
from simulator.generator.processes import of_timing, with_insisting, with_processes, with_timing
from simulator.generator.queues import HELD, LIMITED, QUEUED, with_held_permits, with_queues
from simulator.generator.schedules import SCHEDULED, with_schedules
from simulator.plan import EXTRAS, KINDS, PARTS, Act, Fault, Plan, Script, Step, WorkerPlan
from simulator.services.service import CATALOGUE

WORKERS: Final = 3
STEPS: Final = 5
MOST_POINTS: Final = 400
"""Faults are drawn for so many points; most simulations have about as many."""

PROCESS_FAULTS: Final[Mapping[str, tuple[int, int]]] = {
    "kill": (0, 0), "pause": (500, 120_000), "shutdown": (0, 0), "power": (0, 0), "disk_full": (1_000, 60_000),
    "disk_broken": (0, 0), "journal_lost": (1_000, 60_000), "clock_jump": (-600_000, 600_000), "deploy": (0, 0),
    "slow": (1_000, 30_000),
}  # fmt: skip
"""What may strike a process, and the range of its duration in milliseconds."""

CALL_FAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    kind: (
        *COMMON,
        *(("duplicate",) if kind in {"charge", "pay", "order", "book", "transfer", "note"} else ()),
        *(("other_actor",) if kind == "switch" else ()),
        *(("lie",) if kind == "order" else ()),
    )
    for kind in KINDS
    if kind != "look"
}
"""What may become of a call, by kind of tool: only what its service may do without breaking its own promise."""

TRIP_FAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    service: (*COMMON, *(("duplicate",) if CATALOGUE[service].key or CATALOGUE[service].natural else ()))
    for service in ("seat", "unseat", "room", "take", "leave", "gift", "gift_back", "post", "send", "sign", "dare")
}
"""The same for what trips are made of, and for the write with a secret."""

RESTORE_FAULTS: Final = ("backup", "restore")
"""What may become of the journal as a whole."""


RANGES: Final[Mapping[str, int]] = {
    "ordinary": 0, "hosts": HOSTED, "queues": QUEUED, "limits": LIMITED, "schedules": SCHEDULED, "budgets": BUDGETED,
    "families": FAMILIES, "models": ROUTED, "bodies": BODIES, "held": HELD,
}  # fmt: skip
"""Each kind of plan has a range of seeds of its own, which begins here."""


def draw(seed: int) -> Plan:
    """The plan of a seed. From `HOSTED` on its agents call hosts, and from `QUEUED` on some runs are submitted.

    From `SCHEDULED` on schedules submit some, from `BUDGETED` on they have budgets, from `FAMILIES` on runs start
    others, from `ROUTED` on they ask models that have limits, and from `BODIES` on bodies do several things at once.
    From `HELD` on processes are stopped while they hold permits.
    """
    if seed >= HELD:
        return with_held_permits(with_queues(_drawn(seed - HELD), seed), seed)
    if seed >= BODIES:
        return with_bodies(_drawn(seed - BODIES), seed)
    if seed >= ROUTED:
        return with_models(with_budgets(with_queues(_drawn(seed - ROUTED), seed), seed), seed)
    if seed >= FAMILIES:
        return with_families(_drawn(seed - FAMILIES), seed)
    if seed >= BUDGETED:
        return with_budgets(with_queues(_drawn(seed - BUDGETED), seed), seed)
    if seed >= SCHEDULED:
        return with_schedules(with_queues(_drawn(seed - SCHEDULED), seed), seed)
    if seed >= QUEUED:
        return with_queues(_drawn(seed - QUEUED), seed)
    return with_hosts(_drawn(seed - HOSTED), seed) if seed >= HOSTED else _drawn(seed)


def _drawn(seed: int) -> Plan:
    chance, later, plans, people, money, said, looks, wishes, asking = (
        dice(what, seed)
        for what in ("plan", "answers", "plans", "people", "money", "messages", "reviews", "amends", "questions")
    )
    scripts = _with_trips(tuple(_script(chance, n) for n in range(WORKERS)), dice("trips", seed))
    scripts = _with_extras(scripts, dice("extras", seed))
    scripts = with_answers(scripts, later)
    scripts = _with_plans(scripts, plans)
    scripts = with_gates(scripts, people)
    permits = permits_of(money)
    scripts = with_money(scripts, money) if permits else scripts
    tellings = tellings_of(said, scripts)
    scripts = with_rests(scripts, said) if tellings else scripts
    policy = dice("policy", seed).random() < 0.06
    scripts = with_purchases(scripts, dice("purchases", seed)) if policy else scripts
    reviews = looks.random() < 0.15
    scripts = with_guides(scripts, wishes) if reviews else scripts
    scripts = with_questions(scripts, asking)
    hotels = dice("rooms", seed)
    rooms = hotels.random() < 0.2
    scripts = _with_rooms(scripts, hotels) if rooms else scripts
    scripts = with_limits(with_insisting(with_timing(scripts, seed), seed), seed, told=bool(tellings))
    scripts = with_branches(with_requests_beside(scripts, seed), seed)
    workers = tuple(_worker(chance, n) for n in range(WORKERS))
    return with_processes(Plan(
        seed, scripts, workers,
        _faults(chance, scripts) + of_offices(later, scripts) + _of_plans(plans, scripts)
        + of_people(people, scripts, policy=policy) + of_reviews(looks, reviews=reviews)
        + of_compensations(wishes, scripts, reviews=reviews) + of_questions(asking, scripts)
        + (_of_rooms(hotels) if rooms else ()) + _restore(dice("restores", seed))
        + of_timing(scripts, seed) + of_recalls(seed, scripts) + of_requests_beside(seed, scripts),
        _schedule(chance),
        _settings(chance),
        disk_ms=chance.choice((1, 2, 20)), skew_ms=chance.choice((0, 0, chance.randrange(-600_000, 600_000))),
        permits=permits, tellings=tellings, policy=policy, reviews=reviews,
        strangers=30 if dice("strangers", seed).random() < 0.04 else 0,
    ))  # fmt: skip


def _script(chance: random.Random, number: int) -> Script:
    steps: list[Step] = []
    for position in range(STEPS):
        kind = chance.choice(KINDS)
        thing = f"t{chance.randrange(3)}" if kind in {"book", "switch"} else f"r{number}s{position}"
        group = 1 if position in {1, 2} and number % 2 else 0
        steps.append(Step(kind, thing, group, by_model=chance.random() < 0.2))
    return Script(f"run-{number}", tuple(steps))


def _with_trips(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """Some agents end with a transaction instead of a step of its own."""
    return tuple(
        Script(script.id, (*script.steps[:-1], _trip(chance, number))) if chance.random() < 0.35 else script
        for number, script in enumerate(scripts)
    )


def _with_rooms(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """One agent ends with a trip of several rooms, which are confirmed side by side."""
    at = chance.randrange(len(scripts))
    trip = Step("trip", f"r{at}", parts=("room", *(chance.choice(("room", "post", "send")) for _ in range(3))))
    return tuple(
        Script(script.id, (*script.steps[:-1], trip)) if number == at else script
        for number, script in enumerate(scripts)
    )


def _of_rooms(chance: random.Random) -> tuple[Fault, ...]:
    """One room is given away before it is confirmed, and the answers about others are late or lost."""
    refused = chance.randrange(1, 4)
    kinds = ("late", "reply_lost")
    slow = [Fault(chance.choice(kinds), call, "take", 20_000) for call in range(1, 6) if call != refused]
    return (Fault("rejected", refused, "take"), *slow)


def _trip(chance: random.Random, number: int) -> Step:
    parts = [chance.choice(PARTS) for _ in range(chance.randrange(2, 5))]
    return Step("trip", f"r{number}", parts=tuple(parts), fails=chance.random() < 0.4)


def _with_extras(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """Some agents begin with a question to a model, a secret or a time limit in the place of their first step."""
    return tuple(
        Script(script.id, (Step(chance.choice(EXTRAS), f"{script.id}-first"), *script.steps[1:]))
        if chance.random() < 0.35
        else script
        for script in scripts
    )


TOGETHER: Final = ("seat", "room", "gift")
APART: Final = ("pay", "order", "mail", "dare", "dare", "switch")


def _with_plans(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """Some agents execute a plan in the place of their second step, where it stands alone."""
    return tuple(
        Script(script.id, (script.steps[0], _plan(chance, number), *script.steps[2:]))
        if chance.random() < 0.25 and not script.steps[1].group
        else script
        for number, script in enumerate(scripts)
    )


def _plan(chance: random.Random, number: int) -> Step:
    together = chance.random() < 0.5
    acts = [_act(chance, position, TOGETHER if together else APART) for position in range(chance.randrange(2, 5))]
    if together and chance.random() < 0.4:
        acts.append(Act((chance.choice(("post", "send")),), after=len(acts) - 1))
    return Step("plan", f"p{number}", acts=tuple(acts), together=together)


def _act(chance: random.Random, position: int, tools: tuple[str, ...]) -> Act:
    tried = chance.sample(tools, chance.choice((1, 2, 2, 3)))
    after = chance.randrange(position) if position and chance.random() < 0.6 else -1
    return Act(
        tuple(dict.fromkeys(tried)), after, refers=after >= 0 and chance.random() < 0.5,
        perhaps=after >= 0 and chance.random() < 0.2, aborts=chance.random() < 0.25,
    )  # fmt: skip


def _worker(chance: random.Random, number: int) -> WorkerPlan:
    return WorkerPlan(
        "ABC"[number], contained=chance.random() < 0.15, restart_ms=chance.choice((100, 2_000, 30_000)),
        scripts=(number,),
    )  # fmt: skip


def _faults(chance: random.Random, scripts: tuple[Script, ...]) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for kind, (low, high) in PROCESS_FAULTS.items():
        if chance.random() < 0.3:
            rate = 10 ** chance.uniform(-3, -1.7)
            points = (point for point in range(1, MOST_POINTS) if chance.random() < rate)
            faults.extend(Fault(kind, point, ms=chance.randint(low, high)) for point in points)
    used = {kind for script in scripts for step in script.steps for kind in (step.kind, *step.parts)}
    used |= {"mail"} if "hurry" in used else set()
    travels = TRIP_FAULTS.keys() - {"sign"} if used & set(PARTS) else set[str]()
    for service in sorted((used & (CALL_FAULTS.keys() | {"sign"})) | travels):
        faults.extend(of_calls(chance, service, _faults_of(service)))
    return tuple(faults)


def _of_plans(chance: random.Random, scripts: tuple[Script, ...]) -> tuple[Fault, ...]:
    """What goes wrong on the way to the services that plans name."""
    acts = [act for script in scripts for step in script.steps for act in step.acts]
    faults: list[Fault] = []
    for service in sorted({tool for act in acts for tool in act.tools}):
        faults.extend(of_calls(chance, service, _faults_of(service)))
    return tuple(faults)


def _restore(chance: random.Random) -> tuple[Fault, ...]:
    """Now and then an old copy of the journal is put in its place, and trusted again only after a while."""
    if chance.random() >= 0.1:
        return ()
    copied = chance.randrange(2, 150)
    lost = copied + 1 + chance.randrange(60)
    return Fault("backup", copied), Fault("restore", lost, ms=chance.randrange(30_000, 300_000))


def _faults_of(service: str) -> tuple[str, ...]:
    return CALL_FAULTS[service] if service in CALL_FAULTS else TRIP_FAULTS[service]


def _schedule(chance: random.Random) -> Literal["fifo", "random", "priorities"]:
    schedules: tuple[Literal["fifo", "random", "priorities"], ...] = ("fifo", "random", "random", "priorities")
    return chance.choice(schedules)


def _settings(chance: random.Random) -> dict[str, int]:
    """Sometimes settings that make rare paths common: short leases, no patience."""
    changes: dict[str, int] = {}
    if chance.random() < 0.3:
        changes |= {"lease_ms": 3_000, "margin_ms": 500}
    if chance.random() < 0.2:
        changes["hold_ms"] = 500
    if chance.random() < 0.2:
        changes["grace_ms"] = 10
    return changes
