"""The models that agents ask, one alone or through a route, each with a service that refuses, is busy, or hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beforehand.errors import ModelError
from beforehand.loop.route import Route
from beforehand.loop.route_table import RouteModel

if TYPE_CHECKING:
    from simulator.processes.worker import Life

MODELS: Final = ("small", "big")
MODEL_FAULTS: Final = ("unreachable", "overloaded", "unread", "unstated", "long", "hung", "asks_to_wait", "wrong")
"""What may become of a call of a model: its service is not reached, answers with an error, loses its answer, does not
state what was used, takes half a minute, never answers, asks to be left alone for a while, or refuses the question.
"""
TIMEOUT: Final = timedelta(seconds=90)
"""How long one call may take."""
ROUTES: Final[Mapping[str, tuple[RouteModel, ...]]] = {
    "small": (RouteModel("small"),),
    "big": (RouteModel("big"),),
    "in order": (RouteModel("small"), RouteModel("big")),
    "shared": (RouteModel("big"), RouteModel("small", share=0.5)),
    "saving": (RouteModel("big"), RouteModel("small", below=0.6)),
    "seldom": (RouteModel("small"), RouteModel("big", after=("rate_limited",))),
}
"""The routes by name. That of one model is asked without a route."""


class Answer(msgspec.Struct, frozen=True):
    """An answer. No two are the same."""

    text: str
    by: str
    usage: dict[str, Any]


def asked_of(route: str) -> tuple[str, ...]:
    """The models that a question to this route may ask."""
    return tuple(one.shown for one in ROUTES[route])


def route_of(life: Life, name: str) -> Route:
    """The route of this process. A new process begins with healthy models."""
    if name not in life.routes:
        life.routes[name] = Route(ROUTES[name])
    return life.routes[name]


async def ask_route(run: str, thing: str, tokens: int, route: str) -> Answer:
    """Ask a route, or the only model of it."""
    from simulator.agents.scripted import LIFE  # noqa: PLC0415 - it performs the steps that stand here

    models = asked_of(route)
    if len(models) == 1:
        return await ask_model(models[0], run, thing, tokens, route)
    return await route_of(LIFE.get(), route).call(ask_model, run, thing, tokens, route)


async def ask_model(model: str, run: str, thing: str, tokens: int, route: str) -> Answer:
    """One call of a model, which uses so many tokens. Its service keeps a list of its calls."""
    from simulator.agents.scripted import LIFE  # noqa: PLC0415 - as above

    life, name = LIFE.get(), f"query {thing}"
    world = life.world
    world.point(life.actor, "ask the model", f"{run} {thing}")
    with world.checker.models.calling(life.actor, run, name, model, route) as call:
        world.checker.budgets.begins(life.actor, run, name)
        await world.travel("model", model, run, thing)
        fault = world.nemesis.of_call(f"model {model}")
        call.fault = kind = fault.kind if fault is not None else ""
        match kind:
            case "unreachable":
                world.checker.budgets.refused(run, name)
                raise ConnectionRefusedError("the model's service does not answer")
            case "overloaded":
                raise ModelError("overloaded", code="unavailable")
            case "asks_to_wait" if fault is not None:
                world.checker.budgets.refused(run, name)
                raise ModelError("too many requests", code="rate_limited", retry_after=fault.ms / 1000)
            case "wrong":
                world.checker.budgets.refused(run, name)
                raise ModelError("this cannot be asked", code="refused")
            case "long":
                await asyncio.sleep(30)
            case "hung":
                await asyncio.sleep(3_600)
            case "unread":
                raise TimeoutError("no answer came")
            case _:
                pass
        call.tokens = tokens
        usage = {} if kind == "unstated" else {"input_tokens": tokens, "output_tokens": 0, "model": model}
        text = f"{thing}: {world.draws.of('answer', run, thing, model).getrandbits(32):x}"
        return Answer(text, model, usage)
