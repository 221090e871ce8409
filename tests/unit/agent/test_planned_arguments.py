"""Arguments as strict structured output gives them."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand.errors import ArgumentError
from beforehand.model.parameters import strict
from beforehand.planning.checks import parse_planned

TYPES: dict[str, object] = {"to": str, "cents": int, "note": str, "tags": dict[str, int]}


def planned(**sent: object) -> dict[str, object]:
    return parse_planned(sent, TYPES, {"to"})


def test_null_leaves_out_what_may_be_left_out():
    assert planned(to="ann", note=None, tags=None) == {"to": "ann"}


def test_null_for_what_is_needed_is_refused():
    with pytest.raises(ArgumentError, match="to"):
        planned(to=None)


def test_what_has_no_strict_schema_may_be_said_as_json_text():
    assert planned(to="ann", tags='{"vip": 1}') == {"to": "ann", "tags": {"vip": 1}}


def test_text_that_says_no_json_is_refused_as_the_text_it_is():
    with pytest.raises(ArgumentError, match="tags"):
        planned(to="ann", tags="{")


def test_text_for_what_has_a_strict_schema_is_text_and_no_json():
    with pytest.raises(ArgumentError, match="cents"):
        planned(to="ann", cents="12")


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"const": "refund"}, {"type": "string", "const": "refund"}),
        ({"const": 3}, {"type": "integer", "const": 3}),
        ({"enum": ["a", 1]}, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}]}),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
    ],
    ids=["constant text", "constant number", "mixed choices", "choices"],
)
def test_constants_and_choices_name_their_type(schema: dict[str, Any], wanted: dict[str, Any]):
    assert strict(schema, {}) == (wanted, {})
