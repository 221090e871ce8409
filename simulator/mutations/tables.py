"""Planted bugs in limits, shared budgets, queues and telemetry, each found by the table of its rule and by no seed."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from beforehand.journal.port import SlowRequest
from beforehand.model import records as r
from beforehand.model.usage import Usage
from simulator.mutations.mutation import Mutant

_LIMITS: Final = "tests/unit/engine/test_limit_tables.py"
_BUDGETS: Final = "tests/unit/engine/test_budget_tables.py"
_SENDING: Final = "tests/unit/engine/test_sending_paused.py"
_METRICS: Final = "tests/unit/telemetry/test_prometheus.py"


def due_as_before(original: Any) -> Any:
    """What is due stays due at the moment that the former rate gave it."""

    def on_boot(limit: Any, pace: Any, boot: str, now_ms: int) -> Any:
        known = pace.apart_ns and pace.boot in {"", boot}
        return original(limit, replace(pace, apart_ns=limit.apart_ns) if known else pace, boot, now_ms)

    return on_boot


def refused_as_estimated(original: Any) -> Any:
    """A call of a model that its service refused counts as the tokens that it was estimated at."""

    def release_model(self: Any, permit: Any, models: Any, used: Any) -> None:
        original(self, permit, models, Usage() if used is not None and used.refused else used)

    return release_model


def own_tool_alone(original: Any) -> Any:
    """A `Retry-After` holds for the tool that was called, where that has a limit of its own."""

    async def slow(self: Any, call: Any, wait_ms: int) -> None:
        own = [one.name for one in self.of(call) if one.name == f"tool {call.tool}"]
        await (self._journal.commit(SlowRequest(tuple(own), wait_ms)) if own else original(self, call, wait_ms))

    return slow


def budgets_from_before(original: Any) -> Any:
    """A task reserves under the budgets that covered its run when it was asked first."""
    known: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def budgets_of(active: Any) -> Any:
        return known.setdefault(asyncio.current_task(), original(active))

    return budgets_of


def compensations_compared(original: Any) -> Any:
    """What serves another operation is compared with the budgets that have a cost."""

    async def charge_for(driver: Any, operation: Any) -> Any:
        from beforehand.engine.shared_budgets import budgets_of  # noqa: PLC0415 - as it is while the bug is planted

        charge = await original(driver, operation)
        if charge is None or not operation.intent.serves:
            return charge
        money = {name: one for name, one in budgets_of(driver.log).items() if one.money and name in charge.periods}
        return replace(charge, limits=replace(charge.limits, budgets=money))

    return charge_for


def reserved_is_spent(original: Any) -> Any:
    """A budget whose last room is reserved by calls in flight counts as spent when other limits are declared."""

    def is_spent(budget: Any, uses: Any) -> Any:
        return original(budget, [replace(use, used=use.used + use.reserved) for use in uses])

    return is_spent


def own_queue_alone(_original: Any) -> Any:
    """The queues of the runs above the one that starts a child are not looked at."""

    def queues_above(active: Any) -> tuple[str, ...]:
        started = active.history.lifecycle.started
        return (started.queue,) if started.queue else ()

    return queues_above


def no_age_of_what_has_begun(original: Any) -> Any:
    """A queue in which all runs have begun shows no age, although some wait for a slot."""

    async def read_samples(engine: Any, **drives: bool) -> Any:
        samples = await original(engine, **drives)
        begun = [one.labels for one in samples if one.name == "beforehand_queue_waiting" and not one.value]
        aged = "beforehand_queue_oldest_seconds"
        return [replace(one, value=0.0) if one.name == aged and one.labels in begun else one for one in samples]

    return read_samples


def lost_as_answered(original: Any) -> Any:
    """A call of a model whose process is gone is traced as one that was answered."""
    claimed = original[r.Claimed]

    def answered(spans: Any, record: Any) -> None:
        claimed(spans, record)
        spans._ended = [replace(one, error="") for one in spans._ended]  # noqa: SLF001 - as the original

    return {**original, r.Claimed: answered}


def sends_unguarded(original: Any) -> Any:
    """An attempt that was decided before all sending was paused is recorded after it."""

    def append(
        self: Any, bodies: Any, change: Any = None, posts: Any = (), charges: Any = (), declared: Any = None, *_: Any
    ) -> Any:
        return original(self, bodies, change, posts, charges, declared)

    return append


def wakes_none(original: Any) -> Any:  # noqa: ARG001 - nothing is left of it
    """The end of a pause makes no run due."""

    async def wake_unpaused(self: Any) -> None:
        pass

    return wake_unpaused


def hours_without_offset(original: Any) -> Any:
    """The hour that comes twice, where clocks are set back, is one period."""

    def hour_of(zone: str, at_ms: int) -> Any:
        hour = original(zone, at_ms)
        return replace(hour, name=hour.name[: len("2027-01-01T13")])

    return hour_of


TABLE_BUGS: Final = (
    Mutant(
        "one hour that comes twice",
        "an hour that clocks repeat has one counter, so its second half has no limit of its own",
        "beforehand.queues.zones:hour_of",
        hours_without_offset,
        test="tests/unit/control/test_declared_budgets.py"
        "::test_hours_of_a_zone_follow_each_other_and_an_hour_that_exists_twice_is_two",
    ),
    Mutant(
        "due at the former rate",
        "a rate that is changed does not hold for what is due",
        "beforehand.journal.cells:on_boot",
        due_as_before,
        test=f"{_LIMITS}::test_what_is_due_is_due_at_the_rate_in_force",
    ),
    Mutant(
        "refused calls keep their estimate",
        "a call of a model that was refused keeps its estimated tokens",
        "beforehand.engine.call_limits:CallLimits.release_model",
        refused_as_estimated,
        test=f"{_LIMITS}::test_a_call_of_a_model_counts_by_its_end",
    ),
    Mutant(
        "Retry-After of one tool alone",
        "the other tools of a service that asked for a pause call it",
        "beforehand.engine.call_limits:CallLimits.slow",
        own_tool_alone,
        test=f"{_LIMITS}::test_a_pause_that_a_tool_was_asked_for_holds_for_the_tools_of_its_services_alone",
    ),
    Mutant(
        "budgets from before the first child",
        "a call that waited for its turn is not compared with the tree that began meanwhile",
        "beforehand.engine.shared_budgets:budgets_of",
        budgets_from_before,
        test=f"{_BUDGETS}::test_calls_that_waited_for_their_turn_while_the_first_child_started_are_compared_with_the_tree",
    ),
    Mutant(
        "compensations stopped by a cost",
        "a spent budget in a currency stops a compensation that has a price",
        "beforehand.engine.shared_budgets:charge_for",
        compensations_compared,
        test=f"{_BUDGETS}::test_a_spent_budget_stops_no_call_that_ends_an_earlier_effect",
    ),
    Mutant(
        "reserved is spent",
        "runs that wait for a budget stay asleep after a raise while calls are in flight",
        "beforehand.engine.shared_budgets:is_spent",
        reserved_is_spent,
        test=f"{_BUDGETS}::test_a_raise_wakes_whom_it_leaves_room_whatever_is_in_flight",
    ),
    Mutant(
        "only its own queue",
        "a run is started in a queue with a key that a run far above it is in, and waits for itself",
        "beforehand.engine.children:_queues_above",
        own_queue_alone,
        test="tests/unit/engine/test_children_ends.py::test_no_run_is_started_in_a_queue_with_a_key_that_a_run_above_it_is_in",
    ),
    Mutant(
        "no age of what has begun",
        "a queue whose runs have all begun shows no age",
        "beforehand.telemetry.prometheus:read_samples",
        no_age_of_what_has_begun,
        test=f"{_METRICS}::test_a_queue_shows_since_when_its_oldest_run_is_ready",
    ),
    Mutant(
        "lost calls traced as answered",
        "a call of a model whose process is gone is traced as answered",
        "beforehand.telemetry.spans:_ADD",
        lost_as_answered,
        test=f"{_METRICS}::test_each_call_of_a_model_is_traced_and_counted_by_its_end",
    ),
    Mutant(
        "sends after the pause",
        "an attempt becomes durable though all sending was paused before",
        "beforehand.journal.run_log:RunLog.append",
        sends_unguarded,
        test=f"{_SENDING}::test_a_process_that_knows_nothing_of_the_pause_records_no_attempt",
    ),
    Mutant(
        "the end of a pause wakes nothing",
        "runs that were suspended while all sending was paused stay so after it",
        "beforehand.engine.process:Process.wake_unpaused",
        wakes_none,
        test=f"{_SENDING}::test_runs_go_on_by_themselves_after_the_pause_also_those_of_a_process_that_was_killed",
    ),
)
"""Each names its test."""
