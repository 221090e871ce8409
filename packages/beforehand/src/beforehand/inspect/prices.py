"""Prices of models: from a file of your own, then from the data that the library `genai-prices` brings.

Amounts are decimal numbers. A model without a price is unknown, never free: a free model is declared with the price 0.
Nothing is downloaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from beforehand.model.alike import unknown_fields
from beforehand.model.errors import UsageError
from beforehand.model.money import EXACT, currency_fault
from beforehand.model.usage import CallCost, PriceSource, Usage

_MILLION: Final = Decimal(1_000_000)
_HIGHEST: Final = Decimal(1_000_000_000)
_LIBRARY: Final = "genai-prices"


class ModelPrice(msgspec.Struct, frozen=True):
    """The price of a million tokens of one model, by kind. A kind without a price costs what input or output costs."""

    input: Decimal
    output: Decimal
    cached: Decimal | None = None
    cache_write: Decimal | None = None
    reasoning: Decimal | None = None
    audio_input: Decimal | None = None
    audio_output: Decimal | None = None

    def amount(self, used: Usage) -> Decimal | None:
        """The price of this usage; None where its counts contradict."""
        if used.contradicts:
            return None
        inside = (
            (used.cached_tokens, self.cached), (used.cache_write_tokens, self.cache_write),
            (used.audio_input_tokens, self.audio_input),
        )  # fmt: skip
        outside = ((used.reasoning_tokens, self.reasoning), (used.audio_output_tokens, self.audio_output))
        read = _amount(used.input_tokens, self.input, inside)
        written = _amount(used.output_tokens, self.output, outside)
        return EXACT.divide(EXACT.add(read, written), _MILLION)


class Prices:
    """Several lists of prices: the first one that knows a model counts."""

    def __init__(self, *sources: PriceSource | None) -> None:
        self.sources: Final = [one for one in sources if one is not None]

    @property
    def basis(self) -> str:
        """The names of the lists."""
        return ", ".join(one.basis for one in self.sources)

    def cost(self, used: Usage, at_ms: int) -> CallCost | None:
        """The cost of a known usage; None where no list knows the model."""
        return next((found for one in self.sources if (found := one.cost(used, at_ms)) is not None), None)


class DeclaredPrices(msgspec.Struct, frozen=True):
    """The prices of a file of your own. A name that ends in `*` holds for all models that begin so."""

    basis: str
    currency: str
    models: dict[str, ModelPrice]

    def cost(self, used: Usage, at_ms: int) -> CallCost | None:  # noqa: ARG002 - a part of the interface
        """The cost by the entry of the model, else by the longest pattern that fits."""
        price = self.models.get(used.model)
        if price is None:
            fits = [name for name in self.models if name.endswith("*") and used.model.startswith(name[:-1])]
            price = self.models[max(fits, key=len)] if fits and used.model else None
        amount = None if price is None else price.amount(used)
        return None if amount is None else CallCost(amount, self.currency, self.basis)


class PublishedPrices:
    """The prices that the library `genai-prices` brings, in US dollars, as they were at the time of the call."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.basis: Final = f"{_LIBRARY} {version(_LIBRARY)}"
        self._found = lru_cache(maxsize=4096)(self._ask)

    def cost(self, used: Usage, at_ms: int) -> CallCost | None:
        """The cost of this usage; None for a model, or for a kind of token, without a price."""
        counted = msgspec.structs.replace(used, request="", cost=0.0)
        amount = self._found(counted, at_ms - at_ms % 3_600_000) if used.model else None
        return None if amount is None else CallCost(amount, "USD", self.basis)

    def _ask(self, used: Usage, at_ms: int) -> Decimal | None:
        counts = {
            "input_tokens": used.input_tokens, "cache_read_tokens": used.cached_tokens,
            "cache_write_tokens": used.cache_write_tokens, "input_audio_tokens": used.audio_input_tokens,
            "output_tokens": used.output_tokens, "output_audio_tokens": used.audio_output_tokens,
            "output_reasoning_tokens": used.reasoning_tokens,
        }  # fmt: skip
        place = "provider_api_url" if "://" in used.service else "provider_id"
        try:
            found = self._library.calc_price(
                self._library.Usage(**{name: number or None for name, number in counts.items()}),
                used.model,
                genai_request_timestamp=datetime.fromtimestamp(at_ms / 1000, UTC),
                **{place: used.service or None},
            )
        except (LookupError, ValueError):
            return None  # the model is not listed, or the parts of the usage are more than the whole
        # The library counts tokens without a price as free. That is not known of them.
        if (used.input_tokens and not found.input_price) or (used.output_tokens and not found.output_price):
            return None
        return cast("Decimal", found.total_price)


