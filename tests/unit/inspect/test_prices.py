"""Prices of models: declared in a file, and published in the library; what has none is unknown and never free."""

import socket
from decimal import Decimal
from typing import Any

import pytest

from beforehand.inspect.prices import Prices, PricesError, declared_prices, published_prices
from beforehand.model.usage import CallCost, Usage

NOON = 1_767_268_800_000
FILE: dict[str, Any] = {
    "version": "2027-01",
    "currency": "EUR",
    "models": {
        "house": {
            "input": 0.1,
            "output": "0.30",
            "cached": 0.01,
            "cache_write": 0.2,
            "reasoning": 0.5,
            "audio_input": 1,
            "audio_output": 2,
        },
        "plain": {"input": 3, "output": 15},
        "plain-*": {"input": 1, "output": 1},
        "plain-big-*": {"input": 7, "output": 7},
        "free": {"input": 0, "output": 0},
    },
}


def amount(model: str, usage: Usage) -> Decimal | None:
    found = declared_prices(FILE, "prices.yaml").cost(Usage(**{**_fields(usage), "model": model}), NOON)
    return None if found is None else found.amount


def _fields(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in Usage.__struct_fields__}


def test_each_kind_of_token_has_its_price():
    used = Usage(1_000_000, 1_000_000, 0.0, 400_000, 100_000, 300_000, 50_000, 10_000)
    assert amount("house", used) == Decimal("0.045") + Decimal("0.004") + Decimal("0.02") + Decimal("0.05") + (
        Decimal("0.207") + Decimal("0.15") + Decimal("0.02")
    )


def test_a_kind_without_a_price_costs_what_the_whole_costs():
    assert amount("plain", Usage(1_000_000, 1_000_000, cached_tokens=900_000, reasoning_tokens=900_000)) == 18


def test_amounts_are_exact():
    """In floats, 0.1 for a million tokens, three times, is not 0.3."""
    cost = amount("house", Usage(1, 0))
    assert cost == Decimal("0.0000001")
    assert cost is not None
    assert cost * 3_000_000 == Decimal("0.3")


def test_the_longest_pattern_counts_and_an_exact_name_before_it():
    million = Usage(1_000_000, 0)
    assert [amount(one, million) for one in ("plain", "plain-2", "plain-big-2", "house-2", "")] == [3, 1, 7, None, None]


def test_a_free_model_is_declared_and_known():
    assert amount("free", Usage(5, 5)) == 0


def test_a_usage_that_cannot_be_true_has_no_price():
    assert amount("house", Usage(10, 0, cached_tokens=11)) is None
    assert amount("house", Usage(0, 10, reasoning_tokens=6, audio_output_tokens=5)) is None


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        (None, ("it holds no mapping with models",)),
        ({"models": {}}, ("models: it is a mapping of names to prices, with at least one model",)),
        ({"models": [1]}, ("models: it is a mapping of names to prices, with at least one model",)),
        ({"models": {"m": 5}}, ("models.m: it is a mapping of prices per million tokens, with input and output",)),
        ({"models": {"m": {"input": 1}}}, ("models.m.output: it is missing; a free one is 0",)),
        ({"models": {"m": {"input": -1, "output": 1}}}, ("models.m.input: -1 is below zero",)),
        ({"models": {"m": {"input": "1e400", "output": 1}}}, ("models.m.input: 1e400 is above 1,000,000,000",)),
        (
            {"models": {"m": {"input": float("inf"), "output": float("nan")}}},
            ("models.m.input: inf is above 1,000,000,000", "models.m.output: nan is above 1,000,000,000"),
        ),
        (
            {"models": {"m": {"input": "cheap", "output": True}}},
            ("models.m.input: 'cheap' is not a number", "models.m.output: True is not a number"),
        ),
        (
            {"models": {"m": {"input": 1, "output": 1, "cachd": 1}}},
            ("models.m.cachd: unknown field; did you mean cached?",),
        ),
        (
            {"currency": "EURO", "models": {"m": {"input": 1, "output": 1}}},
            ("currency: 'EURO' is not an ISO 4217 code; did you mean EUR?",),
        ),
        (
            {"currency": 7, "modles": {}, "models": {"m": {"input": 1, "output": 1}}},
            ("modles: unknown field; did you mean models?", "currency: 7 is not an ISO 4217 code"),
        ),
    ],
)
def test_every_fault_of_a_file_is_named(given: object, faults: tuple[str, ...]):
    with pytest.raises(PricesError) as refused:
        declared_prices(given, "prices.yaml")
    assert refused.value.faults == faults
    assert refused.value.next_step == "correct prices.yaml"


def published(usage: Usage) -> CallCost | None:
    source = published_prices()
    assert source is not None
    return source.cost(usage, NOON)


def test_published_prices_need_no_network(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    found = published(Usage(12_000, 800, cached_tokens=2_000, reasoning_tokens=100, model="gpt-5", service="openai"))
    assert found is not None
    assert (found.amount, found.currency) == (Decimal("0.02075"), "USD")
    assert found.basis.startswith("genai-prices ")


@pytest.mark.parametrize(
    "usage",
    [
        Usage(10, 10),
        Usage(10, 10, model="no-such-model"),
        Usage(10, 10, model="gpt-5", service="http://127.0.0.1:8000/v1"),
        Usage(10, 10, model="gpt-5", service="no-such-service"),
        Usage(10, 10, cached_tokens=11, model="gpt-5", service="openai"),
        Usage(10, 10, model="gemma-3", service="google"),
        Usage(10, 10, model="text-embedding-3-small", service="openai"),
    ],
)
def test_what_the_library_does_not_price_is_unknown(usage: Usage):
    """It counts tokens without a price as free: a listed model without prices, or a kind of token without one."""
    assert published(usage) is None


def test_an_address_of_a_provider_names_it():
    at_home = published(Usage(10, 10, model="gpt-5", service="https://api.openai.com/v1"))
    assert at_home == published(Usage(10, 10, model="gpt-5", service="openai"))


def test_the_first_list_that_knows_a_model_counts():
    own = declared_prices({"models": {"gpt-5": {"input": 0, "output": 0}}}, "prices.yaml")
    prices = Prices(own, None, published_prices())
    free = prices.cost(Usage(1000, 1000, model="gpt-5", service="openai"), NOON)
    other = prices.cost(Usage(1000, 1000, model="gpt-5-mini", service="openai"), NOON)
    assert free == CallCost(Decimal(0), "USD", "prices.yaml")
    assert other is not None
    assert other.amount > 0
