"""Results by return annotation, and parameters as a model sees and fills them."""

from __future__ import annotations

import inspect
import json
import secrets
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from beforehand.errors import ArgumentError
from beforehand.model.canonical.forms import Limits
from beforehand.model.parameters import parameters_schema, parse_arguments
from beforehand.model.secret import Secret
from beforehand.model.values import ResultError, codec_for


class Colour(Enum):
    RED = "red"


@dataclass
class Receipt:
    amount: Decimal
    at: datetime
    tags: tuple[str, ...] = ()
    seen: set[int] = field(default_factory=set)


@dataclass
class Bigger(Receipt):
    note: str = ""


class Point(NamedTuple):
    x: int
    y: float


class Struct(msgspec.Struct):
    id: UUID
    data: bytes


class Row(TypedDict):
    a: int


class Model(pydantic.BaseModel):
    price: Decimal
    day: date = pydantic.Field(alias="on")

    @pydantic.computed_field
    @property
    def double(self) -> Decimal:
        return self.price * 2


class Outer(pydantic.BaseModel, extra="forbid"):
    inner: list[Model]
    count: int


class Opaque:
    pass


AT = datetime(2024, 1, 1, tzinfo=UTC)
MODEL = Model(price=Decimal("1.50"), on=date(2024, 1, 1))


# --- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "é\0"), (int, 2**63), (float, 1.5), (bool, True), (bytes, b"\xff"), (date, date(2024, 1, 1)), (Colour, Colour.RED),
        (Decimal, Decimal("1.50")), (Path, Path("a/b")), (UUID, UUID(int=1)), (dict[int, str], {1: "a"}), (Row, {"a": 1}),
        (Receipt, Receipt(Decimal("1.0"), AT, ("a",), {3, 1})), (Point, Point(1, 2.0)), (Struct, Struct(UUID(int=1), b"x")),
        (Model, MODEL), (list[Outer] | None, [Outer(inner=[MODEL], count=1)]), (Outer | None, None), (tuple[int, str], (1, "a")),
        (frozenset[str], frozenset("ab")), (Annotated[int, msgspec.Meta(ge=0)], 1), (Literal["a"], "a"), (dict[str, object], {"a": [1]}),
        (Any, {"a": [1, 1.5, None, True, {"b": "c"}]}), (object, [1]), (inspect.Signature.empty, "a"), (Any, 2**63),
    ],
)  # fmt: skip
def test_a_result_comes_back_as_it_was(annotation, value):
    data, decoded = codec_for(annotation).round_trip(value)
    assert decoded == value
    assert type(decoded) is type(value)
    assert codec_for(annotation).decode(data) == value
    assert codec_for(annotation).encode(value) == data
    json.loads(data)


@pytest.mark.parametrize(
    ("annotation", "value", "delivered"),
    [
        (Any, {"a": (1, (2,))}, {"a": [1, [2]]}),
        (float, 3, 3.0),
        (None, "dropped", None),
        (type(None), Opaque(), None),
    ],
)
def test_everybody_gets_the_decoded_value(annotation, value, delivered):
    data, decoded = codec_for(annotation).round_trip(value)
    assert decoded == delivered
    assert type(decoded) is type(delivered)
    assert codec_for(annotation).encode(value) == data
    assert codec_for(annotation).decode(data) == delivered


def test_a_class_without_equality_is_compared_by_its_content():
    class Plain(msgspec.Struct, eq=False):
        tags: set[str]
        more: dict[int, str]

    data, decoded = codec_for(Plain).round_trip(Plain(set("abcdef"), {1: "a"}))
    assert decoded.tags == set("abcdef")
    assert decoded.more == {1: "a"}
    assert codec_for(Plain).decode(data).tags == set("abcdef")