def published_prices() -> PublishedPrices | None:
    """The prices of the library; None where it is not installed."""
    try:
        return PublishedPrices(import_module("genai_prices"))
    except ImportError:
        return None


def price_list(source: PriceSource | str | os.PathLike[str] | None) -> PriceSource:
    """The prices of a YAML file, then the published ones; or a list as it is given. Raises `UsageError`."""
    if source is not None and not isinstance(source, (str, os.PathLike)):
        if callable(getattr(source, "cost", None)):
            return source
        raise UsageError(
            f"prices={source!r} is not a list of prices",
            known="nothing was counted with it",
            next_step="name a file, prices='prices.yaml', or give declared_prices({...}, 'my prices')",
        )
    return Prices(None if source is None else _from_file(source), published_prices())


def _from_file(source: str | os.PathLike[str]) -> DeclaredPrices:
    from beforehand.people.policy.policy_files import read_yaml  # noqa: PLC0415 - only where a file is named

    try:
        return declared_prices(read_yaml(Path(source), "a file of prices") or {}, os.fspath(source))
    except PricesError:
        raise
    except UsageError as error:
        error.known = "nothing was counted"
        raise


# --- a file of your own -----------------------------------------------------------------------------------------------


class PricesError(UsageError):
    """Prices that cannot be used. `faults` lists all of them, each with its place."""

    def __init__(self, where: str, faults: Sequence[str]) -> None:
        count = f"{len(faults)} faults" if len(faults) > 1 else "a fault"
        super().__init__(
            f"{where} has {count}: {'; '.join(faults)}",
            known="nothing was counted with these prices",
            next_step=f"correct {where}",
        )
        self.faults = tuple(faults)


def declared_prices(given: object, where: str) -> DeclaredPrices:
    """The prices from the plain values of a file. Raises `PricesError` naming every fault."""
    if not isinstance(given, dict):
        raise PricesError(where, ("it holds no mapping with models",))
    whole = cast("dict[str, Any]", given)
    faults = list(unknown_fields(whole, ("version", "currency", "models"), ""))
    currency: object = whole.get("currency", "USD")
    if (fault := currency_fault(currency)) is not None:
        faults.append(f"currency: {fault}")
    models: object = whole.get("models")
    if not isinstance(models, dict) or not models:
        faults.append("models: it is a mapping of names to prices, with at least one model")
        models = {}
    named = cast("dict[object, object]", models)
    prices = {str(name): _price(one, f"models.{name}", faults) for name, one in named.items()}
    if faults:
        raise PricesError(where, faults)
    label = f" ({whole['version']})" if whole.get("version") else ""
    return DeclaredPrices(f"{where}{label}", str(currency), prices)


def _price(given: object, where: str, faults: list[str]) -> ModelPrice:
    kinds = ModelPrice.__struct_fields__
    if not isinstance(given, dict):
        faults.append(f"{where}: it is a mapping of prices per million tokens, with input and output")
        return ModelPrice(Decimal(0), Decimal(0))
    fields = cast("dict[str, Any]", given)
    faults += unknown_fields(fields, kinds, f"{where}.")
    faults += [f"{where}.{name}: it is missing; a free one is 0" for name in kinds[:2] if name not in fields]
    amounts = {kind: _decimal(fields[kind], f"{where}.{kind}", faults) for kind in kinds if kind in fields}
    return ModelPrice(**{"input": Decimal(0), "output": Decimal(0), **amounts})


def _decimal(given: object, where: str, faults: list[str]) -> Decimal:
    """The number as it is written: the shortest text of a float is the one in the file."""
    written = str(given) if type(given) in (int, float, str) else ""
    try:
        amount = Decimal(written)
    except InvalidOperation:
        faults.append(f"{where}: {repr(given)[:42]} is not a number")
        return Decimal(0)
    if not amount.is_finite() or amount > _HIGHEST:
        faults.append(f"{where}: {written[:40]} is above {_HIGHEST:,}")
    elif amount < 0:
        faults.append(f"{where}: {written[:40]} is below zero")
    return amount


def _amount(whole: int, price: Decimal, parts: Sequence[tuple[int, Decimal | None]]) -> Decimal:
    """The price of tokens of which some have a price of their own."""
    rest, amount = whole - sum(number for number, _ in parts), Decimal(0)
    for number, own in (*parts, (rest, price)):
        amount = EXACT.add(amount, EXACT.multiply(Decimal(number), price if own is None else own))
    return amount


def add_costs(sums: dict[str, Decimal], costs: Mapping[str, Decimal]) -> None:
    """Add amounts to the sums of their currencies."""
    for currency, amount in costs.items():
        sums[currency] = EXACT.add(sums.get(currency, Decimal(0)), amount)
