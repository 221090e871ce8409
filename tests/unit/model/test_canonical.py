"""The forms, one by one; the properties are in tests/property. The file is long because every form has its own."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
import pickle
import secrets
import string
import sys
from collections import OrderedDict
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from pathlib import Path, PureWindowsPath
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, NewType, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest

from beforehand.errors import ArgumentError, BeforehandError
from beforehand.model.canonical.encode import _fast, canonical, digest, forms, restore
from beforehand.model.canonical.forms import Limits
from beforehand.model.secret import RESOLVER, Secret, SecretUnavailableError, resolver_from

if TYPE_CHECKING:
    from somewhere import Unseen  # type: ignore[import-not-found]  # known to nobody


class Colour(Enum):
    RED = 1


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Line:
    price: Decimal
    count: int = 1


@dataclass(frozen=True, slots=True)
class Order:
    id: str
    lines: list[Line]
    colour: Colour | None = None


@dataclass(frozen=True)
class Express(Order):
    fee: Decimal = Decimal(0)


class Point(NamedTuple):
    x: int
    y: int


class Struct(msgspec.Struct):
    a: int
    b: Point


Content = TypeVar("Content")


class Patch(pydantic.BaseModel):
    name: str = "unnamed"
    email: str | None = pydantic.Field(default=None, alias="mail")


class Root(pydantic.RootModel[list[Patch]]):
    pass


class Box(pydantic.BaseModel, Generic[Content]):
    content: Content


class Loose(pydantic.BaseModel, extra="allow"):
    a: int


@dataclass
class Shy:
    unseen: Unseen | None
    lines: list[Line]


@dataclass
class Shyer:
    unseen: Unseen[int]


Bound = TypeVar("Bound", bound=Order)
OneOf = TypeVar("OneOf", Line, Order)


class Text(str):
    __slots__ = ()


def form(value: object) -> Any:
    return json.loads(canonical({"value": value}))["value"]


# --- forms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (True, True), (1, 1), (1.0, 1), (-0.0, 0), (1.5, 1.5), ("é", "é"),
        (2**53, {"$int": "9007199254740992"}), (-(2**53), {"$int": "-9007199254740992"}),
        ([1, "a"], [1, "a"]), ({"b": 1, "a": 2}, {"a": 2, "b": 1}), (OrderedDict(a=1), {"a": 1}), (Text("a"), "a"),
        ((1,), {"$tuple": [1]}), ({2, 1}, {"$set": [1, 2]}), (frozenset({1}), {"$frozenset": [1]}),
        ({2: "b", 1: "a"}, {"$map": [[1, "a"], [2, "b"]]}), ({"$int": "1"}, {"$$int": "1"}), ({"$a": 1, "b": 2}, {"$a": 1, "b": 2}),
        (Decimal("1.50"), {"$decimal": "1.5"}), (Decimal("1E+2"), {"$decimal": "100"}), (Decimal("-0.00"), {"$decimal": "0"}),
        (Decimal("1E+999999"), {"$decimal": "1E+999999"}), (Decimal("0.1") + Decimal("1E-40"), {"$decimal": "0.1"}),
        (datetime.fromisoformat("2024-01-01T02:00"), {"$datetime": "2024-01-01T02:00:00"}),
        (datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), {"$datetime": "2024-01-01T00:00:00+00:00"}),
        (date(2024, 1, 1), {"$date": "2024-01-01"}), (time(12, tzinfo=UTC), {"$time": "12:00:00+00:00"}),
        (timedelta(days=1, microseconds=500_000), {"$timedelta": "86400.5"}), (timedelta(microseconds=-1), {"$timedelta": "-0.000001"}),
        (UUID(int=1), {"$uuid": "00000000-0000-0000-0000-000000000001"}), (b"\xff", {"$bytes": "/w=="}),
        (Path("a/b"), {"$path": "a/b"}), (PureWindowsPath("a/b"), {"$winpath": "a\\b"}),
        (Colour.RED, {"$enum": ["Colour", "RED"]}), (Right.READ | Right.WRITE, {"$enum": ["Right", 3]}),
        (Line(Decimal(1)), {"$object": ["Line", {"count": 1, "price": {"$decimal": "1"}}]}),
        (Point(1, 2), {"$object": ["Point", {"x": 1, "y": 2}]}),
        (Patch(), {"$object": ["Patch", {"email": None, "name": "unnamed"}]}),
        (Secret("payments"), {"$secret": "payments"}), (Secret.of("hush", name="payments"), {"$held-secret": "payments"}),
    ],
)  # fmt: skip
def test_each_type_has_its_form(value, expected):
    assert form(value) == expected
    assert type(form(value)) is type(expected)


def test_common_arguments_take_the_fast_path():
    for plain in ({"order_id": "o-1", "cents": 4200, "gift": True, "note": None}, {"lines": [{"sku": "é"}]}):
        assert _fast(plain, Limits()) == canonical(plain) == forms(plain).stored


def test_keys_beyond_ascii_are_ordered_by_utf_16():
    assert canonical({"a": {"\ufb33": 1, "\U0001f600": 2}}) == '{"a":{"\U0001f600":2,"\ufb33":1}}'.encode()


# --- refused --------------------------------------------------------------------------------------------------------


def test_a_refusal_says_where_and_that_nothing_happened():
    order = Order("o-1", [Line(Decimal(1)), Line(float("nan"))])  # type: ignore[arg-type]  # the fault to be found
    with pytest.raises(ArgumentError) as refused:
        canonical({"order": order})
    assert refused.value.parameter == "order.lines[1].price"
    assert "nothing was recorded and nothing was sent" in str(refused.value)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, BeforehandError)


def test_a_cycle_is_refused_and_a_value_used_twice_is_not():
    loop: list[object] = []
    loop.append({"again": loop})
    with pytest.raises(ArgumentError, match=r"loop\[0\]\.again: the value contains itself"):
        canonical({"loop": loop})
    shared = [1]
    assert form([shared, shared]) == [[1], [1]]


@pytest.mark.parametrize("size", [2 * 1024 * 1024, 1024 * 1024 - 5])
def test_the_parameter_that_is_too_large_is_named(size):
    with pytest.raises(ArgumentError, match="larger than 1048576 bytes") as refused:
        canonical({"small": 1, "body": "x" * size})
    assert refused.value.parameter == "body"


def test_escaping_counts_towards_the_size():
    with pytest.raises(ArgumentError, match="larger than") as refused:
        canonical({"small": "x" * 20, "body": "\x01" * 20}, limit=Limits(size=100))
    assert refused.value.parameter == "body"


def test_a_moment_outside_the_calendar_of_utc_is_refused():
    with pytest.raises(ArgumentError, match="outside the years"):
        canonical({"at": datetime.min.replace(tzinfo=timezone(timedelta(hours=2)))})


def test_a_field_without_a_value_is_named():
    order = object.__new__(Order)
    with pytest.raises(ArgumentError, match=r"order: Order has no value for its field id"):
        canonical({"order": order})


# --- digest ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 32, 64, 65, 200])
def test_the_digest_is_hmac_sha_256(length):
    key, data = secrets.token_bytes(length), b'{"a":1}'
    text = digest(key, data)
    assert len(text) == 22
    assert set(text) <= set(string.ascii_letters + string.digits + "-_")
    translated = text.replace("-", "+").replace("_", "/") + "=="
    assert base64.b64decode(translated) == hmac.digest(key, data, hashlib.sha256)[:16]


# --- stored ---------------------------------------------------------------------------------------------------------


def test_the_stored_form_keeps_what_a_tool_could_notice():
    at = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    both = forms({"amount": Decimal("1.50"), "ratio": 2.0, "at": at})
    kept, executable = both.stored, both.executable
    assert executable
    assert kept == b'{"amount":{"$decimal":"1.50"},"at":{"$datetime":"2024-01-01T02:00:00+02:00"},"ratio":2.0}'


def test_a_redacted_parameter_is_left_out_and_stops_recovery():
    both = forms({"card": "4242", "cents": 1}, frozenset({"card"}))
    assert both.identity == b'{"card":"4242","cents":1}'
    assert both.stored == b'{"card":{"$redacted":true},"cents":1}'
    assert not both.executable
    with pytest.raises(ArgumentError, match="card: the value was redacted") as gone:
        restore(both.stored, {"card": str, "cents": int})
    assert gone.value.known.startswith("it is on record")


def test_a_secret_is_stored_by_name_and_can_be_executed():
    both = forms({"token": Secret("payments")}, frozenset({"token"}))
    kept, executable = both.stored, both.executable
    assert (kept, executable) == (b'{"token":{"$secret":"payments"}}', True)
    assert restore(kept, {"token": Secret}) == {"token": Secret("payments")}


def test_a_secret_held_in_memory_never_reaches_a_form_and_stops_recovery():
    value = secrets.token_hex(16)
    both = forms({"deep": [{"token": Secret.of(value, name="payments")}]})
    assert value.encode() not in both.identity + both.stored
    assert not both.executable
    with pytest.raises(ArgumentError, match="deep: the secret 'payments' was held in memory"):
        restore(both.stored, {})


# --- restored -------------------------------------------------------------------------------------------------------

OrderId = NewType("OrderId", str)
MANY = [
    (Order("o", [Line(Decimal("1.50"))], Colour.RED), Order),
    (Express("o", [], fee=Decimal(2)), Order),
    ([Struct(1, Point(1, 2))], Annotated[list[Struct] | None, "why"]),
    ({Colour.RED: Line(Decimal(1))}, dict[Colour, Line]),
    (Patch(mail="a@example.com"), Patch),
    (Loose(a=1, b=[1], c="x"), Loose),
    (Right.READ, Right),
    ({"id": "o"}, Order),
    (Root([Patch()]), Root),
    (Box[int](content=1), Box[int]),
    (Shy(None, [Line(Decimal(1))]), Shy),
    (Shyer(1), Shyer),
    ([Order("o", [Line(Decimal(1))])], list[Bound]),
    (Line(Decimal(1)), OneOf),
    (Line(Decimal(1)), Annotated[Line, ["cannot be hashed"]]),
    (OrderId("o"), OrderId),
    (2**70, int),
    (1e300, float),
    (PureWindowsPath("a/b"), PureWindowsPath),
    ({"$decimal": "1"}, dict[str, str]),
]


@pytest.mark.parametrize(("value", "annotation"), MANY)
def test_what_was_stored_comes_back(value, annotation):
    both = forms({"value": value})
    kept, executable = both.stored, both.executable
    assert executable
    back = restore(kept, {"value": annotation})["value"]
    assert back == value
    assert type(back) is type(value)


def test_a_class_that_is_defined_later_is_found_from_then_on(monkeypatch: pytest.MonkeyPatch):
    early = ModuleType("early")
    monkeypatch.setitem(sys.modules, early.__name__, early)
    holder = dataclass(type("Holder", (), {"__annotations__": {"line": "Line"}, "__module__": early.__name__}))
    kept = forms({"value": holder(Line(Decimal(2)))}).stored  # type: ignore[call-arg]  # made at run time
    with pytest.raises(ArgumentError, match="Line"):
        restore(kept, {"value": holder})
    early.Line = Line  # type: ignore[attr-defined]  # as above
    assert restore(kept, {"value": holder})["value"].line == Line(Decimal(2))  # type: ignore[attr-defined]  # as above


def test_a_model_remembers_which_fields_were_given():
    for patch in (Patch(), Patch(name="unnamed"), Patch(name="unnamed", mail=None)):
        back = restore(forms({"patch": patch}).stored, {"patch": Patch})["patch"]
        assert isinstance(back, Patch)
        assert back.model_dump(exclude_unset=True) == patch.model_dump(exclude_unset=True)


def test_a_dataclass_comes_back_without_running_its_initialiser_again():
    @dataclass
    class Doubled:
        twice: int = field(init=False)
        once: InitVar[int]

        def __post_init__(self, once: int) -> None:
            self.twice = once * 2

    kept = forms({"value": Doubled(once=2)}).stored
    assert restore(kept, {"value": Doubled})["value"] == Doubled(once=2)


def test_a_field_added_since_gets_its_default_and_one_without_stops_recovery():
    @dataclass
    class Line:
        price: Decimal
        tags: list[str] = field(default_factory=list)
        note: str = "-"

    old = b'{"line":{"$object":["%s",{"price":{"$decimal":"1"}}]}}' % Line.__qualname__.encode()
    assert restore(old, {"line": Line})["line"] == Line(Decimal(1), [], "-")
    for fields in (b'"note":"x"', b'"price":1,"gone":2'):
        changed = b'{"line":{"$object":["%s",{%s}]}}' % (Line.__qualname__.encode(), fields)
        with pytest.raises(ArgumentError, match=r"line: the fields of .*Line have changed since"):
            restore(changed, {"line": Line})


@pytest.mark.parametrize(
    ("kept", "annotation", "problem"),
    [
        (b'{"a":{"$object":["Order",{}]}}', int, "no longer leads to a class named Order"),
        (b'{"a":{"$object":["Patch",{"name":"x","more":1}]}}', Any, "no longer leads to a class named Patch"),
        (b'{"a":{"$enum":["Colour","GREEN"]}}', Colour, "Colour has no member 'GREEN' any more"),
        (b'{"a":{"$enum":["Right",64]}}', Right, "Right has no member 64 any more"),
        (b'{"a":{"$object":["Point",{"x":1}]}}', Point, "the fields of Point have changed since"),
        (b'{"a":{"$object":["Loose",{}]}}', Loose, "the fields of Loose have changed since"),
        (b'{"a":{"$new":1}}', Any, "the form \\$new is not known"),
    ],
)
def test_what_cannot_be_restored_is_named(kept, annotation, problem):
    with pytest.raises(ArgumentError, match=f"a: .*{problem}") as refused:
        restore(kept, {"a": annotation})
    assert refused.value.parameter == "a"


def test_two_classes_of_one_name_are_not_guessed_between():
    def make() -> type:
        class Twin(NamedTuple):
            a: int

        return Twin

    one, two = make(), make()
    kept = forms({"twin": one(1)}).stored
    with pytest.raises(ArgumentError, match="does not lead to one class named"):
        restore(kept, {"twin": one | two})
    assert restore(kept, {"twin": one}) == {"twin": one(1)}


# --- secrets --------------------------------------------------------------------------------------------------------


def test_a_secret_shows_its_name_only():
    value = secrets.token_hex(16)
    held = Secret.of(value, name="payments-api-key")
    assert held.reveal() == value
    for shown in (repr(held), str(held), f"{held}", f"{[held]}"):
        assert "payments-api-key" in shown
        assert value not in shown
    assert copy.deepcopy(held) is copy.copy(held) is held
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(held)
    with pytest.raises(TypeError):
        msgspec.json.encode(held)
    assert pickle.loads(pickle.dumps(Secret("a"))) == Secret("a")


def test_secrets_are_equal_as_references():
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret.of("x", name="a") == Secret.of("y", name="a") != Secret("a")
    assert len({Secret("a"), Secret("a"), Secret.of("x", name="a")}) == 2
    assert Secret("a") != "a"


@pytest.fixture
def variables():
    found: dict[str, str] = {}
    token = RESOLVER.set(resolver_from(found))
    yield found
    RESOLVER.reset(token)


def test_a_name_is_found_among_the_variables(variables):
    value = secrets.token_hex(8)
    with pytest.raises(SecretUnavailableError, match="Set the environment variable PAYMENTS_API_KEY"):
        Secret("payments-api-key").reveal()
    variables["PAYMENTS_API_KEY"] = value
    assert Secret("payments-api-key").reveal() == value
    variables["payments-api-key"] = "exact"
    assert Secret("payments-api-key").reveal() == "exact"


def test_where_no_resolver_is_set_nothing_is_revealed():
    with pytest.raises(SecretUnavailableError, match="where no resolver is set"):
        Secret("abc").reveal()


@pytest.mark.parametrize("name", ["", "two words", "näme", "-x", "a" * 129, "pass!word"])
def test_a_value_in_the_place_of_a_name_is_refused_and_not_repeated(name):
    with pytest.raises(ValueError, match="pass its name, not its value") as refused:
        Secret(name)
    assert not name or name not in str(refused.value)