@pytest.mark.parametrize(
    ("annotation", "value", "why"),
    [
        (int, "5", "Expected `int`, got `str`"),
        (str, None, "Expected `str`, got `null`"),
        (float, float("inf"), "Expected `float`, got `null`"),
        (float | None, float("nan"), "nan is not a number"),
        (dict[str, float | None], {"a": float("nan")}, "nan is not a number"),
        (tuple[float | None, int], (float("nan"), 1), "nan is not a number"),
        (Any, [float("nan")], "nan is not a number"),
        (Any, "\ud800", "surrogates not allowed"),
        (Any, Receipt(Decimal(1), AT), "the result is of type Receipt, which needs a return annotation"),
        (Any, {"a": [AT]}, r"the result\['a'\]\[0\] is of type datetime"),
        (Any, {1: 2}, "a key that is not text"),
        (Opaque, Opaque(), "the type Opaque has no stored form"),
        (dict[str, Any], {"a": object()}, "the type object has no stored form"),
        (Receipt, Bigger(Decimal(1), AT), "it comes back changed"),
        (Outer, {"inner": [], "count": "x"}, "count: Input should be a valid integer"),
    ],
)
def test_a_result_that_cannot_make_the_trip_is_refused(annotation, value, why):
    with pytest.raises(ResultError, match=why) as lost:
        codec_for(annotation).round_trip(value)
    assert "The call itself returned." in str(lost.value)


def test_a_result_that_contains_itself_is_refused():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ResultError, match="recursion"):
        codec_for(Any).round_trip(loop)


def test_a_value_that_cannot_be_compared_is_compared_with_care():
    @dataclass
    class Touchy:
        a: int

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("compare me elementwise")

        __hash__ = None  # type: ignore[assignment]  # as arrays have it

    _, decoded = codec_for(Touchy).round_trip(Touchy(1))
    assert decoded.a == 1


def test_an_old_result_that_no_longer_fits_says_so():
    with pytest.raises(ResultError, match="its former return annotation"):
        codec_for(int).decode(b'"a"')


def test_an_annotation_that_cannot_be_decoded_is_refused_when_the_tool_is_made():
    with pytest.raises(ResultError, match="cannot be read back"):
        codec_for(Receipt | Bigger)


def test_a_secret_and_the_text_of_an_error_stay_apart():
    value = secrets.token_hex(16)
    with pytest.raises(ResultError) as lost:
        codec_for(dict[str, Any]).round_trip({"a": Secret.of(value, name="a")})
    assert value not in str(lost.value)
    with pytest.raises(ResultError) as lost:
        codec_for(Outer).round_trip({"inner": [], "count": value})
    assert value not in str(lost.value)


def test_codecs_are_kept():
    assert codec_for(Receipt) is codec_for(Receipt)
    unhashable = Annotated[int, ["note"]]
    assert codec_for(unhashable).round_trip(1) == (b"1", 1)


# --- parameters -----------------------------------------------------------------------------------------------------

TYPES = {"order": str, "cents": int, "rate": float, "when": datetime, "boxes": list[Outer], "colour": Colour, "any": Any,
         "to": Path, "receipt": Receipt, "key": Secret | None}  # fmt: skip


