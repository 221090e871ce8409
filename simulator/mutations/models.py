"""Planted bugs in the limits of models and in routes."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from msgspec.structs import replace

from beforehand.model.usage import Usage
from simulator.generator.models import ROUTED
from simulator.mutations.mutation import Mutant, never_mind
from simulator.mutations.queues import permits_of_one_process


def permit_held_at_budgets(_original: Any) -> Any:
    """A call that waits for its budget keeps the permit of its model."""

    def put_down(_self: Any) -> Any:
        return contextlib.nullcontext()

    return put_down


def first_model_alone(original: Any) -> Any:
    """A call that may ask several models needs the permit of the first one alone."""

    def of_call(self: Any, call: Any) -> Any:
        return original(self, replace(call, models=call.models[:1]))

    return of_call


def tokens_unknown(original: Any) -> Any:
    """What a call has used is never known, so its estimate counts."""

    def release_model(self: Any, permit: Any, models: Any, used: Any) -> None:
        original(self, permit, models, None if used is None else Usage())

    return release_model


def shares_drawn_anew(original: Any) -> Any:
    """Whether a run belongs to a share is drawn for each question."""
    drawn = [0]

    def draw(run: str, table: Any) -> float:
        drawn[0] += 1
        number: float = original(f"{run} {drawn[0]}", table)
        return number

    return draw


def nothing_failed(original: Any) -> Any:
    """A route does not know which models have failed at a question."""

    def choose(table: Any, known: Any) -> Any:
        return original(table, replace(known, failures=()))

    return choose


def any_error_asks_another(original: Any) -> Any:
    """After any error another model is asked, whatever it was declared for."""

    def choose(table: Any, known: Any) -> Any:
        return original([replace(one, after=(*one.after, "refused", "unavailable")) for one in table], known)

    return choose


def breaker_ignored(_original: Any) -> Any:
    """A model whose service asked not to be called is asked all the same."""

    def paused(_self: Any, _now_ms: int) -> dict[str, Any]:
        return {}

    return paused


def other_model_named(original: Any) -> Any:
    """The record names the first model that could have been asked."""

    def record(question: Any, *given: Any, **named: Any) -> Any:
        found = original(question, *given, **named)
        return replace(found, model=question.models[0].name) if question.models else found

    return record


MODEL_BUGS: Final = (
    Mutant(
        "a permit held at a budget",
        "a run that waits for a person to raise its budget keeps others from a model",
        "beforehand.agent.model_limits:LimitedModelCall.put_down",
        permit_held_at_budgets,
        from_seed=ROUTED,
    ),
    Mutant(
        "model permits of one process",
        "the limit of a model holds in each process alone",
        "beforehand.journal.cells:held_permits",
        permits_of_one_process,
        from_seed=ROUTED,
    ),
    Mutant(
        "the first model of a route",
        "a call by a route is under the limits of its first model alone",
        "beforehand.queues.limits:DeclaredLimits.of_call",
        first_model_alone,
        from_seed=ROUTED,
    ),
    Mutant(
        "estimates stand",
        "tokens that were used beyond their estimate do not count",
        "beforehand.engine.call_limits:CallLimits.release_model",
        tokens_unknown,
        from_seed=ROUTED,
    ),
    Mutant(
        "Retry-After of a model unheard",
        "a service that asks not to be called is called by other processes",
        "beforehand.agent.model_limits:LimitedModelCall.slow",
        never_mind,
        from_seed=ROUTED,
    ),
    Mutant(
        "shares drawn for each question",
        "a run belongs to the share of a model in one question, and not in the next",
        "beforehand.loop.route:_draw",
        shares_drawn_anew,
        from_seed=ROUTED,
    ),
    Mutant(
        "failures of a question forgotten",
        "a model that has failed at a question is asked again, in place of another one",
        "beforehand.loop.route:choose",
        nothing_failed,
        from_seed=ROUTED,
    ),
    Mutant(
        "another model after any error",
        "a model is asked after an error for which it was not declared",
        "beforehand.loop.route:choose",
        any_error_asks_another,
        from_seed=ROUTED,
    ),
    Mutant(
        "breakers of models ignored",
        "a route asks a model whose service has asked not to be called",
        "beforehand.loop.model_health:ModelHealth.paused",
        breaker_ignored,
        from_seed=ROUTED,
    ),
    Mutant(
        "another model named",
        "the record of an answer names a model that did not give it",
        "beforehand.agent.model_decisions:_record",
        other_model_named,
        from_seed=ROUTED,
    ),
)
"""Each is looked for in the seeds in which runs ask models by their names."""
