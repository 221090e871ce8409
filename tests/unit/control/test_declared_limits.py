"""What `queues.yaml` may declare, as a table of the last values that are accepted and the first that are not."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand.errors import UsageError
from beforehand.policies import MOST
from beforehand.queues.call_limits import CallLimit, ModelLimit
from beforehand.queues.limits import (
    ConcurrencyLimit,
    Declaration,
    DeclaredLimits,
    LimitsError,
    QueueLimits,
    SharedBudget,
    TenantLimits,
    contradictions,
    read_limits,
    removed,
)
from beforehand.queues.modes import QueueMode, Restriction

CALLS: list[tuple[dict[str, Any], str]] = [
    ({"at_once": 1}, ""),
    ({"at_once": 0}, ".at_once=0: it is at least 1"),
    ({"rate": "1/second"}, ""),
    ({"rate": "0/second"}, ".rate='0/second' permits no call"),
    ({"rate": "1000/second"}, ""),
    ({"rate": "1001/second"}, ".rate='1001/second': it is at most 1000/second"),
    ({"rate": "60000/minute"}, ""),
    ({"rate": "60001/minute"}, ".rate='60001/minute': it is at most 1000/second"),
    ({"rate": " 2 / day "}, ""),
    ({"rate": "2/week"}, ".rate='2/week': write a rate such as"),
    ({"rate": "1/second", "burst": 0}, ".burst=0: it is at least 1"),
    ({"burst": 1}, ""),
    ({"burst": 2}, ".burst=2 without rate"),
    ({"rate": "1/second", "burst": 2}, ""),
    ({"rate": "1/second", "burst": 2, "at_once": 2}, ""),
    ({"rate": "1/second", "burst": 3, "at_once": 2}, ".burst=3 is above at_once=2"),
    ({"rate": "1/second", "burst": 2, "at_once": 1}, ".burst=2 is above at_once=1"),
]
TOKENS: list[tuple[dict[str, Any], str]] = [
    ({"tokens": "1/day"}, ""),
    ({"tokens": "0/day"}, ".tokens='0/day': write a rate of at least one token"),
    ({"tokens": "1000000/second"}, ""),
    ({"tokens": "1100000/second"}, ".tokens='1100000/second': it is at most 1000000/second"),
    ({"tokens": "1/day", "token_burst": 2}, ""),
    ({"tokens": "1/day", "token_burst": 0}, ".token_burst=0: it is at least 1, beside tokens"),
    ({"token_burst": 1}, ""),
    ({"token_burst": 0}, ".token_burst=0: it is at least 1, beside tokens"),
    ({"token_burst": 2}, ".token_burst=2: it is at least 1, beside tokens"),
    ({"tokens": "1/day", "rate": "1/day", "burst": 9, "token_burst": 99}, ""),
]
QUEUES: list[tuple[dict[str, Any], str]] = [
    *(({"key": "k", field: 1}, "") for field in ("concurrency", "per_tenant", "per_key", "capacity")),
    *(
        ({"key": "k", field: 0}, f".{field}=0: it is at least 1")
        for field in ("concurrency", "per_tenant", "per_key", "capacity")
    ),
    ({"ageing": "1s"}, ""),
    ({"ageing": "0s"}, ".ageing: it is longer than zero"),
    ({"concurrency": 2, "per_tenant": 2}, ""),
    ({"concurrency": 2, "per_tenant": 3}, ".per_tenant=3 is above concurrency=2"),
    ({"concurrency": 2, "key": "k", "per_key": 2}, ""),
    ({"concurrency": 2, "key": "k", "per_key": 3}, ".per_key=3 is above concurrency=2"),
    ({"per_tenant": 3, "key": "k", "per_key": 9}, ""),
    ({"per_key": 2}, ".per_key=2 without key"),
    ({"capacity": 1, "concurrency": 9}, ""),
]
BUDGETS: list[tuple[dict[str, Any], str]] = [
    *(({field: most}, "") for field in ("tokens", "model_calls", "effects") for most in (0, MOST)),
    *(({field: most}, f".{field}={most}: a limit is a whole number from 0 to {MOST}")
      for field in ("tokens", "model_calls", "effects") for most in (-1, MOST + 1)),
    ({"cost": "0 EUR"}, ""),
    ({}, ": it needs a limit"),
    ({"agent": "desk"}, ": it needs a limit"),
]  # fmt: skip
BANK = {"services": {"bank": {"tools": ["charge"]}}}


def faults_of(document: dict[str, Any]) -> tuple[str, ...]:
    try:
        read_limits(document, "queues.yaml")
    except LimitsError as error:
        return error.faults
    return ()


@pytest.mark.parametrize(
    ("beside", "where", "rows"),
    [
        ({}, "queues.mail", QUEUES),
        ({}, "agents.desk", [({"concurrency": 1}, ""), ({"concurrency": 0}, ".concurrency=0: it is at")]),
        ({}, "tenants.acme", [({"concurrency": 1}, ""), ({"concurrency": 0}, ".concurrency=0: it is at")]),
        ({}, "tools.charge", CALLS),
        ({"tools": ["charge"]}, "services.bank", CALLS),
        ({}, "models.acme/big", CALLS + TOKENS),
        ({}, "tenants.acme.tools.charge", CALLS),
        ({}, "tenants.acme.services.bank", CALLS),
        ({}, "tenants.acme.models.acme/big", CALLS + TOKENS),
        ({}, "budgets.all", BUDGETS),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_declaration_is_accepted_up_to_its_bounds(
    beside: dict[str, Any], where: str, rows: list[tuple[dict[str, Any], str]]
):
    for fields, fault in rows:
        document: dict[str, Any] = {**beside, **fields}
        for name in reversed(where.split(".")):
            document = {name: document}
        if where.startswith("tenants.acme.services"):
            document |= BANK
        faults = faults_of(document)
        assert len(faults) == bool(fault), (fields, faults)
        assert all(one.startswith(where + fault) for one in faults), (fields, faults)


@pytest.mark.parametrize(
    ("rate", "apart_ns"),
    [
        ("", 0), ("often", 0), ("1/second", 10**9), ("3/second", 333_333_334), ("1000/second", 10**6), ("7/minute", 8_571_428_572),
        ("1/minute", 60 * 10**9), ("20/hour", 180 * 10**9), ("1/day", 86_400 * 10**9), ("500/day", 172_800_000_000),
    ],
)  # fmt: skip
def test_calls_at_a_rate_are_so_far_apart_and_never_closer(rate: str, apart_ns: int):
    assert CallLimit(rate=rate).apart_ns == apart_ns
    assert ModelLimit(tokens=rate, token_burst=7).of_tokens == CallLimit(rate=rate, burst=7)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ({}, {}, True),
        ({"agent": "desk"}, {"agent": "desk"}, True),
        ({"agent": "desk"}, {"agent": "clerk"}, False),
        ({"agent": "desk"}, {}, True),
        ({"agent": "desk"}, {"tenant": "acme"}, True),
        ({"tenant": "acme"}, {"tenant": "acme"}, True),
        ({"tenant": "acme"}, {"tenant": "other"}, False),
        ({"tenant": "acme"}, {}, True),
        ({"agent": "desk", "tenant": "acme"}, {"agent": "desk", "tenant": "other"}, False),
        ({"agent": "desk", "tenant": "acme"}, {"agent": "clerk", "tenant": "acme"}, False),
        ({"agent": "desk", "tenant": "acme"}, {"tenant": "acme"}, True),
        ({"agent": "desk", "tenant": "acme"}, {"agent": "clerk"}, False),
    ],
)
@pytest.mark.parametrize("currencies", [("EUR", "USD"), ("EUR", "EUR"), ("EUR", None)])
def test_two_budgets_of_the_same_runs_have_one_currency(
    one: dict[str, str], other: dict[str, str], meet: bool, currencies: tuple[str, str | None]
):
    """Two budgets meet if there is a run that both cover. One without a cost has no currency."""
    first, second = currencies
    budgets = {
        "one": SharedBudget(**one, cost=f"1 {first}"),
        "other": SharedBudget(**other, tokens=1, cost=None if second is None else f"1 {second}"),
    }
    runs = [(agent, tenant) for agent in ("desk", "clerk", "x") for tenant in ("acme", "other", "")]
    assert meet == any(all(budget.covers(*run) for budget in budgets.values()) for run in runs)
    faults = contradictions(DeclaredLimits(budgets=budgets))
    assert len(faults) == (meet and second == "USD"), faults
    assert all(fault.startswith("budgets.one.cost is in EUR, and budgets.other.cost") for fault in faults)


COVERED = [
    ({}, {"desk acme", "desk", "clerk acme", "clerk"}),
    ({"agent": "desk"}, {"desk acme", "desk"}),
    ({"tenant": "acme"}, {"desk acme", "clerk acme"}),
    ({"agent": "desk", "tenant": "acme"}, {"desk acme"}),
]


@pytest.mark.parametrize(("scope", "runs"), COVERED)
def test_a_budget_covers_the_runs_of_its_agent_and_its_tenant(scope: dict[str, str], runs: set[str]):
    limits = DeclaredLimits(budgets={"all": SharedBudget(**scope, tokens=1)})
    covered = {
        f"{agent} {tenant}".strip()
        for agent in ("desk", "clerk")
        for tenant in ("acme", "")
        if limits.budgets_of(agent, tenant)
    }
    assert covered == runs


@pytest.mark.parametrize(
    ("fields", "limits"),
    [
        ({"tokens": 3}, {"tokens": 3}),
        ({"model_calls": 4}, {"model_calls": 4}),
        ({"effects": 5}, {"effects": 5}),
        ({"cost": "0.25 EUR"}, {"cost EUR": 250_000_000}),
        ({"tokens": 0, "cost": "2 USD", "effects": 0}, {"tokens": 0, "cost USD": 2 * 10**9, "effects": 0}),
    ],
    ids=str,
)
def test_each_limit_of_a_budget_is_that_of_its_counter(fields: dict[str, Any], limits: dict[str, int]):
    """The counter of a cost is that of its currency alone. Those of calls of models are kept whatever is limited."""
    budget = SharedBudget(**fields)
    counters = ("tokens", "model_calls", "effects", "cost EUR", "cost USD")
    assert {name: most for name in counters if (most := budget.most(name)) is not None} == limits
    assert set(budget.counters) == {"tokens", "model_calls", *limits}
    assert set(budget.of_models) == set(budget.counters) - {"effects"}


# --- names that are not declared -----------------------------------------------------------------------------------------

DECLARED = DeclaredLimits({"mail": QueueLimits(), "web": QueueLimits()}, tenants={"acme": TenantLimits()})
ANYONE = DeclaredLimits(tenants={"acme": TenantLimits(), "*": TenantLimits()})


@pytest.mark.parametrize(
    ("limits", "queue", "tenant", "known"),
    [
        (DeclaredLimits(), "default", "", None),
        (DeclaredLimits(), "default", "anyone", None),
        (DeclaredLimits(), "mail", "", "declared queues: default"),
        (DECLARED, "default", "", None),
        (DECLARED, "mail", "acme", None),
        (DECLARED, "web", "", None),
        (DECLARED, "fax", "", "declared queues: default, mail, web"),
        (DECLARED, "mail", "other", "declared tenants: acme"),
        (DECLARED, "fax", "other", "declared queues: default, mail, web"),
        (ANYONE, "default", "other", None),
        (ANYONE, "default", "acme", None),
    ],
)
def test_a_run_is_submitted_to_queues_and_for_tenants_that_exist(
    limits: DeclaredLimits, queue: str, tenant: str, known: str | None
):
    if known is None:
        limits.check_names(queue, tenant)
        return
    with pytest.raises(UsageError) as refused:
        limits.check_names(queue, tenant)
    assert refused.value.known == f"{known}; nothing was submitted"


@pytest.mark.parametrize(("queue", "known"), [("default", True), ("mail", True), ("old", True), ("fax", False)])
def test_a_queue_is_known_that_is_declared_or_still_restricted(queue: str, known: bool):
    by_ann = Restriction("ann", 1)
    declaration = Declaration(
        DECLARED, modes={"old": QueueMode(paused=by_ann), "web": QueueMode(draining=by_ann), "mail": QueueMode()}
    )
    assert declaration.paused == {"old"}
    assert [bool(declaration.mode(name)) for name in ("old", "web", "mail", "default")] == [True, True, False, False]
    if known:
        declaration.check_known(queue)
        return
    with pytest.raises(UsageError, match="queue 'fax' does not exist") as refused:
        declaration.check_known(queue)
    assert refused.value.known == "declared queues: default, mail, web; nothing was changed"


@pytest.mark.parametrize(
    ("budgets", "agents", "named"),
    [
        ({}, {}, []),
        ({"all": SharedBudget(tokens=1)}, {}, []),
        ({"all": SharedBudget(agent="desk", tokens=1)}, {"clerk": ConcurrencyLimit(1)}, ["clerk", "desk"]),
        ({"all": SharedBudget(tenant="acme", tokens=1)}, {"clerk": ConcurrencyLimit()}, ["clerk"]),
    ],
    ids=str,
)
def test_the_agents_of_limits_and_of_budgets_are_named(budgets: Any, agents: Any, named: list[str]):
    limits = DeclaredLimits(agents=agents, budgets=budgets)
    assert limits.limited_agents() == {f"the limit of agent {name} concerns no run": name for name in named}


@pytest.mark.parametrize("section", DeclaredLimits.__struct_fields__)
def test_what_is_not_declared_any_more_is_said_of_every_section(section: str):
    entries: dict[str, Any] = {"b": {}, "a": {}, "stays": {}}
    entries = {name: {"tokens": 1} if section == "budgets" else {} for name in entries}
    if section == "services":
        entries = {name: {"tools": ["charge"]} for name in entries}
    before = read_limits({section: entries}, "queues.yaml")
    after = read_limits({section: {"stays": entries["stays"], "new": entries["a"]}}, "queues.yaml")
    assert removed(before, after) == [f"limits that were declared before are removed: {section} a, b"]
    assert removed(before, before) == removed(DeclaredLimits(), before) == []
