"""Agents that ask people something, that hand their run to people, and that let another agent go on in it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from holdfast.agent.run import Run
from holdfast.model.questions import Scalar
from simulator.plan import Plan, Step

CHOICES: Final = ("red", "green", "blue")
SPECIALISTS: Final = ("pay", "ship", "mail")
"""The tools of the agent that runs are handed over to."""


class Wanted(msgspec.Struct, frozen=True):
    """What code wants of whoever answers: for how long it waits, and what stands in for an answer."""

    ms: int
    default: Scalar | None


def text_of(step: Step) -> str:
    """What is asked at that step."""
    return f"which {step.thing}?" if step.kind == "ask" else f"who does {step.thing}?"


def wanted_of(step: Step) -> Wanted:
    """What its code wants."""
    default = (CHOICES[step.cents % 3] if step.kind == "ask" else step.cents) if step.cents else None
    return Wanted(step.ms, default)


async def ask(run: Run, step: Step) -> Scalar | None:
    """Ask people, or hand the run over to them. What one of them says; nothing where nobody does in time."""
    wanted, within = wanted_of(step), timedelta(milliseconds=step.ms)
    try:
        if step.kind == "ask":
            return await run.ask(
                text_of(step), choices=CHOICES, timeout=within, default=str(wanted.default or "") or None
            )
        number = int(wanted.default) if wanted.default else None
        return await run.hand_off(
            "desk", why=text_of(step), state={"thing": step.thing}, returns=int, within=within, default=number
        )
    except TimeoutError:
        return None


def asked_by(plan: Plan, run: str, text: str) -> Wanted | None:
    """What the code of a run wants that asks this."""
    steps = (step for script in plan.scripts if script.id == run for step in script.steps)
    return next(
        (wanted_of(step) for step in steps if step.kind in {"ask", "hand_over"} and text_of(step) == text), None
    )


def handed_to(plan: Plan, thing: str) -> bool:
    """Whether another agent is to do this."""
    return any(
        thing.startswith(f"{step.thing}/") for script in plan.scripts for step in script.steps if step.kind == "pass"
    )