def test_the_schema_names_types_requirements_and_descriptions():
    schema = parameters_schema(TYPES, ["order", "cents"], {"cents": "in cents"})
    assert schema["required"] == ["order", "cents"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["cents"] == {"type": "integer", "description": "in cents"}
    assert schema["properties"]["to"] == {"type": "string", "format": "path"}
    assert schema["properties"]["any"] == {}
    assert "key" not in schema["properties"]
    assert {"Receipt", "Colour", "Model"} <= schema["$defs"].keys()
    json.dumps(schema)
    assert parameters_schema({"a": dict[str, object]}, [])["properties"]["a"]["type"] == "object"
    assert "$defs" not in parameters_schema({"a": int}, [])


def test_every_reference_in_a_schema_leads_somewhere():
    text = json.dumps(schema := parameters_schema(TYPES, []))
    for reference in text.split('"$ref": "#/$defs/')[1:]:
        assert reference.split('"')[0] in schema["$defs"]


def test_what_has_no_schema_is_named():
    with pytest.raises(ArgumentError, match="thing: its type has no JSON Schema"):
        parameters_schema({"thing": Opaque}, [])
    with pytest.raises(ArgumentError, match="key: a secret cannot be chosen by a model"):
        parameters_schema({"key": Secret}, ["key"])

    def other() -> type:
        @dataclass
        class Receipt:
            other: int

        return Receipt

    with pytest.raises(ArgumentError, match="b: two different types are named"):
        parameters_schema({"a": other(), "b": msgspec.defstruct("Receipt", ["c"])}, [])


def test_what_a_model_sent_becomes_typed_arguments():
    sent = {"order": "o", "cents": 5, "rate": 1, "when": "2024-01-01T00:00:00Z", "colour": "red", "any": [1], "to": "a/b",
            "boxes": [{"count": 1, "inner": [{"price": "1.50", "on": "2024-01-01"}]}]}  # fmt: skip
    expected = {"order": "o", "cents": 5, "rate": 1.0, "when": AT, "colour": Colour.RED, "any": [1], "to": Path("a/b"),
                "boxes": [Outer(inner=[MODEL], count=1)]}  # fmt: skip
    for form in (json.dumps(sent), json.dumps(sent).encode(), sent):
        arguments = parse_arguments(form, TYPES, ["order"])
        assert arguments == expected
        assert type(arguments["rate"]) is float
    assert parse_arguments("", {"a": int}, []) == {}
    for keyed in ('{"a":{"1":"x"}}', {"a": {1: "x"}}):
        assert parse_arguments(keyed, {"a": dict[int, str]}, []) == {"a": {1: "x"}}
    assert parse_arguments({"a": [MODEL]}, {"a": list[Model]}, []) == {"a": [MODEL]}
    assert parse_arguments({"a": {"b": 1}}, {"a": dict[str, object]}, []) == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("sent", "parameter", "problem"),
    [
        ('{"order":"o","cents":"5"}', "cents", "Expected `int`, got `str`"),
        ('{"order":"o","cents":true}', "cents", "Expected `int`, got `bool`"),
        ('{"order":"o","rate":"1"}', "rate", "Expected `float`"),
        ('{"order":"o","receipt":{"amount":"1","at":"x"}}', "receipt.at", "Invalid RFC3339"),
        ('{"order":"o","boxes":[{"count":"5","inner":[]}]}', "boxes[0]", "count: Input should be a valid integer"),
        ('{"order":"o","boxes":[{"count":5,"inner":[{"on":"2024-01-01"}]}]}', "boxes[0]", r"inner\[0\].price: Field required"),
        ('{"order":"o","colour":"green"}', "colour", "Invalid enum value"),
        ('{"cents":1}', "order", "it is required"),
        ('{"order":"o","to":5}', "to", "the type Path cannot be read from int"),
        ({"order": "o", "boxes": [{"count": "\ud800"}]}, "boxes[0]", "surrogates not allowed"),
        ({"order": "o", "union": {}}, "union", "more than one dataclass"),
        ('{"order":"o","amount":1}', "amount", "The parameters are: order, cents, rate"),
        ('{"order":"o","key":"other-secret"}', "key", "there is no such parameter"),
        ('{"order":"o","order":"p"}', "order", "given twice"),
        ('{"order":"o","any":{"a":1,"a":2}}', "a", "given twice"),
        ('{"order":"o","any":NaN}', "(arguments)", "NaN is not JSON"),
        ('{"order":', "(arguments)", "this is not JSON"),
        (b"\xff", "(arguments)", "this is not JSON"),
        ("[1]", "(arguments)", "a JSON object is expected, not list"),
        ('{"order":' + "[" * 100_000, "(arguments)", "nested too deeply"),
        ('{"order":"' + "x" * 1_048_576, "(arguments)", "larger than 1048576 bytes"),
        ('{"any":' + "9" * 5000 + "}", "(arguments)", "this is not JSON"),
    ],
)  # fmt: skip
def test_what_a_model_sent_wrongly_is_named(sent, parameter, problem):
    with pytest.raises(ArgumentError, match=problem) as refused:
        parse_arguments(sent, {**TYPES, "union": Receipt | Bigger}, ["order"])
    assert refused.value.parameter == parameter
    assert "the tool was not called" in str(refused.value)


def test_the_size_of_what_is_parsed_is_a_setting():
    with pytest.raises(ArgumentError, match="larger than 3 bytes"):
        parse_arguments('{"a":1}', {"a": int}, [], limit=Limits(size=3))
