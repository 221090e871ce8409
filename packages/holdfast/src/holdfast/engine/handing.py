"""Handing a run over to another agent: a step that holds all steps which that agent takes.

The run, its operations, what it waits for and its deadline stay what they are. What the other agent may do is less
than, or as much as, what the code could that hands over.
"""

from __future__ import annotations

import msgspec

from holdfast.engine.boundary import sealing
from holdfast.engine.engine import AgentCode
from holdfast.engine.refusing import refuse
from holdfast.engine.scopes import Scope
from holdfast.engine.transactions import may_begin
from holdfast.model import records as r
from holdfast.model.questions import Authority


class Given(msgspec.Struct, frozen=True):
    """What goes to the other agent: its input, as it is stored, with the keyed digest of it, and why it is asked."""

    stored: bytes
    digest: str
    why: str


@sealing
async def hand_to(scope: Scope, agent: AgentCode, given: Given, authority: Authority) -> Scope:
    """The part of this branch in which that agent goes on. A replay hands the same over to the same agent."""
    instance = scope.instance
    if instance.closed:
        await refuse(scope)
    step = scope.step(f"hand_off:{agent.name}")
    recorded = instance.history.answers.get(step)
    if recorded is None:
        if instance.history.transactions:
            await may_begin(scope, step)
        recorded = r.HandedOff(
            step=step, agent=agent.name, why=given.why, given=r.Raw(given.stored), digest=given.digest,
            version=agent.version, **instance.stamp(),
        )  # fmt: skip
        instance.ride(recorded)
    await instance.take_turn(scope, step)
    instance.forget(step)
    if not isinstance(recorded, r.HandedOff) or (recorded.agent, recorded.digest) != (agent.name, given.digest):
        instance.diverge(f"{step} hands over another input than when it was recorded")
    return scope.handed(step, authority)
