"""The models that agents ask, one alone or through a route, each with a service that refuses, is busy, or hangs."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import ModelError
from holdfast.loop.route import Route
from holdfast.loop.route_table import RouteModel

if TYPE_CHECKING:
    from simulator.checkers.models import ModelCall
    from simulator.processes.worker import Life
    from simulator.world import World

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
    "fastest": (RouteModel("big"), RouteModel("small")),
    "in time": (RouteModel("big"), RouteModel("small")),
    "seldom": (RouteModel("small"), RouteModel("big", after=("rate_limited",))),
}
"""The routes by name. That of one model is asked without a route."""
SHADOW: Final = "cheap"
COMPARED: Final = " compared"
"""The end of the names of routes that ask a shadow beside most decisions."""
TABLES: Final[Mapping[str, tuple[RouteModel, ...]]] = {
    **ROUTES,
    **{f"{name}{COMPARED}": (*table, RouteModel(SHADOW, shadow=0.7)) for name, table in ROUTES.items()},
}


class Answer(msgspec.Struct, frozen=True):
    """An answer. No two are the same."""

    text: str
    by: str
    usage: dict[str, Any]


def asked_of(route: str) -> tuple[str, ...]:
    """The models that a question to this route may ask."""
    return tuple(one.shown for one in answering(route))


def answering(route: str) -> tuple[RouteModel, ...]:
    """The models of a route whose answers are used."""
    return ROUTES[route.removesuffix(COMPARED)]


def route_of(life: Life, name: str) -> Route:
    """The route of this process. A new process begins with healthy models."""
    if name not in life.routes:
        kind = name.removesuffix(COMPARED)
        within = timedelta(seconds=20) if kind == "in time" else None
        life.routes[name] = Route(TABLES[name], within=within, fastest=kind == "fastest")
    return life.routes[name]


async def ask_route(run: str, thing: str, tokens: int, route: str) -> Answer:
    """Ask a route, or the only model of it."""
    from simulator.agents.scripted import LIFE  # noqa: PLC0415 - it performs the steps that stand here

    life, table = LIFE.get(), TABLES[route]
    if len(table) == 1:
        return await ask_model(table[0].shown, run, thing, tokens, route)
    shadow = functools.partial(ask_shadow, life, run, thing, tokens)
    return await route_of(life, route).call(ask_model, run, thing, tokens, route, shadow=shadow)


async def ask_model(model: str, run: str, thing: str, tokens: int, route: str) -> Answer:
    """One call of a model, which uses so many tokens. Its service keeps a list of its calls."""
    from simulator.agents.scripted import LIFE  # noqa: PLC0415 - as above

    life, name = LIFE.get(), f"query {thing}"
    world = life.world
    world.point(life.actor, "ask the model")
    with world.checker.models.calling(life.actor, run, name, model, route) as call:
        world.checker.budgets.begins(life.actor, run, name)
        return await _served(world, call, thing, tokens)


async def ask_shadow(life: Life, run: str, thing: str, tokens: int, model: str) -> Answer:
    """One call of a shadow, whose answer nothing may use."""
    world, name = life.world, f"query {thing} {model}"
    world.point(life.actor, "ask a shadow")
    with world.checker.models.shadowing(life.actor, run, name, model) as call:
        world.checker.budgets.begins(life.actor, run, name)
        return await _served(world, call, thing, tokens)


async def _served(world: World, call: ModelCall, thing: str, tokens: int) -> Answer:
    """What the service of a model does with a call."""
    run, model = call.run, call.model
    await world.travel("model", model, run, thing)
    fault = world.nemesis.of_call(f"model {model}")
    call.fault = kind = fault.kind if fault is not None else ""
    match kind:
        case "unreachable":
            world.checker.budgets.refused(run, call.name)
            raise ConnectionRefusedError("the model's service does not answer")
        case "overloaded":
            raise ModelError("overloaded", code="unavailable")
        case "asks_to_wait" if fault is not None:
            world.checker.budgets.refused(run, call.name)
            raise ModelError("too many requests", code="rate_limited", retry_after=fault.ms / 1000)
        case "wrong":
            world.checker.budgets.refused(run, call.name)
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
