"""Stored arguments as conditions see them: values without their types, and nothing that is not stored."""

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from beforehand.model.canonical.encode import forms
from beforehand.model.canonical.plain import plain_arguments
from beforehand.model.secret import Secret


class Colour(Enum):
    RED = "r"


@dataclass
class Order:
    id: str
    price: Decimal


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (5, 5),
        ("text", "text"),
        (None, None),
        ([1, {"a": True}], [1, {"a": True}]),
        (2**60, 2**60),
        (Decimal("12.50"), 12.5),
        (date(2026, 3, 1), "2026-03-01"),
        (timedelta(seconds=90), "90"),
        (UUID(int=1), str(UUID(int=1))),
        (Path("a/b"), "a/b"),
        ((1, Decimal(2)), [1, 2.0]),
        (frozenset({1}), [1]),
        ({1: "one"}, {"1": "one"}),
        (Order("A", Decimal("0.5")), {"id": "A", "price": 0.5}),
        (Colour.RED, "RED"),
        ({"$key": 1}, {"$key": 1}),
        ([b"bytes", 1], [1]),
    ],
)
def test_values_are_plain(given: Any, seen: Any):
    kept = forms({"it": given, "other": 1}).stored
    assert plain_arguments(kept) == {"it": seen, "other": 1}


def test_what_is_not_stored_is_left_out():
    kept = forms({"pin": "1234", "token": Secret("TOKEN"), "raw": b"x", "cents": 5}, frozenset({"pin"})).stored
    assert plain_arguments(kept) == {"cents": 5}


@pytest.mark.parametrize("text", [b'{"$int":"5"}', b'{"$unknown":1}'])
def test_arguments_that_are_one_odd_value_are_none(text: bytes):
    assert plain_arguments(text) == {}


def test_a_form_of_a_later_version_is_not_shown():
    assert plain_arguments(b'{"a":{"$later":1},"b":2}') == {"b": 2}


def test_an_argument_named_like_a_tag_is_seen():
    kept = forms({"$it": 5}).stored
    assert plain_arguments(kept) == {"$it": 5}
