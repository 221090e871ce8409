"""From a seed to a plan with submitted runs. These seeds are a range of their own, so the plans of all others stay."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from beforehand.queues.call_limits import CallLimit, ServiceLimit
from beforehand.queues.limits import HIGHEST, LOWEST, ConcurrencyLimit, DeclaredLimits, QueueLimits, TenantLimits
from simulator.agents.hosts import LATE
from simulator.generator.calls import dice
from simulator.plan import KINDS, Declaration, Fault, Plan, QueueOrder, Script, Step, Submission
from simulator.services.network import STOPS

QUEUED: Final = 2_000_000
"""The first seed of a plan with queues."""
LIMITED: Final = 2_500_000
"""The first seed of a plan with queues in which tools have limits, too."""
HELD: Final = 8_500_000
"""The first seed of a plan with queues in which a process is stopped while it holds a permit that others want."""
QUEUES: Final = ("mail", "bulk", "default")
TENANTS: Final = ("", "acme", "zeta", "omni")
KEY: Final = "{job.about}"
_AGENTS: Final = ("desk", "clerk")
_APART: Final = frozenset({"backup", "restore"})
_CALLS: Final = ("pay", "note", "mail", "look", "order", "ship")
_STRIKES: Final = (
    *(("kill", 0, 0), ("kill", 0, 0), ("pause", 5_000, 120_000), ("pause", 5_000, 120_000)),
    *(("shutdown", 0, 0), ("power", 0, 0), ("journal_lost", 1_000, 60_000), ("deploy", 0, 0)),
)
_MINUTE: Final = 60_000


def with_queues(plan: Plan, seed: int) -> Plan:
    """The plan with plain steps alone, and with runs that are submitted beside those that are started."""
    chance = dice("queues", seed)
    started = tuple(_plain(one) for one in plan.scripts)
    count = chance.randrange(5, 15)
    scripts = (*started, *(_script(chance, number) for number in range(count)))
    submissions = _submissions(chance, len(started), count)
    declarations = _declarations(chance)
    if seed >= LIMITED:  # every process knows from its first call on which tools have a limit
        tools, services = _tools(dice("tool limits", seed)), _services(dice("service limits", seed))
        tenants = _shares(dice("tenant limits", seed), tools, services)
        declarations = tuple(
            replace(one, limits=replace(_with_shares(one.limits, tenants), tools=tools, services=services))
            for one in declarations
        )
    used = {step.kind for script in scripts for step in script.steps} | {"people", "review", *LATE}
    faults = [one for one in plan.faults if one.kind not in _APART and (not one.service or one.service in used)]
    faults += [_strike(chance) for _ in range(chance.choice((0, 1, 2, 4, 8)))]
    settings = plan.settings | ({"recover_at_once": chance.randrange(1, 6)} if chance.random() < 0.4 else {})
    names = [scripts[one.script].id for one in submissions]
    orders = _orders(chance, names)
    undeclared = tuple(n for n in range(len(plan.workers)) if chance.random() < 0.25 and seed < LIMITED)
    if len(undeclared) == len(plan.workers):  # some process has to declare the queues
        undeclared = undeclared[1:]
    return replace(
        plan, seed=seed, scripts=scripts, faults=tuple(faults), permits=(), tellings=(), policy=False, reviews=False,
        strangers=0, settings=settings, submissions=submissions, declarations=declarations,
        orders=orders, undeclared=undeclared,
    )  # fmt: skip


def with_held_permits(plan: Plan, seed: int) -> Plan:
    """The plan with a narrow limit of hauls, in one of which a process stands still where others see that it lives."""
    chance = dice("held permits", seed)
    at_once, apart = chance.choice((1, 1, 1, 2)), chance.random() < 0.5
    tools = {"haul": CallLimit(at_once)} if apart else {}
    yard = {} if apart else {"yard": ServiceLimit(at_once, tools=("haul", chance.choice(_CALLS)))}
    stop = Fault(chance.choice(sorted(STOPS)), chance.randrange(1, 4), "haul", chance.randrange(15, 40) * _MINUTE)

    def narrow(limits: DeclaredLimits) -> DeclaredLimits:
        return replace(limits, tools=limits.tools | tools, services=limits.services | yard)

    return replace(
        plan, faults=(*plan.faults, stop), orders=(),
        workers=tuple(replace(one, contained=False) for one in plan.workers),
        scripts=tuple(_hauling(chance, one) if chance.random() < 0.6 else one for one in plan.scripts),
        submissions=tuple(replace(one, about="") for one in plan.submissions),
        declarations=tuple(replace(one, limits=narrow(one.limits)) for one in plan.declarations),
    )  # fmt: skip


def _hauling(chance: random.Random, script: Script) -> Script:
    at = chance.randrange(len(script.steps) + 1)
    return replace(script, steps=(*script.steps[:at], Step("haul", f"{script.id}-haul"), *script.steps[at:]))


def _tools(chance: random.Random) -> dict[str, CallLimit]:
    """Limits of some tools: narrow ones, with rates that let every run end in some hours."""
    return {
        name: CallLimit(chance.choice((1, 1, 2, 3)), chance.choice(("", "", "6/minute", "1/second")))
        for name in chance.sample(_CALLS, chance.randrange(1, 4))
    }


def _services(chance: random.Random) -> dict[str, ServiceLimit]:
    """In half of the plans a service that several tools reach."""
    if chance.random() < 0.5:
        return {}
    tools = tuple(chance.sample(_CALLS, chance.randrange(3, 6)))
    return {"bank": ServiceLimit(chance.choice((1, 1, 2)), chance.choice(("", "", "1/second")), tools=tools)}


def _shares(
    chance: random.Random, tools: Mapping[str, CallLimit], services: Mapping[str, ServiceLimit]
) -> dict[str, TenantLimits]:
    """Shares of tenants in the limited tools and services."""
    return {
        name: TenantLimits(
            tools={tool: CallLimit(chance.choice((1, 2))) for tool in tools if chance.random() < 0.4},
            services={service: CallLimit(chance.choice((1, 2))) for service in services if chance.random() < 0.6},
        )
        for name in (*TENANTS[1:], "*")
        if chance.random() < 0.4
    }


def _with_shares(limits: DeclaredLimits, shares: Mapping[str, TenantLimits]) -> DeclaredLimits:
    """The limits with these shares of calls beside those of runs."""
    tenants = limits.tenants | {
        name: replace(share, concurrency=limits.tenants.get(name, share).concurrency) for name, share in shares.items()
    }
    return replace(limits, tenants=tenants)


def _plain(script: Script) -> Script:
    return Script(script.id, tuple(step for step in script.steps if step.kind in KINDS)[:2])


def _script(chance: random.Random, number: int) -> Script:
    """A few short steps. Some of them wait: in a short wait the run keeps its slot, in a long one it gives it back."""
    steps: list[Step] = []
    for position in range(chance.choice((1, 1, 2, 3))):
        thing = f"q{number}s{position}"
        if chance.random() < 0.45:
            low, high = (200, 20_000) if chance.random() < 0.7 else (_MINUTE, 10 * _MINUTE)
            steps.append(Step("rest", thing, ms=chance.randrange(low, high)))
        else:
            steps.append(Step(chance.choice(_CALLS), thing))
    return Script(f"queued-{number}", tuple(steps))


def _submissions(chance: random.Random, first: int, count: int) -> tuple[Submission, ...]:
    burst, keys = chance.random() < 0.5, chance.randrange(1, 5)
    tenants, queues = chance.sample(TENANTS, chance.randrange(1, 4)), chance.sample(QUEUES, chance.randrange(1, 4))
    return tuple(
        Submission(
            first + number,
            chance.choice(_AGENTS),
            chance.choice(queues),
            _workers(chance),
            tenant=chance.choice(tenants),
            priority=chance.choice((0, 0, 0, chance.randint(LOWEST, HIGHEST))),
            about=f"k{chance.randrange(keys)}",
            at_ms=chance.randrange(2_000 if burst else 4 * _MINUTE),
            delay_ms=chance.choice((0, 0, 0, 0, chance.randrange(5 * _MINUTE))),
            joins=chance.random() < 0.25,
            differs=chance.random() < 0.15,
        )
        for number in range(count)
    )


def _workers(chance: random.Random) -> tuple[int, ...]:
    """The workers that submit it: one of them, or two submit the same run, or one submits it twice."""
    first = chance.randrange(3)
    return (first,) if chance.random() < 0.7 else (first, chance.randrange(3))


def _declarations(chance: random.Random) -> tuple[Declaration, ...]:
    later = sorted(chance.randrange(1_000, 6 * _MINUTE) for _ in range(chance.choice((0, 0, 1, 1, 2, 3))))
    return tuple(Declaration(_limits(chance), at) for at in (0, *later))


def _limits(chance: random.Random) -> DeclaredLimits:
    agents = {name: _share(chance, 4) for name in _AGENTS if chance.random() < 0.3}
    tenants = {name: TenantLimits(chance.randint(1, 3)) for name in TENANTS[1:] if chance.random() < 0.25}
    return DeclaredLimits(
        {name: _queue(chance) for name in QUEUES}, agents, tenants | {"*": TenantLimits(chance.choice((3, None)))}
    )


def _share(chance: random.Random, most: int) -> ConcurrencyLimit:
    return ConcurrencyLimit(chance.randint(1, most))


def _queue(chance: random.Random) -> QueueLimits:
    concurrency = chance.choice((None, 1, 2, 3, 4))
    per_tenant = chance.choice((None, None, 1, 2))
    keyed = chance.random() < 0.6
    per_key = chance.choice((1, 1, 1, 2)) if keyed else 1
    top = concurrency or 9
    return QueueLimits(
        concurrency,
        None if per_tenant is None else min(per_tenant, top),
        KEY if keyed else "",
        min(per_key, top),
        chance.choice((100_000, 100_000, 1, 2, 4)),
        chance.choice((1, 1_000, _MINUTE, 10 * _MINUTE)),
    )


def _strike(chance: random.Random) -> Fault:
    kind, low, high = chance.choice(_STRIKES)
    return Fault(kind, chance.randrange(1, 600), ms=chance.randint(low, high))


def _orders(chance: random.Random, names: list[str]) -> tuple[QueueOrder, ...]:
    """Some runs are cancelled, and some are paused for a while."""
    found: list[QueueOrder] = []
    for name in names:
        drawn, at = chance.random(), chance.randrange(5 * _MINUTE)
        later = at + chance.randrange(1_000, 5 * _MINUTE)
        if drawn < 0.08:
            found.append(QueueOrder(name, "cancel", at))
        elif drawn < 0.2:
            found += [QueueOrder(name, "pause", at), QueueOrder(name, "unpause", later)]
    return tuple(found)
