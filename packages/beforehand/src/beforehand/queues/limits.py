"""The contents of `queues.yaml`: limits of runs and of calls, and shared budgets; their check.

Limits of runs are those of queues, agents and tenants, and limits of calls those of tools, services and models.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from beforehand.model.alike import nearest, unknown_fields
from beforehand.model.errors import UsageError
from beforehand.model.ids import can_name
from beforehand.model.money import Money, cost_counter, written_money
from beforehand.policies import MOST, milliseconds, money_fault, written_duration
from beforehand.queues.call_limits import AppliedLimit, CallLimit, LimitedCall, ModelLimit, ServiceLimit
from beforehand.queues.modes import OPEN, QueueMode
from beforehand.queues.zones import zone_fault

DEFAULT: Final = "default"
"""The queue of a run that is submitted without one. It needs no declaration."""
ANY: Final = "*"
"""The entry under `tenants` that holds for every tenant without an entry of its own."""
LOWEST, HIGHEST = -9, 9
"""The range of priorities. It is small because each priority in use is a lane of its own in the journal's index."""
STREAM: Final = "queues"
"""The ledger stream of declarations, of which the newest holds, and of commands about queues (`modes.py`)."""
BEGUN: Final = "begun"
"""The key of the entry that a first submission makes where no limits are declared. It holds only if it is alone."""


class QueueLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limits of one queue. None means unlimited.

    `concurrency` and `per_tenant` count runs that a worker drives. `key` names what a run is about, from its input;
    `per_key` counts runs that have begun and not ended, also while they wait. `capacity` counts runs that wait to
    begin. Each `ageing_ms` of waiting counts as much as one step of priority.
    """

    concurrency: int | None = None
    per_tenant: int | None = None
    key: str = ""
    per_key: int = 1
    capacity: int = 100_000
    ageing_ms: int = 60_000


class ConcurrencyLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limit of one agent, or one tenant, over all queues."""

    concurrency: int | None = None


