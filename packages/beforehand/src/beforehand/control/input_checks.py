"""Checks of input: arguments of use cases, and JSON from outside.

Type hints are not checked at run time, and a use case is called from scripts, notebooks and web handlers. Each
public method of a class that is `validated` takes its arguments through the JSON form in which they would be stored:
a value of another type, a number that is not finite, or text that is not UTF-8 raises `ArgumentError` before anything
is stored. The error names the parameter and what is accepted. The parameter `by` is the name of a person.

The JSON decoder recurses, and raises `RecursionError` at a depth that depends on the stack of its caller: what is
accepted here at one depth could not be read there at another. So the depth has a limit of its own.
"""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import wraps
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from beforehand.errors import ArgumentError, UsageError
from beforehand.model.names import shows_something

C = TypeVar("C", bound=type)
LONGEST_TEXT: Final = 1_000_000
"""Characters of one text: a note, a reason, a name."""
LONGEST_VALUE: Final = 16 * 1024 * 1024
"""Bytes of one value as JSON: a result, a payload."""
_NAMES: Final[dict[Any, str]] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    timedelta: "a timedelta",
    type(None): "None",
    Any: "a value with a JSON form",
}


def validated(cls: C) -> C:
    """Check the arguments of every public method of the class, also of those that are added later."""
    for name, method in list(vars(cls).items()):
        if inspect.iscoroutinefunction(method) and not name.startswith("_"):
            setattr(cls, name, _checking(method))
    return cls


def _checking(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    hints: dict[str, Any] = {}

    @wraps(method)
    async def checked(*args: Any, **kwargs: Any) -> Any:
        if not hints:  # at the first call: names that the hints use may be imported later than the class
            hints.update(get_type_hints(method))
        given = signature.bind(*args, **kwargs).arguments
        for name, value in list(given.items())[1:]:
            check(name, value, hints[name])
        if "by" in given and given["by"] != signature.parameters["by"].default:
            checked_by(given["by"])
        return await method(*args, **kwargs)

    return checked


def checked_by(by: str, what: str = "a command") -> str:
    """The name of the person who gives `what`. Raises `UsageError` for one that shows nothing to a reader."""
    if not shows_something(by):
        raise UsageError(
            f"{what} needs the name of a person", known=f"{by!a} shows nothing", next_step="name one: --by NAME"
        )
    return by


def check(name: str, value: object, hint: Any) -> None:
    """Refuse a value that could not be stored, or not be read again as `hint`. Raises `ArgumentError`."""
    if hint is str and type(value) is str and value.isascii() and len(value) <= LONGEST_TEXT:
        return  # ASCII text has a form in JSON, and is read again as it is
    try:
        msgspec.json.decode(_stored(value), type=hint)  # the reader's way
        if msgspec.convert(value, type=hint) != value:  # JSON has one form for bytes, a duration and text
            raise TypeError(f"it is of the type {type(value).__name__}")  # noqa: TRY301 - as all that is refused here
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        shown = repr(value)
        raise ArgumentError(
            f"{name}={shown if len(shown) <= 80 else shown[:77] + '...'} is not accepted: {error}",
            parameter=name,
            next_step=f"give {accepted(hint)}; nothing was stored",
        ) from error


def _stored(value: object) -> bytes:
    """The value as JSON. Raises `ValueError` or `TypeError` where it has no such form, or too large a one."""
    if not _finite(value):
        raise ValueError("a number in it is not finite")
    stored = msgspec.json.encode(value)
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise ValueError(f"it has {len(value):,} characters, and at most {LONGEST_TEXT:,} are stored")
    if len(stored) > LONGEST_VALUE:
        raise ValueError(f"it has {len(stored):,} bytes, and at most {LONGEST_VALUE:,} are stored")
    return stored


def accepted(hint: Any) -> str:
    """The values that a type hint allows, in words."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(value) for value in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(accepted(one) for one in get_args(hint)))
    if get_origin(hint) is not None and issubclass(get_origin(hint), Mapping):
        return "a mapping of names to values with a JSON form"
    return _NAMES.get(hint) or f"a {getattr(hint, '__name__', hint)}"


def _finite(value: object) -> bool:
    """True if a plain value has neither NaN nor an infinite number: JSON would hold null instead."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportUnknownVariableType]  # any mapping
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_finite, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  # any collection
    return True


DEEPEST: Final = 128
# A text in quotes, also one without an end, or one bracket. Possessive, so that hostile text is read once.
_PARTS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|([\[{])|[\]}]', re.DOTALL)
T = TypeVar("T")


def decode_json(text: bytes | str, kind: type[T] | Any = Any) -> T:
    """`text` as `kind`. Raises `msgspec.DecodeError`, and `ValueError` for text that cannot be encoded."""
    raw = text.encode() if isinstance(text, str) else text
    if _is_too_deep(raw):
        raise msgspec.DecodeError(f"it is nested more than {DEEPEST} deep")
    decoded: T = msgspec.json.decode(raw, type=kind)
    return decoded


def _is_too_deep(raw: bytes) -> bool:
    if raw.count(b"[") + raw.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for part in _PARTS.finditer(raw):
        if part[1]:
            depth += 1
        elif part[0] in {b"]", b"}"}:
            depth -= 1
        if depth > DEEPEST:
            return True
    return False
