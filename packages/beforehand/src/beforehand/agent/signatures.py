"""Signatures of tools and handlers: read once at registration, bound cheaply at each call."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Final

import msgspec

from beforehand.errors import ContractError
from beforehand.model.tool_spec import Shape
from beforehand.model.view import Operation

KNOWN_SHAPE: Final = "__beforehand_shape__"
"""The attribute of a function whose parameters a schema describes."""
_OTHER_KINDS: Final = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def shape_of(function: Callable[..., Any], what: str) -> Shape:
    """Read a signature. Raises `ContractError` for parameters that cannot be named, and for generators."""
    known: Shape | None = getattr(function, KNOWN_SHAPE, None)
    if known is not None:
        return known
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ContractError(f"{what} {name} is a generator: nothing would run it", next_step="return a list instead")
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind not in _NAMED:
            raise ContractError(
                f"{what} {name}: the parameter {parameter} has no name that can be recorded",
                next_step="give every parameter a name; no *args, **kwargs or positional-only parameters",
            )
    hints = _hints(function)
    parameters = signature.parameters
    return Shape(
        name=name,
        signature=signature,
        positional=tuple(n for n, p in parameters.items() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD),
        types={n: hints.get(n, Any) for n in parameters},
        defaults={n: p.default for n, p in parameters.items() if p.default is not p.empty},
        required=frozenset(n for n, p in parameters.items() if p.default is p.empty),
        returns=hints.get("return", inspect.Signature.empty),
    )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # an annotation that exists for the type checker only
        return {
            name: note for name, note in getattr(function, "__annotations__", {}).items() if not isinstance(note, str)
        }


def is_async(function: Callable[..., Any]) -> bool:
    """True if calling it returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _any_coroutine() -> None:
    """Gives its code to tools whose function has none."""


def coroutine_code(function: Callable[..., Any]) -> types.CodeType:
    """The code of a function, marked as that of a coroutine function: calling a tool always gives a coroutine."""
    code = getattr(inspect.unwrap(function), "__code__", _any_coroutine.__code__)
    return code.replace(co_flags=code.co_flags & ~_OTHER_KINDS | inspect.CO_COROUTINE)


def is_operation(annotation: object) -> bool:
    """True if a parameter is annotated as the operation that a handler or a compensation receives."""
    return (typing.get_origin(annotation) or annotation) is Operation


def check_names(names: tuple[str, ...], shape: Shape, where: str) -> None:
    """Refuse names of parameters that do not exist, and say which do."""
    for name in names:
        if name not in shape.types:
            raise ContractError(
                f"{where} names the parameter {name!r}, which {shape.name} does not have",
                known=f"its parameters are {', '.join(shape.types) or 'none'}",
                next_step="name one of them",
            )


def without_operation(shape: Shape, *, known: bool = False) -> tuple[Shape, bool]:
    """The shape of what is recorded: a tool that serves another operation receives that operation first.

    If not `known`, this is recognised by the annotation of its first parameter, `Operation[...]`.
    """
    first = next(iter(shape.types), None)
    if first is None or not (known or is_operation(shape.types[first])):
        return shape, False
    types = {name: note for name, note in shape.types.items() if name != first}
    positional = tuple(name for name in shape.positional if name != first)
    return msgspec.structs.replace(shape, types=types, positional=positional, required=shape.required - {first}), True


def tool_name(function: Callable[..., Any]) -> str:
    """The tool's name. Raises `ContractError` unless it is a function that can be called with its arguments alone."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise ContractError(f"{function!r} has no name", next_step="write a function with @tool, or give name=")
    if inspect.isclass(function):
        raise ContractError(f"{name} is a class", next_step="write a function with @tool that makes one")
    holder = getattr(function, "__qualname__", name).rpartition(".")[0].rpartition(".")[2]
    if holder not in {"", "<locals>"} and next(iter(inspect.signature(function).parameters), "") == "self":
        raise ContractError(
            f"{name} is a method of {holder}, and has no object to be called on",
            next_step=f"make the tool from an object: tool({holder.lower()}.{name})",
        )
    return name
