"""The price of a model call under budgets in a currency: what it reserves before it is sent, and what it has cost.

The amount and its basis go on record with the call, so another list of prices never changes what was counted. A price
that is not known is never zero: the call is refused, or counts as its budget declares for such calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from msgspec.structs import replace

from beforehand.engine.engine import LOG
from beforehand.errors import UsageError
from beforehand.model.money import Money, amount_of, counted, units_of, written_money
from beforehand.model.run_budget import reservation
from beforehand.model.usage import CallCost, Usage, own_name

if TYPE_CHECKING:
    from beforehand.engine.active_run.run import ActiveRun
    from beforehand.queues.limits import SharedBudget

DECLARED: Final = "declared by the budget"
"""The basis of what a call counts whose price is not known."""


class NamedModel(msgspec.Struct, frozen=True):
    """A model that a call may ask, as lists of prices name it, and its service."""

    name: str
    service: str = ""


class Named(Protocol):
    """An object with a name, such as a `Model` of the ready loop. It may have a `service`."""

    @property
    def name(self) -> str:
        """The name of the model in lists of prices."""
        ...


def named_model(model: object) -> NamedModel:
    """The name of a model, and its service if the object knows it. Raises `UsageError` for one without a name."""
    name, service = own_name(model), getattr(model, "service", "")
    if not name:
        raise UsageError(
            f"model={model!r} names no model",
            known="no model was asked",
            next_step="give its name, such as model='MODEL', or an object with a name",
        )
    return NamedModel(name, service if isinstance(service, str) else "")


class _Terms(msgspec.Struct, frozen=True):
    """A budget in a currency that covers the call: its name in sentences, its limit, and what it declares."""

    where: str
    limit: Money
    unpriced: Money | None


def reservation_of(
    active: ActiveRun, shared: Mapping[str, SharedBudget], models: tuple[NamedModel, ...], question: int
) -> tuple[int, CallCost | None, str]:
    """The tokens and the cost that a call with a question of so many bytes reserves; or the reason why it is not sent.

    Without a budget it reserves nothing.
    """
    counted_before = [one for one in (active.history.budget, active.history.shared) if one is not None]
    if active.history.budget is None and not shared:
        return 0, None, ""
    tokens = reservation(max((one.largest for one in counted_before), default=0), question)
    terms = _terms_of(active, shared)
    price, why = _price_before(active, terms, models, tokens) if terms else (None, "")
    return tokens, price, why


def _terms_of(active: ActiveRun, shared: Mapping[str, SharedBudget]) -> list[_Terms]:
    """The budgets in a currency that cover a model call of this run."""
    own = active.history.budget
    found = [] if own is None else [("the budget of the run", own.limits.money, own.limits.unpriced)]
    found += [(f"the budget {name}", one.money, one.unpriced) for name, one in shared.items()]
    return [
        _Terms(where, limit, None if unpriced is None else written_money(unpriced))
        for where, limit, unpriced in found
        if limit is not None
    ]


def _price_before(
    active: ActiveRun, terms: list[_Terms], models: tuple[NamedModel, ...], tokens: int
) -> tuple[CallCost | None, str]:
    """The cost that a call reserves; or the reason why it is not sent.

    It is that of the dearest call so far, or that of so many input tokens of the dearest model that may be asked.
    """
    currency = terms[0].limit.currency
    if (other := next((one for one in terms if one.limit.currency != currency), None)) is not None:
        return None, (
            f"{terms[0].where} is in {currency} and {other.where} in {other.limit.currency}: a call has one price, so "
            "no call can keep to both; nothing was sent; give both budgets one currency"
        )
    found = [(one, _cost(active, Usage(tokens, model=one.name, service=one.service))) for one in models]
    costs = [cost for _, cost in found if cost is not None and cost.currency == currency]
    if found and len(costs) == len(found):
        dearest = max(costs, key=lambda one: one.amount)
        units = max(units_of(dearest, currency) or 0, _dearest_so_far(active, currency))
        return CallCost(amount_of(units), currency, dearest.basis), ""
    declared = [one.unpriced for one in terms if one.unpriced is not None]
    if len(declared) == len(terms):
        return CallCost(amount_of(max(one.units for one in declared)), currency, DECLARED), ""
    return None, f"{_unknown(found, currency)}, and {terms[0].where} limits the cost to {terms[0].limit}: {_NEXT}"


def price_after(active: ActiveRun, step: str, usage: Usage, models: tuple[NamedModel, ...]) -> CallCost | None:
    """The cost of the call of this step that has ended; None without a budget in a currency, and if it is unknown."""
    own, shared = active.history.budget, active.history.shared
    held = [one.open.get(step) for one in (own,) if one is not None]
    held += [one.reserved for use in (shared,) if use is not None and (one := use.open.get(step)) is not None]
    currency = next((one.currency for one in held if one is not None and one.currency), "")
    if not currency or not (usage.known and usage.called):
        return None
    named = [replace(usage, model=one.name, service=one.service) for one in models if len(models) == 1]
    for used in (usage, *named):  # the service may name the model in a way that no list has
        cost = _cost(active, used) if used.model else None
        if cost is not None and cost.currency == currency:
            return counted(cost)
    return None


def _cost(active: ActiveRun, used: Usage) -> CallCost | None:
    """The cost by the prices of the app. A list that fails knows nothing: no answer of a model is lost by that."""
    prices = active.process.prices()
    try:
        found = None if prices is None else prices.cost(used, active.process.wall_ms())
    except Exception:  # noqa: BLE001 - a list may be code of the user
        LOG.exception("the list of prices failed; the price of %s counts as unknown", used.model)
        return None
    return found if found is not None and found.amount.is_finite() and found.amount >= 0 else None


def _dearest_so_far(active: ActiveRun, currency: str) -> int:
    own, shared = active.history.budget, active.history.shared
    most = 0 if own is None else own.dearest
    return most if shared is None else max(most, shared.dearest.get(currency, 0))


def _unknown(found: Iterable[tuple[NamedModel, CallCost | None]], currency: str) -> str:
    """The reason why the cost is not known."""
    for one, cost in found:
        if cost is None:
            return f"the price of the model {one.name!r} is not known"
        if cost.currency != currency:
            return f"the price of the model {one.name!r} is in {cost.currency} ({cost.basis}) and is not converted"
    return "the model is not named, so its price is not known"


_NEXT: Final = (
    "nothing was sent; name the model with run.options(model=...) and its price in prices.yaml, or declare what such a "
    "call counts: unpriced='0.05 EUR' beside cost"
)
