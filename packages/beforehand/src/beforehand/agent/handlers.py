"""Handlers of a tool: verify, observe, expect and a computed claim.

All have one signature: the operation, then any of the tool's parameters by name. Registration checks
the names and gives the original function back, so that it can be unit-tested.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, overload

import msgspec

from beforehand.agent.signatures import is_async, shape_of
from beforehand.engine.tool_protocol import Code
from beforehand.errors import ContractError
from beforehand.model.contract import Contract
from beforehand.model.outcome import CannotTell, Conflict, DidNotHappen, Happened
from beforehand.model.tool_spec import Shape, is_class, name_of
from beforehand.model.view import Operation
from beforehand.policies import milliseconds

if TYPE_CHECKING:
    from beforehand.agent.tool import Tool

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["verify", "observe", "expect", "claim"]
_PURE: Final = {"expect", "claim"}  # computed while the intent is made: synchronous, and without the operation
_VERDICTS: Final = {Happened, DidNotHappen, CannotTell, Conflict}
DEFAULT_TIMEOUT: Final = timedelta(seconds=30)


class Handlers(Generic[R]):
    """The decorator behind `@tool.verify` and the other handlers, with or without settings."""

    def __init__(self, tool: Tool[Any, R], kind: Kind) -> None:
        self._tool = tool
        self._kind: Kind = kind

    @property
    def tool(self) -> Tool[Any, R]:
        """The tool to which the handler belongs."""
        return self._tool

    @property
    def kind(self) -> Kind:
        """The kind of the handler."""
        return self._kind

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(
        self,
        /,
        *,
        settle_window: timedelta | None = ...,
        check_first: bool = ...,
        deadline: timedelta | None = ...,
        every: timedelta | None = ...,
        timeout: timedelta = ...,
    ) -> Callable[[F], F]: ...

    def __call__(self, function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
        """Register a handler.

        For `verify`, `settle_window` is how long after a call the effect may still happen or become visible. Without
        it, absence is never proof. `check_first` verifies before the first attempt. `deadline` is how long verification
        continues after the settle window, and `every` its interval. `timeout` limits each call of the handler.
        """
        if function is not None:
            return self._register(function, {})

        def register(later: Callable[..., Any]) -> Callable[..., Any]:
            return self._register(later, settings)

        return register

    def _register(self, function: Callable[..., Any], settings: dict[str, Any]) -> Callable[..., Any]:
        tool, kind = self._tool, self._kind
        where = f"{kind} of tool {tool.name}"
        _refuse_contradictions(tool.contract, kind, settings, where)
        shape = shape_of(function, where)
        parameters = checked_parameters(shape, tool.spec, where, pure=kind in _PURE)
        if kind == "verify":
            _check_verdict(shape.returns, tool.spec, where)
        if kind in _PURE and is_async(function):
            raise ContractError(
                f"{where} is async", next_step="it is computed while the intent is made: use a plain def"
            )
        timeout = settings.pop("timeout", DEFAULT_TIMEOUT)
        tool.declare(_with_clauses(tool.contract, kind, settings, where))
        tool.handlers[kind] = Code(function, is_async(function), milliseconds(timeout), parameters)
        return function


def _refuse_contradictions(contract: Contract, kind: Kind, settings: dict[str, Any], where: str) -> None:
    if contract.effect == "read" and kind != "claim":
        raise ContractError(
            f"{where}: a read changes nothing, so there is nothing to {kind}",
            next_step='drop the handler, or drop effect="read"',
        )
    known = {"verify": {"settle_window", "check_first", "deadline", "every", "timeout"}, "observe": {"timeout"}}.get(
        kind, set[str]()
    )
    if unknown := settings.keys() - known:
        raise ContractError(
            f"{where} does not take {', '.join(sorted(unknown))}",
            known=f"it takes {', '.join(sorted(known)) or 'no settings'}",
        )
    if contract.claim and kind == "claim":
        raise ContractError(f"{where}: claim= names parameters already", next_step="keep one of the two")


def checked_parameters(shape: Shape, tool: Shape, where: str, *, pure: bool = False) -> frozenset[str]:
    """The parameters that a handler takes. Raises `ContractError` if the tool has none of that name or type.

    `pure` handlers do not receive the operation.
    """
    names = list(shape.types)
    if not pure:
        if not names:
            raise ContractError(f"{where} takes no operation", next_step="its first parameter is the operation")
        _check_operation(shape.types[names[0]], tool, where)
        names = names[1:]
    for name in names:
        if name not in tool.types and name in shape.required:
            first = "it is made before there is an operation, and" if pure else "after the operation it"
            raise ContractError(
                f"{where} asks for {name!r}, which {tool.name} does not have",
                known=f"{first} takes any of: {', '.join(tool.types) or 'nothing'}",
                next_step="use those names",
            )
        _check_types(shape, tool, name, where)
    return frozenset(name for name in names if name in tool.types)


def _check_operation(annotation: Any, tool: Shape, where: str) -> None:
    """Check that the operation's annotation fits what the tool returns."""
    if annotation is Any or annotation is inspect.Parameter.empty:
        return
    if (typing.get_origin(annotation) or annotation) is not Operation:
        raise ContractError(
            f"{where}: its first parameter is the operation, and is annotated {name_of(annotation)}",
            next_step=f"annotate it as Operation[{name_of(tool.returns)}]",
        )
    _check_result(annotation, tool, where)


