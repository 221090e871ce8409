"""The limits that a call is under, of whatever is declared: counted here one by one, as the page says it."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from beforehand.queues.call_limits import AppliedLimit, CallLimit, LimitedCall, ModelLimit, ServiceLimit
from beforehand.queues.limits import ConcurrencyLimit, DeclaredLimits, QueueLimits, SharedBudget, TenantLimits

TOOLS, SERVICES, MODELS, TENANTS = (
    ("charge", "mail"),
    ("bank", "post"),
    ("acme/big", "acme/small"),
    ("acme", "other", ""),
)
counts = st.integers(1, 3)
of_calls = st.builds(CallLimit, counts)
of_models = st.builds(ModelLimit, counts, tokens=st.sampled_from(("", "100/minute")), token_burst=counts)


def some(names, values):
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, values))


DECLARED = st.builds(
    DeclaredLimits,
    tools=some(TOOLS, of_calls),
    services=some(SERVICES, st.builds(ServiceLimit, counts, tools=st.sampled_from((TOOLS, TOOLS[:1], TOOLS[1:])))),
    models=some(MODELS, of_models),
    tenants=some(
        ("acme", "*"),
        st.builds(
            TenantLimits, counts, tools=some(TOOLS, of_calls), services=some(SERVICES, of_calls),
            models=some(MODELS, of_models),
        ),
    ),
)  # fmt: skip
CALLS = st.one_of(
    st.builds(LimitedCall, st.sampled_from(TOOLS), st.sampled_from(TENANTS)),
    st.builds(
        LimitedCall, st.just(""), st.sampled_from(TENANTS), st.sampled_from((MODELS, MODELS[:1])), st.integers(1, 9)
    ),
)


def share(declared: DeclaredLimits, tenant: str) -> TenantLimits:
    """What is declared of one tenant: its own entry, or that of all others."""
    return declared.tenants.get(tenant, declared.tenants.get("*", TenantLimits()))


def limits_of(declared: DeclaredLimits | TenantLimits, reached: list[str], call: LimitedCall) -> dict[str, CallLimit]:
    """The limits of one holder that this call counts under, by their names."""
    found: dict[str, CallLimit] = {
        f"service {one}": declared.services[one] for one in reached if one in declared.services
    }
    if call.tool in declared.tools:
        found[f"tool {call.tool}"] = declared.tools[call.tool]
    for model in call.models:
        if (limit := declared.models.get(model)) is not None:
            found[f"model {model}"] = limit
            if limit.tokens:
                found[f"tokens of {model}"] = CallLimit(rate=limit.tokens, burst=limit.token_burst)
    return found


def expected(declared: DeclaredLimits, call: LimitedCall) -> dict[str, AppliedLimit]:
    reached = [name for name, one in declared.services.items() if call.tool in one.tools]
    shared, own = limits_of(declared, reached, call), limits_of(share(declared, call.tenant), reached, call)
    told = {name for name in own if name.startswith("model ")}  # what a `Retry-After` about it concerns
    told |= {f"tool {call.tool}"} if call.tool and own and not shared else set()
    whole = {**dict.fromkeys(told, CallLimit()), **shared}
    tenant = f"tenant {call.tenant}" if call.tenant else "no tenant"
    found = {name: AppliedLimit(name, limit, True) for name, limit in whole.items()}
    found |= {f"{name} / {tenant}": AppliedLimit(f"{name} / {tenant}", limit, False) for name, limit in own.items()}
    return {
        name: msgspec.structs.replace(one, units=call.tokens if name.startswith("tokens of ") else 1)
        for name, one in found.items()
    }


@given(DECLARED, CALLS)
def test_a_call_is_under_the_limits_of_all_it_reaches_and_of_its_tenant(declared: DeclaredLimits, call: LimitedCall):
    applied = declared.of_call(call)
    assert {one.name: one for one in applied} == expected(declared, call)
    assert len({one.name for one in applied}) == len(applied)


@given(DECLARED)
def test_calls_need_a_permit_where_any_tenant_is_under_a_limit_and_nowhere_else(declared: DeclaredLimits):
    """A limit of a tenant is listed by its name; those of `*` have as many names as there are tenants."""
    listed: set[str] = set()
    for name, calls in (
        *((tool, [LimitedCall(tool, tenant) for tenant in TENANTS]) for tool in TOOLS),
        *((model, [LimitedCall("", tenant, (model,)) for tenant in TENANTS]) for model in MODELS),
    ):
        applied = [one for call in calls for one in declared.of_call(call)]
        assert bool(applied) == (name in declared.limited_tools() | declared.limited_models()), name
        listed |= {one.name for one in applied if one.limit != CallLimit()}
    assert all(declared.named(name) is not None for name in declared.names_of_calls())
    assert {name.partition(" / ")[2] for name in declared.names_of_calls()} <= {"", "tenant acme"}
    named = {name for name in listed if name.partition(" / ")[2].removeprefix("tenant ") in {"", *declared.tenants}}
    assert named <= declared.names_of_calls()


def test_everything_that_is_declared_is_named_by_its_section():
    declared = DeclaredLimits(
        {"mail": QueueLimits(concurrency=1)}, {"desk": ConcurrencyLimit(2)}, {"acme": TenantLimits(3)},
        {"charge": CallLimit(4)}, {"bank": ServiceLimit(5)}, {"acme/big": ModelLimit(6)}, {"all": SharedBudget(tokens=7)},
    )  # fmt: skip
    assert declared.by_name() == {
        "queues/mail": QueueLimits(concurrency=1), "agents/desk": ConcurrencyLimit(2), "tenants/acme": TenantLimits(3),
        "tools/charge": CallLimit(4), "services/bank": ServiceLimit(5), "models/acme/big": ModelLimit(6),
        "budgets/all": SharedBudget(tokens=7),
    }  # fmt: skip