class TenantLimits(ConcurrencyLimit, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limits of one tenant: of its runs, and of the calls that these make of each tool, service and model."""

    tools: dict[str, CallLimit] = {}
    services: dict[str, CallLimit] = {}
    models: dict[str, ModelLimit] = {}


SHARED_LIMITS: Final = ("tokens", "model_calls", "effects")


class SharedBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The use that is permitted to all runs of an agent, a tenant, or both together, in one day or hour of a time zone.

    Without an agent and a tenant it covers every run. A limit that is None does not hold. Once a limit is reached, no
    call that counts under it begins: with `then="wait"` the run is suspended until that is over or the limit is
    raised, and with `then="stop"` the call raises `BudgetExceeded`. The limits are those of `RunBudget`.
    """

    agent: str = ""
    tenant: str = ""
    tokens: int | None = None
    model_calls: int | None = None
    effects: int | None = None
    cost: str | None = None
    unpriced: str | None = None
    per: Literal["day", "hour"] = "day"
    zone: str = "UTC"
    then: Literal["wait", "stop"] = "wait"

    def covers(self, agent: str, tenant: str) -> bool:
        """True if it covers the runs of this agent for this tenant."""
        return self.agent in {"", agent} and self.tenant in {"", tenant}

    @property
    def money(self) -> Money | None:
        """The limit of the cost, if there is one."""
        return None if self.cost is None else written_money(self.cost)

    @property
    def counters(self) -> tuple[str, ...]:
        """The names of its counters; that of the cost has the currency in its name."""
        return self.of_models if self.effects is None else (*self.of_models, "effects")

    @property
    def of_models(self) -> tuple[str, ...]:
        """Those that calls of models are charged to."""
        return ("tokens", "model_calls", *(() if self.money is None else (cost_counter(self.money.currency),)))

    def most(self, counter: str) -> int | None:
        """How much of this limit the runs may use together, of a cost in billionths; None if it does not hold."""
        if counter in SHARED_LIMITS:
            return {"tokens": self.tokens, "model_calls": self.model_calls, "effects": self.effects}[counter]
        money = self.money
        return money.units if money is not None and cost_counter(money.currency) == counter else None


class DeclaredLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All declared limits: the contents of `queues.yaml`."""

    queues: dict[str, QueueLimits] = {}
    agents: dict[str, ConcurrencyLimit] = {}
    tenants: dict[str, TenantLimits] = {}
    tools: dict[str, CallLimit] = {}
    services: dict[str, ServiceLimit] = {}
    models: dict[str, ModelLimit] = {}
    budgets: dict[str, SharedBudget] = {}

    def by_name(self) -> dict[str, object]:
        """Everything that is declared, by its section and its name there."""
        sections = msgspec.structs.asdict(self).items()
        return {f"{section}/{name}": one for section, some in sections for name, one in some.items()}

    def queue(self, name: str) -> QueueLimits:
        """The limits of a queue; those of one that is no longer declared are the defaults."""
        return self.queues.get(name) or _UNLIMITED

    def of_agent(self, name: str) -> int | None:
        """How many runs of this agent may be driven at once."""
        return self.agents.get(name, _NO_SHARE).concurrency

    def of_tenant(self, name: str) -> int | None:
        """How many runs of this tenant may be driven at once."""
        return self.tenant(name).concurrency

    def tenant(self, name: str) -> TenantLimits:
        """The limits of this tenant: its own entry, or else that of every other tenant."""
        return self.tenants.get(name) or self.tenants.get(ANY) or _NO_TENANT_LIMITS

    def limited_agents(self) -> dict[str, str]:
        """The agents that a limit or a budget names, by the beginning of a remark about them."""
        budgets = (one.agent for one in self.budgets.values() if one.agent)
        return {f"the limit of agent {name} concerns no run": name for name in (*self.agents, *budgets)}

    def limited_tools(self) -> frozenset[str]:
        """The tools of which calls need a permit. A call of any other asks for none."""
        services = (name for one in self.services.values() for name in one.tools)
        return frozenset({*self.tools, *services, *(name for one in self.tenants.values() for name in one.tools)})

    def limited_models(self) -> frozenset[str]:
        """The models of which calls need a permit."""
        return frozenset({*self.models, *(name for one in self.tenants.values() for name in one.models)})

    def of_call(self, call: LimitedCall) -> tuple[AppliedLimit, ...]:
        """All limits that this call is under: of services, tool and models, for all tenants and for its own."""
        names = [f"service {name}" for name, one in self.services.items() if call.tool in one.tools]
        names += [f"tool {call.tool}"] if call.tool else []
        names += [name for model in call.models for name in (f"model {model}", f"tokens of {model}")]
        tenant = f"tenant {call.tenant}" if call.tenant else _NO_TENANT
        own = [_applied(name, one, call) for name, one in self._named(f"{one} / {tenant}" for one in names)]
        shared = [_applied(name, one, call) for name, one in self._named(names)]
        # A `Retry-After` concerns the calls of all tenants: those of each model, and of a tool without services.
        told = {one.name.partition(" / ")[0] for one in own if one.name.startswith("model ")}
        if own and not shared and call.tool:
            told.add(names[-1])
        told -= {one.name for one in shared}
        return *shared, *(AppliedLimit(name, _NO_CALL_LIMIT) for name in sorted(told)), *own

    def _named(self, names: Iterable[str]) -> list[tuple[str, CallLimit]]:
        found = ((name, self.named(name)) for name in names)
        return [(name, one) for name, one in found if one is not None]

    def named(self, name: str) -> CallLimit | None:
        """The limit of calls of this name, such as `service stripe / tenant acme`; None if it is not declared."""
        of_what, _, tenant = name.partition(" / ")
        kind, _, one = of_what.partition(" ")
        holder = self.tenant("" if tenant == _NO_TENANT else tenant.removeprefix("tenant ")) if tenant else self
        return dict(_kinds(holder))[kind].get(one)

    def names_of_calls(self) -> set[str]:
        """The names of all limits of calls, except for those of tenants that `*` stands for."""
        found = {f"{kind} {name}" for kind, some in _kinds(self) for name in some}
        for tenant, own in self.tenants.items():
            if tenant != ANY:
                found |= {f"{kind} {name} / tenant {tenant}" for kind, some in _kinds(own) for name in some}
        return found

    def budgets_of(self, agent: str, tenant: str) -> dict[str, SharedBudget]:
        """The shared budgets that cover a run of this agent for this tenant."""
        return {name: one for name, one in self.budgets.items() if one.covers(agent, tenant)}

    def check_names(self, queue: str, tenant: str) -> None:
        """Raise `UsageError` for a queue, or where tenants are declared a tenant, that does not exist."""
        if queue != DEFAULT and queue not in self.queues:
            raise _unknown("queue", queue, [*self.queues, DEFAULT])
        if tenant and self.tenants and tenant not in self.tenants and ANY not in self.tenants:
            raise _unknown("tenant", tenant, list(self.tenants))


class Declaration(msgspec.Struct, frozen=True):
    """The limits and modes in force. `entry` is the newest ledger entry of `STREAM`, or 0 before the first one.

    A journal compares it in the transaction that gives slots or stores a run, so limits hold from their commit on.
    `budgeted`: budgets are, or once were, among the limits, so runs may wait for one.
    """

    limits: DeclaredLimits = DeclaredLimits()
    entry: int = 0
    modes: Mapping[str, QueueMode] = {}
    budgeted: bool = False

    def mode(self, queue: str) -> QueueMode:
        """The mode of a queue."""
        return self.modes.get(queue, OPEN)

    @property
    def paused(self) -> frozenset[str]:
        """The queues that start no run that has not begun."""
        return frozenset(name for name, mode in self.modes.items() if mode.paused is not None)

    def check_known(self, queue: str) -> None:
        """Raise `UsageError` for a queue that is not declared and has no mode."""
        if queue != DEFAULT and queue not in self.limits.queues and queue not in self.modes:
            raise _unknown("queue", queue, [*self.limits.queues, DEFAULT], "nothing was changed")


_UNLIMITED: Final = QueueLimits()
_NO_SHARE: Final = ConcurrencyLimit()
_NO_TENANT_LIMITS: Final = TenantLimits()
_NO_CALL_LIMIT: Final = CallLimit()
_NO_TENANT: Final = "no tenant"
TOKENS: Final = "tokens of "
"""How the names of limits of tokens begin. Under these a call counts as many units as it uses tokens."""
_Entry: TypeAlias = type[QueueLimits | ConcurrencyLimit | CallLimit | SharedBudget]
OF_CALLS: Final[Mapping[str, type[CallLimit]]] = {"tools": CallLimit, "services": CallLimit, "models": ModelLimit}
"""The sections of limits of calls. A tenant has the same ones, for the calls of its runs."""
_SECTIONS: Final[Mapping[str, _Entry]] = {
    "queues": QueueLimits,
    "agents": ConcurrencyLimit,
    "tenants": TenantLimits,
    "tools": CallLimit,
    "services": ServiceLimit,
    "models": ModelLimit,
    "budgets": SharedBudget,
}


class LimitsError(UsageError):
    """Limits or schedules with mistakes. `faults` lists all of them, each with its place."""

    def __init__(self, where: str, faults: tuple[str, ...]) -> None:
        count = f"{len(faults)} faults" if len(faults) > 1 else "a fault"
        super().__init__(
            f"{where} has {count}: {'; '.join(faults)}", known="nothing was changed", next_step=f"correct {where}"
        )
        self.faults = faults


def read_limits(given: object, where: str) -> DeclaredLimits:
    """DeclaredLimits from the plain values of a file. Raises `LimitsError` naming every fault."""
    if not isinstance(given, dict):
        raise LimitsError(
            where, ("it holds no mapping with queues, agents, tenants, tools, services, models or budgets",)
        )
    whole = cast("dict[str, Any]", given)
    faults = list(unknown_fields(whole, (*DeclaredLimits.__struct_fields__, "schedules"), ""))
    sections: dict[str, dict[str, object]] = {}
    for section, kind in _SECTIONS.items():
        entries: object = whole.get(section, {})
        sections[section] = _entries(entries, kind, section, faults)
    if not faults:
        limits = msgspec.convert(sections, DeclaredLimits)
        faults += contradictions(limits)
        if not faults:
            return limits
    raise LimitsError(where, tuple(faults))


def contradictions(limits: DeclaredLimits) -> list[str]:
    """Every limit that is out of range, or that another one makes useless."""
    found: list[str] = []
    for section in _SECTIONS:
        names: Mapping[str, object] = getattr(limits, section)
        wrong = [name for name in names if not (can_name_model(name) if section == "models" else can_name(name))]
        found += [f"{section}.{name[:40]!r} cannot be a name" for name in wrong]
    for name, queue in limits.queues.items():
        counts = {field: getattr(queue, field) for field in ("concurrency", "per_tenant", "per_key", "capacity")}
        found += [f"queues.{name}.{field}={count}: it is at least 1" for field, count in _below_one(counts)]
        if queue.ageing_ms < 1:
            found.append(f"queues.{name}.ageing: it is longer than zero, or a low priority would never start")
        if (fault := template_fault(queue.key)) is not None:
            found.append(f"queues.{name}.key={queue.key!r} cannot be read: {fault}")
        if queue.per_key != 1 and not queue.key:
            found.append(f"queues.{name}.per_key={queue.per_key} without key: name what is counted")
        parts = {field: counts[field] or 0 for field in ("per_tenant", "per_key")}
        whole = queue.concurrency or sum(parts.values())
        above = [field for field, part in parts.items() if part > whole]
        found += [f"queues.{name}.{field}={parts[field]} is above concurrency={whole}" for field in above]
    for section, shares in (("agents", limits.agents), ("tenants", limits.tenants)):
        counts = {name: share.concurrency for name, share in shares.items()}
        found += [f"{section}.{name}.concurrency={count}: it is at least 1" for name, count in _below_one(counts)]
    found += _faults_of_calls(limits)
    found += [f"budgets.{name}{fault}" for name, one in limits.budgets.items() for fault in _faults(one, limits)]
    return found or list(_two_currencies(limits.budgets))


def template_fault(template: str) -> str | None:
    """The reason why a template with fields in braces cannot be filled, whatever the input is; None for none."""
    try:
        for _, field, spec, _ in string.Formatter().parse(template):
            format("", spec or "" if field is not None else "")  # the values of fields are texts
    except ValueError as error:
        return str(error)
    return None


def removed(before: DeclaredLimits, after: DeclaredLimits) -> list[str]:
    """One remark if a declaration has no more some of the limits that were declared before."""
    gone = [
        f"{section} {', '.join(names)}"
        for section in _SECTIONS
        if (names := sorted(getattr(before, section).keys() - getattr(after, section).keys()))
    ]
    return [f"limits that were declared before are removed: {'; '.join(gone)}"] if gone else []


def _two_currencies(budgets: Mapping[str, SharedBudget]) -> Iterator[str]:
    """Every pair of budgets in two currencies that can cover one run: the price of a call has one."""
    priced = [(name, one, money.currency) for name, one in budgets.items() if (money := one.money) is not None]
    for (name, one, currency), (other, second, another) in combinations(priced, 2):
        meet = all("" in pair or pair[0] == pair[1] for pair in zip(_scope(one), _scope(second), strict=True))
        if currency != another and meet:
            yield f"budgets.{name}.cost is in {currency}, and budgets.{other}.cost, for the same runs, in {another}"


def _scope(one: SharedBudget) -> tuple[str, str]:
    return one.agent, one.tenant


def _faults(one: SharedBudget, limits: DeclaredLimits) -> Iterator[str]:
    """Every fault of a shared budget."""
    for field, name in (("agent", one.agent), ("tenant", one.tenant)):
        if name and (not can_name(name) or name == ANY):
            yield f".{field}={name[:40]!r}: it names one {field}; leave it out to cover every {field}"
    if one.tenant and limits.tenants and one.tenant not in limits.tenants and ANY not in limits.tenants:
        near = nearest(one.tenant, limits.tenants)
        yield f".tenant={one.tenant[:40]!r}: it is not declared under tenants" + (
            f"; did you mean {near}?" if near else ""
        )
    declared = {limit: one.most(limit) for limit in SHARED_LIMITS}
    if all(most is None for most in declared.values()) and one.cost is None:
        yield f": it needs a limit: {', '.join(SHARED_LIMITS)}, cost"
    if (fault := money_fault(one.cost, one.unpriced)) is not None:
        yield f".{fault}"
    for limit, most in declared.items():
        if most is not None and not 0 <= most <= MOST:
            yield f".{limit}={most}: a limit is a whole number from 0 to {MOST}"
    if (fault := zone_fault(one.zone)) is not None:
        yield f".zone: {fault}"


def can_name_model(name: str) -> bool:
    """True if it may be the name of a model in a limit. Many such names have slashes in them."""
    return " / " not in name and can_name(name.replace("/", "-"))


def _applied(name: str, limit: CallLimit, call: LimitedCall) -> AppliedLimit:
    return AppliedLimit(name, limit, " / " not in name, call.tokens if name.startswith(TOKENS) else 1)


def _kinds(holder: DeclaredLimits | TenantLimits) -> tuple[tuple[str, Mapping[str, CallLimit]], ...]:
    """The limits of calls by kind, for all tenants or for one."""
    tokens = {f"of {name}": one.of_tokens for name, one in holder.models.items() if one.tokens}
    return ("tool", holder.tools), ("service", holder.services), ("model", holder.models), ("tokens", tokens)


def _faults_of_calls(limits: DeclaredLimits) -> Iterator[str]:
    """Every limit of calls that is out of range, and every service that no call can concern."""
    declared = [(f"{kind}s.{name}", one) for kind, some in _kinds(limits)[:-1] for name, one in some.items()]
    for tenant, own in limits.tenants.items():
        where = f"tenants.{tenant}"
        of_own = [(f"{where}.{kind}s", name, one) for kind, some in _kinds(own)[:-1] for name, one in some.items()]
        yield from (f"{place}.{name[:40]!r} cannot be a name" for place, name, _ in of_own if not can_name_model(name))
        yield from (_unknown_service(where, name, limits) for name in own.services if name not in limits.services)
        declared += [(f"{place}.{name}", one) for place, name, one in of_own]
    yield from (f"{where}{fault}" for where, one in declared for fault in one.faults())
    for name, service in limits.services.items():
        if not service.tools:
            yield f"services.{name}.tools: name the tools that reach it, such as tools: [charge_card, refund]"
        found = Counter(service.tools)
        yield from (f"services.{name}.tools names {tool!r} twice" for tool, count in found.items() if count > 1)


def _unknown_service(where: str, name: str, limits: DeclaredLimits) -> str:
    near = nearest(name, list(limits.services))
    hint = f"did you mean {near}?" if near else f"declare it with its tools: services: {{{name}: ...}}"
    return f"{where}.services.{name}: the service does not exist; {hint}"


def _below_one(counts: Mapping[str, int | None]) -> Iterator[tuple[str, int]]:
    for name, count in counts.items():
        if count is not None and count < 1:
            yield name, count


def _entries(given: object, kind: _Entry, where: str, faults: list[str]) -> dict[str, object]:
    """The entries of one section, by name."""
    if not isinstance(given, dict):
        faults.append(f"{where}: it is a mapping of names; leave it out if it has none")
        return {}
    named = cast("dict[str, object]", given).items()
    return {str(name): _entry(fields, kind, f"{where}.{name}", faults) for name, fields in named}


def _entry(given: object, kind: _Entry, where: str, faults: list[str]) -> object:
    """The fields of one entry, with its duration in milliseconds."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        faults.append(f"{where}: it is a mapping of limits")
        return {}
    fields = dict(cast("dict[str, Any]", given))
    if kind is QueueLimits and "ageing" in fields:
        ageing = written_duration(str(fields.pop("ageing")))
        if ageing is None:
            faults.append(f"{where}.ageing: write a duration such as 30s, 5m or 1h")
        else:
            fields["ageing_ms"] = milliseconds(ageing)
    if issubclass(kind, CallLimit):  # `rate: 100` is a number in YAML: its fault says what to write
        fields |= {name: str(fields[name]) for name in ("rate", "tokens") if name in fields}
    if kind is TenantLimits:
        for section in [name for name in OF_CALLS if name in fields]:
            fields[section] = _entries(fields[section], OF_CALLS[section], f"{where}.{section}", faults)
    known = tuple(name.replace("ageing_ms", "ageing") for name in kind.__struct_fields__)
    faults += unknown_fields(cast("dict[str, Any]", given), known, f"{where}.")
    try:
        msgspec.convert({name: value for name, value in fields.items() if name in kind.__struct_fields__}, kind)
    except msgspec.ValidationError as error:
        faults.append(f"{where}: {error}")
    return fields


def _unknown(what: str, name: str, known: list[str], nothing: str = "nothing was submitted") -> UsageError:
    near = nearest(name, known)
    return UsageError(
        f"{what} {name!r} does not exist",
        known=f"declared {what}s: {', '.join(sorted(known))}; {nothing}",
        next_step=f"did you mean {near}?" if near else f"declare it in queues.yaml, or name another {what}",
    )
