"""Titles: one sentence about a call, from a template over its arguments.

A template is a format string: `"refund {cents / 100:.2f} EUR to {customer.name}"`. The expressions between the braces
name parameters, attributes and items of their values, and calculate with + - * /. They are parsed and checked when the
tool is declared, and evaluated by the functions below on the stored form of the arguments: plain JSON values without
what is redacted or secret. No Python object is reached, so there is nothing that a template could call.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, cast

from holdfast.errors import ContractError
from holdfast.model.canonical.plain import hides, plain_arguments

LONGEST_TEMPLATE: Final = 500
LONGEST_VALUE: Final = 80
"""Characters of one value in a title; the exact arguments are shown beside it."""
LONGEST_TITLE: Final = 200
_SPEC: Final = re.compile(r"([^{}]?[<>=^])?[-+ ]?z?#?0?\d{0,2}[,_]?(\.\d{1,2})?[bdeEfFgGosxX%]?")


class _Part(NamedTuple):
    """Literal text, and the expression behind it with its format; None at the end of the template."""

    text: str
    value: ast.expr | None
    spec: str


class Title:
    """A checked template."""

    def __init__(self, parts: tuple[_Part, ...]) -> None:
        self._parts = parts

    def of(self, stored: bytes) -> str:
        """The title of a call with these stored arguments; empty if the template does not fit them."""
        try:
            given, hidden = plain_arguments(stored), hides(stored)
            texts = [part.text + _shown(part, given, hidden=hidden) for part in self._parts]
        except Exception:  # noqa: BLE001 - a title is a convenience: the call is made without it
            return ""
        return _cut(" ".join("".join(texts).split()), LONGEST_TITLE)


def parsed_title(template: object, tool: str, stored: Collection[str]) -> Title:
    """Check a template against the parameters that are stored. Raises `ContractError` naming what is wrong."""
    where = f"tool {tool}: title={template!r}"
    if not isinstance(template, str) or not template.strip() or len(template) > LONGEST_TEMPLATE:
        raise ContractError(
            f"{where} is not a text of 1 to {LONGEST_TEMPLATE} characters",
            next_step='write a sentence, such as title="refund {cents / 100:.2f} EUR to {customer}"',
        )
    try:
        return Title(tuple(_part(*found, frozenset(stored)) for found in string.Formatter().parse(template)))
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        known = ", ".join(sorted(stored)) or "none"
        raise ContractError(
            f"{where}: {error}",
            known=f"it may use the parameters that are stored: {known}; their attributes and items; and + - * /",
            next_step='write it like title="refund {cents / 100:.2f} EUR to {customer}"',
        ) from error


def _part(text: str, field: str | None, spec: str | None, conversion: str | None, known: frozenset[str]) -> _Part:
    if field is None:
        return _Part(text, None, "")
    if conversion:
        raise ValueError(f"!{conversion} is not supported")
    if not _SPEC.fullmatch(spec or ""):
        raise ValueError(f"{spec!r} is not a format that a title takes")
    if not field.strip():
        raise ValueError("{} names no parameter")
    try:
        tree = ast.parse(field.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{{{field}}} is not an expression") from error
    _check(tree, known)
    return _Part(text, tree, spec or "")


def _check(node: ast.expr, known: frozenset[str]) -> None:
    """Refuse every expression that `_value` does not evaluate."""
    match node:
        case ast.Name(id=name):
            if name not in known:
                raise ValueError(f"{name} is not a parameter whose value is stored")
        case ast.Attribute(value=inner):
            _check(inner, known)
        case ast.Subscript(value=inner, slice=index):
            if _index(index) is None:
                raise ValueError(f"[{ast.unparse(index)}] is not a constant text or whole number")
            _check(inner, known)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            _check(left, known)
            _check(right, known)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            _check(inner, known)
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            pass
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is not an expression that a title takes")


def _index(node: ast.expr) -> object:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return -number
        case ast.Constant(value=str() | int() as value) if not isinstance(value, bool):
            return value
        case _:
            return None


def _value(node: ast.expr, given: Mapping[str, Any], *, hidden: bool) -> Any:
    match node:
        case ast.Name(id=name):
            return given[name]
        case ast.Attribute(value=inner, attr=name):
            return _member(_value(inner, given, hidden=hidden), name, hidden=hidden)
        case ast.Subscript(value=inner, slice=index):
            return _member(_value(inner, given, hidden=hidden), _index(index), hidden=hidden)
        case ast.BinOp(left=left, op=op, right=right):
            sides = _number(_value(left, given, hidden=hidden)), _number(_value(right, given, hidden=hidden))
            return _calculated(op, *sides)
        case ast.UnaryOp(operand=inner):
            return -_number(_value(inner, given, hidden=hidden))
        case ast.Constant(value=number):
            return number
        case _:
            raise TypeError(node)


def _member(value: object, name: object, *, hidden: bool) -> Any:
    """An entry of a plain object or list. Plain lists leave out what is secret, so that their places may be others."""
    if isinstance(value, dict) and isinstance(name, str):
        return cast("dict[str, Any]", value)[name]
    if isinstance(value, list) and isinstance(name, int) and not hidden:
        return value[name]  # pyright: ignore[reportUnknownVariableType]  # any list
    raise TypeError(name)


def _calculated(op: ast.operator, left: float, right: float) -> float:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case _:
            return left / right


def _number(value: object) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise TypeError(value)


def _shown(part: _Part, given: Mapping[str, Any], *, hidden: bool) -> str:
    if part.value is None:
        return ""
    value: object = _value(part.value, given, hidden=hidden)
    if not isinstance(value, list):
        return _cut(format(_scalar(value), part.spec) if part.spec else _text(value), LONGEST_VALUE)
    if hidden or part.spec:  # a plain list leaves out what is secret: it would name fewer than there are
        raise TypeError(part.spec)
    members = cast("list[object]", value)[:LONGEST_VALUE]  # more of them are cut off anyway
    return _cut(", ".join(_text(one) for one in members), LONGEST_VALUE)


def _text(value: object) -> str:
    match _scalar(value):
        case None:
            return "none"
        case bool() as flag:
            return "yes" if flag else "no"
        case one:
            return str(one)


def _scalar(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(value)  # an object has no readable text


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
