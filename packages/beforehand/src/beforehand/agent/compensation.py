"""Companions of a tool: the tools that compensate it, or complete what it reserved.

Both are tools like any other, with an idempotency clause, retries and a verifier of their own if they declare them;
they differ in that they receive the operation that they serve, and that the runtime calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, overload

import msgspec

from beforehand.agent.handlers import checked_parameters
from beforehand.agent.signatures import shape_of
from beforehand.errors import ContractError, UsageError
from beforehand.model.contract import Contract
from beforehand.policies import milliseconds

if TYPE_CHECKING:
    from beforehand.agent.tool import Tool

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_TIMEOUT: Final = timedelta(seconds=60)


class Compensate:
    """The decorator `@book.compensate(restores=True)`."""

    def __init__(self, tool: Tool[..., Any]) -> None:
        self._tool = tool

    @property
    def code(self) -> Tool[..., Any]:
        """The compensating tool. Raises `UsageError` if none is registered."""
        return _registered(self._tool, "compensate")

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(
        self, /, *, restores: bool = ..., absent_safe: bool = ..., timeout: timedelta = ...
    ) -> Callable[[F], F]: ...

    def __call__(
        self,
        function: Any = None,
        /,
        *,
        restores: bool = False,
        absent_safe: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> Any:
        """Register the compensation: a function of the operation and, by name, any of the tool's parameters.

        `restores` declares that it restores the former state; otherwise it only explains. `absent_safe` declares that
        it is harmless if the effect is absent. Put `@tool(idempotency=...)` below it if it may be repeated; a bare
        function is a plain write with `timeout`. Raises `ContractError`.
        """

        def register(function: F) -> F:
            code = _companion(self._tool, function, "compensate", timeout)
            clauses = {"compensates": True, "amends": code.name, "restores": restores, "absent_safe": absent_safe}
            self._tool.declare(msgspec.structs.replace(self._tool.contract, **clauses))
            return function

        return register if function is None else register(function)


class Confirm:
    """The decorator `@reserve.confirm(expires=...)`."""

    def __init__(self, tool: Tool[..., Any]) -> None:
        self._tool = tool

    @property
    def code(self) -> Tool[..., Any]:
        """The tool that completes the reservation. Raises `UsageError` if none is registered."""
        return _registered(self._tool, "confirm")

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(self, /, *, expires: timedelta | None = ..., timeout: timedelta = ...) -> Callable[[F], F]: ...

    def __call__(
        self, function: Any = None, /, *, expires: timedelta | None = None, timeout: timedelta = DEFAULT_TIMEOUT
    ) -> Any:
        """Register the tool that completes this tool's reservation at the commit of its transaction.

        `expires` is how long the reservation is valid. After that it is not confirmed, and the transaction is aborted.
        The tool's `compensate` releases the reservation. Raises `ContractError`.
        """
        if expires is not None and expires <= timedelta(0):
            raise ContractError(
                f"confirm of tool {self._tool.name}: expires={expires} is not longer than zero",
                next_step="give a timedelta",
            )

        def register(function: F) -> F:
            code = _companion(self._tool, function, "confirm", timeout)
            lapses_ms = None if expires is None else milliseconds(expires)
            contract = msgspec.structs.replace(self._tool.contract, confirms=code.name, lapses_ms=lapses_ms)
            self._tool.declare(contract)
            return function

        return register if function is None else register(function)


CompanionTool: TypeAlias = Compensate | Confirm


def _registered(tool: Tool[..., Any], kind: str) -> Tool[..., Any]:
    if kind not in tool.companions:
        raise UsageError(f"{tool.name} has no {kind}")
    return tool.companions[kind]


def with_compensation(contract: Contract, tool: Tool[..., Any], code: Tool[..., Any]) -> Contract:
    """The contract of one call that `code` undoes. Raises `ContractError` if it cannot."""
    _check(tool, code, f"{tool.name}.options(compensate={code.name})")
    return msgspec.structs.replace(contract, compensates=True, restores=True, amends=code.name)


def _companion(tool: Tool[..., Any], function: Any, kind: str, timeout: timedelta) -> Tool[..., Any]:
    """The tool behind a handler: the handler itself if it is a declared tool, else a plain write."""
    from beforehand.agent.tool import Tool, tool_from  # noqa: PLC0415 - tools know their companions

    code: Tool[..., Any] = (
        cast("Tool[..., Any]", function) if isinstance(function, Tool) else tool_from(function, timeout)
    )
    _check(tool, code, f"{kind} of tool {tool.name}")
    tool.companions[kind] = code
    return code


def _check(tool: Tool[..., Any], code: Tool[..., Any], where: str) -> None:
    if tool.contract.effect == "read":
        raise ContractError(
            f"{where}: a read changes nothing, so there is nothing to compensate or confirm",
            next_step='drop the handler, or drop effect="read"',
        )
    if not code.serves:
        raise ContractError(
            f"{where}: {code.name} does not take the operation that it serves",
            next_step=f"write: def {code.name}(operation: Operation[...], ...)",
        )
    if code.contract.effect == "read":
        raise ContractError(f"{where}: {code.name} is a read, and changes nothing", next_step='drop effect="read"')
    checked_parameters(shape_of(code.__wrapped__, where), tool.spec, where)
