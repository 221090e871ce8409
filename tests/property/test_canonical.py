"""Canonical arguments: injective, equal to RFC 8785, restored as they were, refused by name."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from beforehand.errors import ArgumentError
from beforehand.model.canonical.encode import (
    DEFAULT_LIMITS,
    Limits,
    _fast,
    _identity,
    canonical,
    digest,
    forms,
    restore,
)
from beforehand.model.secret import Secret

SAFE = 2**53 - 1
NAIVE = datetime.fromisoformat("2024-01-01")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1


class Word(StrEnum):
    RED = "red"


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Line:
    a: Any
    b: Any = None


@dataclass(frozen=True)
class Other:
    a: Any
    b: Any = None


class Point(NamedTuple):
    a: Any
    b: Any = None


class Struct(msgspec.Struct, frozen=True):
    a: Any
    b: Any = None


class Model(pydantic.BaseModel, frozen=True):
    a: Any
    b: Any = None


RECORDS = (Line, Other, Point, Struct, Model)
ANNOTATION = Line | Other | Point | Struct | Model | Colour | Size | Word | Right
TAGS = ["$decimal", "$tuple", "$object", "$enum", "$int", "$map", "$set", "$secret", "$redacted", "$", "$$", "$$int"]

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
keys = st.sampled_from(["a", "b", "é", "\ufb33", "\U0001f600", *TAGS]) | text
# Few and close to each other, so that two draws often meet.
neighbours = st.sampled_from([
    None, True, False, 0, 1, 1.0, -0.0, 0.0, 1.5, "", "1", "1.5", "red", "a", b"", b"1", Decimal(1), Decimal("1.0"),
    Decimal("1.5"), Decimal("1E+2"), Decimal(100), Decimal("-0"), SAFE, SAFE + 1, float(SAFE + 1), 10**20, 1e20, "$int",
    Path("a"), Colour.RED, Colour.BLUE, Size.SMALL, Word.RED, Right.READ, Right.READ | Right.WRITE, Right(0),
    date(2024, 1, 1), NAIVE, datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01", time(0), timedelta(0),
    datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), timedelta(microseconds=-1), UUID(int=1),
    Secret("a"), Secret("b"),
])  # fmt: skip
zones = st.none() | st.sampled_from([UTC, timezone(timedelta(hours=-7, minutes=-30))])
far = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), text, st.binary(max_size=8), st.dates(),
    st.decimals(allow_nan=False, allow_infinity=False), st.timedeltas(), st.uuids(), st.times(timezones=zones),
    st.datetimes(min_value=NAIVE.replace(year=2), max_value=NAIVE.replace(year=9998), timezones=zones),
)  # fmt: skip


def records(inner):
    return st.builds(lambda kind, a, b: kind(a=a, b=b), st.sampled_from(RECORDS), inner, inner)


hashable = st.recursive(
    neighbours | far,
    lambda inner: st.tuples(inner) | st.tuples(inner, inner) | st.frozensets(inner, max_size=2) | records(inner),
    max_leaves=4,
)


values = st.recursive(
    neighbours | far,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=2).map(tuple),
        st.sets(hashable, max_size=2),
        st.frozensets(hashable, max_size=2),
        st.dictionaries(keys, inner, max_size=2),
        st.dictionaries(hashable, inner, max_size=2),
        records(inner),
    ),
    max_leaves=8,
)


def meaning(value: Any, *, exact: bool = False) -> object:  # noqa: C901, PLR0912 - one case per type
    """What `value` is, hashable: said here a second time, apart from the code under test."""

    def of(inner):
        return meaning(inner, exact=exact)

    match value:
        case Enum():
            return (type(value), value.name, value.value)
        case Secret():
            return (Secret, value.name)
        case bool() | None:
            return (bool, value)
        case float() if exact:
            return (float, repr(value))
        case int() | float():
            kind = "number" if abs(value) <= SAFE and value == int(value) else type(value).__name__
            return (kind, value)
        case Decimal():
            return (Decimal, str(value) if exact else value)
        case datetime():
            aware = value.utcoffset() is not None
            return (datetime, aware, value.isoformat() if exact or not aware else value.astimezone(UTC))
        case time():
            return (time, value.isoformat())
        case PurePath():
            return (PurePath, str(value))
        case Point() | Line() | Other() | Struct() | Model():
            return (type(value), of(value.a), of(value.b))
        case list() | tuple():
            return (type(value), tuple(map(of, value)))
        case set() | frozenset():
            return (type(value), frozenset(map(of, value)))
        case dict():
            return (dict, frozenset((of(key), of(item)) for key, item in value.items()))
        case _:
            return (type(value), value)


@given(values, values)
@example({"$decimal": "1"}, Decimal(1))
@example({"$$decimal": "1"}, {"$decimal": "1"})
@example({"$tuple": [1]}, (1,))
@example({"$object": ["Line", {"a": 1, "b": 2}]}, Line(1, 2))
@example({"$secret": "a"}, Secret("a"))
@example({"$map": [[1, 2]]}, {1: 2})
@example({1: 2}, {True: 2})
@example({1: 2}, {"1": 2})
@example({Word.RED: 1}, {"red": 1})
@example(True, 1)
@example(Line(1), Other(1))
def test_forms_are_equal_exactly_when_values_are(one, two):
    same_form = canonical({"value": one}) == canonical({"value": two})
    assert same_form == (meaning(one) == meaning(two))


def twin(value: Any) -> Any:
    """The same value, spelled another way wherever its type knows two spellings."""
    match value:
        case bool() | Enum():
            return value
        case float() | int() if abs(value) <= SAFE and value == int(value):
            return int(value) if isinstance(value, float) else float(value)
        case Decimal():
            sign, digits, exponent = value.as_tuple()
            return Decimal((sign, (*digits, 0, 0), exponent - 2))
        case datetime() if value.utcoffset() is not None:
            return value.astimezone(timezone(timedelta(hours=5, minutes=45)))
        case Point() | Line() | Other() | Struct() | Model():
            return type(value)(a=twin(value.a), b=twin(value.b))
        case list() | tuple() | set() | frozenset():
            return type(value)(map(twin, value))
        case dict():
            return {twin(key): twin(item) for key, item in reversed(value.items())}
        case _:
            return value


@given(values)
def test_another_spelling_of_the_same_value_has_the_same_form(value):
    assert canonical({"value": twin(value)}) == canonical({"value": value})


@given(st.dictionaries(keys, values, max_size=3), st.dictionaries(keys, values, max_size=3))
def test_whole_calls_are_told_apart_too(one, two):
    same = digest(b"key", canonical(one)) == digest(b"key", canonical(two))
    assert same == (meaning(one) == meaning(two))


@given(st.dictionaries(keys, values, max_size=3))
def test_stored_arguments_come_back_as_they_were(arguments):
    both = forms(arguments)
    types = dict.fromkeys(arguments, ANNOTATION)
    assert both.executable
    restored = restore(both.stored, types)
    assert meaning(restored, exact=True) == meaning(arguments, exact=True)
    assert canonical(restored) == both.identity
    assert meaning(restore(both.identity, types)) == meaning(arguments)


@given(st.dictionaries(keys, values, max_size=3))
def test_both_forms_are_json_and_the_identity_is_rfc_8785(arguments):
    both = forms(arguments)
    assert rfc8785.dumps(json.loads(both.identity, parse_int=float)) == both.identity
    json.loads(both.stored)


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-SAFE, SAFE) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
simple = st.recursive(
    st.none() | st.booleans() | st.integers(-SAFE - 1, SAFE + 1) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def looks_like_a_tag(value) -> bool:
    if isinstance(value, dict):
        alone = len(value) == 1 and next(iter(value)).startswith("$")
        return alone or any(map(looks_like_a_tag, value.values()))
    return isinstance(value, list) and any(map(looks_like_a_tag, value))


@given(st.dictionaries(keys, documents, max_size=4).filter(lambda document: not looks_like_a_tag(document)))
@example({"\ufb33": 1, "\U0001f600": 2})
def test_plain_json_is_written_as_rfc_8785_writes_it(document):
    assert canonical(document) == rfc8785.dumps(document)


@given(st.dictionaries(keys, simple, max_size=4))
@example({"\ufb33": 1, "\U0001f600": 2})
@example({"a": {"\ufb33": 1, "\U0001f600": 2}})
@example({"a": ['\u2028 é \x7f " \\ / \x1f \b\f\n\r\t']})
@example({"a": SAFE + 1, "b": -SAFE - 1})
@example({Word.RED: 1})
def test_the_fast_path_equals_the_slow_one(document):
    fast = _fast(document, DEFAULT_LIMITS)
    assert fast is None or fast == _identity(document, DEFAULT_LIMITS)


POISON = {
    "nan": float("nan"),
    "infinity": float("-inf"),
    "decimal": Decimal("NaN"),
    "surrogate": "a\ud800",
    "nul": "a\0b",
    "object": object(),
    "class": int,
    "complex": 1j,
    "generator": iter(()),
    "digits": 10**5000,
    "path": Path("\udcff"),
    "key": {"\ud800": 1},
}


@st.composite
def poisoned(draw):
    """Some poison somewhere in a value, and the path to it."""
    name = draw(st.sampled_from(sorted(POISON)))
    value, path = POISON[name], "['\\ud800']" if name == "key" else ""
    for shape in draw(st.lists(st.sampled_from(["list", "tuple", "dict", "words", "map", "record"]), max_size=5)):
        value, path = {
            "list": ([0, value], f"[1]{path}"),
            "tuple": ((value,), f"[0]{path}"),
            "dict": ({"b": 1, "a": value}, f".a{path}"),
            "words": ({"two words": value}, f"['two words']{path}"),
            "map": ({7: value}, f"[7]{path}"),
            "record": (Line(1, value), f".b{path}"),
        }[shape]
    return value, f"order{path}"


@given(poisoned())
def test_poison_is_refused_and_its_place_is_named(case):
    value, path = case
    with pytest.raises(ArgumentError) as refused:
        forms({"fine": 1, "order": value})
    assert refused.value.parameter == path
    assert str(refused.value).startswith(f"{path}: ")


@given(st.integers(1, 6), st.sampled_from(["list", "dict", "tuple", "record"]))
def test_nesting_up_to_the_limit_is_taken_and_one_more_is_refused(depth, shape):
    wrap = {
        "list": lambda inner: [inner],
        "dict": lambda inner: {"a": inner},
        "tuple": lambda inner: (inner,),
        "record": Line,
    }[shape]
    value: object = 1
    for _ in range(depth):
        value = wrap(value)
    canonical({"value": value}, limit=Limits(depth=depth))
    with pytest.raises(ArgumentError, match="nested deeper"):
        canonical({"value": value}, limit=Limits(depth=depth - 1))


@given(st.dictionaries(keys, values, min_size=1, max_size=3))
def test_the_size_limit_counts_the_bytes_of_the_form(arguments):
    size = len(canonical(arguments))
    assert len(canonical(arguments, limit=replace(DEFAULT_LIMITS, size=size))) == size
    with pytest.raises(ArgumentError, match="larger than"):
        canonical(arguments, limit=replace(DEFAULT_LIMITS, size=size - 1))
