"""The table of a route: its models, and what is declared about each. A table that contradicts itself is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast, get_args

import msgspec

from beforehand.errors import UsageError
from beforehand.loop.model import NOT_ASKED
from beforehand.model.alike import nearest
from beforehand.model.usage import CallCost, own_name

ErrorClass = Literal["unavailable", "rate_limited", "unauthorized", "refused", "too_long", "malformed", "refusal"]
Capability = Literal["tools", "schema"]
ANY_OUTAGE: Final[tuple[ErrorClass, ...]] = ("unavailable", "rate_limited", "unauthorized")
_ROUNDING: Final = 1e-9


class RouteModel(msgspec.Struct, frozen=True):
    """One model of a route, and what is declared about it.

    `model` is a `Model`, or whatever the function of `route.call` takes. `can` names what it can do: call `tools`, and
    answer by a JSON `schema`. `context` is the number of tokens that it can read; 0 declares nothing. `share` is the
    part of all runs that ask this model first, from 0 to 1. `below` is the part of a budget: while less remains, this
    model is asked first. `after` names the classes of errors of another model after which this one is asked. `name`
    replaces the model's own.
    """

    model: Any
    can: tuple[Capability, ...] = get_args(Capability)
    context: int = 0
    share: float | None = None
    below: float | None = None
    after: tuple[ErrorClass, ...] = ANY_OUTAGE
    name: str = ""

    @property
    def shown(self) -> str:
        """The name in reasons and records."""
        return self.name or self.own_name

    @property
    def own_name(self) -> str:
        """The model's own name, by which it has a price; empty if it states none."""
        return own_name(self.model)

    @property
    def special(self) -> bool:
        """True if the model is asked first by some runs only, and by others after all the rest."""
        return self.share is not None or self.below is not None


def checked_table(models: object) -> tuple[RouteModel, ...]:
    """The table of a route. Raises `UsageError` for one that cannot be used."""
    if isinstance(models, str) or not isinstance(models, Sequence) or not models:
        raise wrong(f"Route({models!r}) has no list of models", "give at least one, such as Route([big, small])")
    given = cast("Sequence[Any]", models)  # type: ignore[redundant-cast]  # pyright needs it
    table = tuple(one if isinstance(one, RouteModel) else RouteModel(one) for one in given)
    seen: set[str] = set()
    for one in table:
        if not isinstance(cast("object", one.name), str):
            raise wrong(f"the name {one.name!r} of a model is not text", "give it one: RouteModel(model, name='eu')")
        if isinstance(one.model, type) or not one.shown:
            raise wrong(
                f"{one.model!r} is not a model: it has no name",
                "give a client, such as OpenAIChat('MODEL'), or name it: RouteModel(model, name='eu')",
            )
        if one.shown in seen:
            raise wrong(
                f"the route names the model {one.shown!r} twice",
                "remove one, or name the place of each: RouteModel(model, name='eu')",
            )
        seen.add(one.shown)
        _check_words(one.shown, "can", one.can, get_args(Capability))
        _check_words(one.shown, "after", one.after, get_args(ErrorClass))
        if type(one.context) is not int or one.context < 0:
            raise wrong(f"{one.shown}: context={one.context!r} is not a number of tokens", "give 0 if it is unknown")
        _check_part(one.shown, "share", one.share, "all runs")
        _check_part(one.shown, "below", one.below, "a budget")
        if one.share is not None and one.below is not None:
            raise wrong(f"{one.shown} has both share= and below=", "give one of them")
    shares = [one.share for one in table if one.share is not None]
    total, partial = math.fsum(shares), len(shares) < len(table)
    if shares and (total > 1 + _ROUNDING or (total < 1 - _ROUNDING and not partial)):
        raise wrong(
            f"the shares of the route add up to {total:.6g}",
            "give shares that add up to 1, or no share to the model that is asked by the other runs",
        )
    return table


def _check_part(model: str, field: str, given: object, whole: str) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given <= 1:
        raise wrong(f"{model}: {field}={given!r} is not a part of {whole}", "give a number such as 0.05")


def _check_words(model: str, field: str, given: object, known: Sequence[str]) -> None:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise wrong(f"{model}: {field}={given!r} is not a tuple", f"write {field}=({known[0]!r},)")
    for word in cast("Sequence[object]", given):
        if word not in known:
            near = nearest(str(word), known)
            raise wrong(
                f"{model}: {field} names {word!r}, which does not exist",
                f"did you mean {near!r}?" if near else f"choose from: {', '.join(known)}",
            )


def check_prices(table: Sequence[RouteModel], costs: Mapping[str, CallCost]) -> None:
    """Raise `UsageError` unless every model has a price, all in one currency."""
    if missing := [one.shown for one in table if one.shown not in costs]:
        raise wrong(
            f"the route chooses by price, and no price is known of: {', '.join(missing)}",
            "add them to the prices (a free model is 0), or leave out prices=",
        )
    if len(currencies := sorted({cost.currency for cost in costs.values()})) > 1:
        raise wrong(f"the prices of the route are in {' and '.join(currencies)}", "give prices in one currency")


def wrong(message: str, next_step: str) -> UsageError:
    """The error for a route that cannot be used."""
    return UsageError(message, known=NOT_ASKED, next_step=next_step)
