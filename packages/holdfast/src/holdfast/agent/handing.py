"""`run.hand_off`: to a person or a queue, with the state of the run; or to another agent, which goes on in this run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.agent.asking import Limit, ask
from holdfast.agent.offering import offered_tools, tools_for
from holdfast.engine.scopes import SCOPE, Scope
from holdfast.engine.steps import HandoffInput, hand_over
from holdfast.errors import ResultLost, UsageError
from holdfast.model.questions import ANYBODY, Question, Scalar, within
from holdfast.model.records.run import Handoff

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent

T = TypeVar("T")
R = TypeVar("R")


async def to_agent(scope: Scope, agent: Agent[T, R], given: T, why: str) -> R:
    """Let that agent go on in this run, and return what it returned, as it would be stored."""
    instance = scope.instance
    stored = agent.stored_input(given, instance.engine.identity.secret)
    held = frozenset(offered_tools(scope))
    authority = within(scope.authority, agent.name, held & tools_for(instance, agent), instance.run)
    section = await hand_over(scope, agent, HandoffInput(stored.stored, stored.digest, why), authority)
    token = SCOPE.set(section)
    try:
        result = await agent.begin(section, stored.stored)
    finally:
        SCOPE.reset(token)
    try:
        _, value = agent.codec.round_trip(result)
    except ValueError as problem:
        raise ResultLost(
            f"the result of {agent.name} in run {instance.run} could not be stored: {problem}"
        ) from problem
    returned: R = value
    return returned


async def to_people(
    scope: Scope, queue: str, question: Question, state: Mapping[str, Any] | None, limit: Limit
) -> Scalar:
    """Give the run to people, and go on with what one of them says; or end, where one of them takes it over."""
    facts = {name: msgspec.to_builtins(fact) for name, fact in scope.instance.known.facts.items()}
    handoff = Handoff(
        "" if queue == ANYBODY else queue, _stored(dict(state or {}), "the state"), _stored(facts, "what is known")
    )
    return await ask(scope, question, limit, None, handoff)


def _stored(value: object, what: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"{what} that is handed over has no JSON form: {error}", next_step="give plain values"
        ) from error