def _check_verdict(annotation: Any, tool: Shape, where: str) -> None:
    """Check that a verifier returns verdicts, and that a success it found has the type that the tool returns."""
    if annotation in (Any, object, inspect.Signature.empty):
        return
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    for one in typing.get_args(annotation) if union else (annotation,):
        if (typing.get_origin(one) or one) not in _VERDICTS:
            raise ContractError(
                f"{where} returns {name_of(one)}",
                next_step="give a verdict: Happened(...), DidNotHappen(), CannotTell() or Conflict()",
            )
        _check_result(one, tool, where)


def _check_result(annotation: Any, tool: Shape, where: str) -> None:
    """Check that `Operation[R]` and `Happened[R]` have the R that the tool returns."""
    given = typing.get_args(annotation)
    if given and tool.returns not in (Any, inspect.Signature.empty) and given[0] not in (Any, tool.returns):
        fits = tool.returns is None and given[0] is type(None)
        if not fits and not isinstance(given[0], TypeVar):
            raise ContractError(
                f"{where} expects the result type {name_of(given[0])}, and {tool.name} returns {name_of(tool.returns)}",
                next_step="make the two agree",
            )


def _check_types(shape: Shape, tool: Shape, name: str, where: str) -> None:
    here, there = shape.types.get(name, Any), tool.types.get(name, Any)
    if is_class(here) and is_class(there) and not issubclass(there, here):
        raise ContractError(
            f"{where} annotates {name} as {here.__name__}, and {tool.name} as {there.__name__}",
            next_step="make the two agree",
        )


def _with_clauses(contract: Contract, kind: Kind, settings: dict[str, Any], where: str) -> Contract:
    replace = msgspec.structs.replace
    match kind:
        case "verify":
            spans = {
                name: _span(settings.get(name), f"{where}: {name}") for name in ("settle_window", "deadline", "every")
            }
            return replace(
                contract,
                verifies=True,
                check_first=bool(settings.get("check_first", False)),
                settle_ms=spans["settle_window"],
                verify_deadline_ms=_or(spans["deadline"], contract.verify_deadline_ms),
                verify_every_ms=max(1, _or(spans["every"], contract.verify_every_ms)),
            )
        case "observe":
            return replace(contract, observes=True)
        case "expect":
            return replace(contract, expects=True)
        case "claim":
            return contract


def _span(value: timedelta | None, where: str) -> int | None:
    if value is None:
        return None
    if (span := milliseconds(value)) < 0:
        raise ContractError(f"{where} is negative", next_step="give a timedelta of zero or more")
    return span


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
