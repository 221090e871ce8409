"""The input of handlers (verify, observe, expect, compensate): one operation, read-only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from beforehand.model.errors import UsageError
from beforehand.model.ids import marker
from beforehand.model.outcome import Status

R = TypeVar("R")


class Operation(msgspec.Struct, Generic[R], frozen=True):
    """One operation, for a handler.

    `serves` is the operation that this one compensates or confirms. `confirmed` is true if it is a reservation that was
    confirmed. `arguments` are decoded by the tool's annotations, `observed` and `expected` are the stored JSON values,
    `attempts` counts the attempts made so far, and `started_ms` is the wall clock of the first.
    """

    id: str
    run: str
    step: str
    tool: str
    key: str
    status: Status
    arguments: Mapping[str, Any]
    attempts: int = 0
    started_ms: int = 0
    observed: Any = None
    expected: Any = None
    value: R | None = None
    serves: Operation[Any] | None = None
    confirmed: bool = False

    @property
    def marker(self) -> str:
        """The key in the form that is planted in effects: a Message-ID, a trailer, a hidden field."""
        return marker(self.key)

    @property
    def result(self) -> R:
        """The decoded result. Raises `UsageError` unless the operation succeeded."""
        if self.status != "succeeded":
            raise UsageError(f"{self.id} is {self.status}: it has no result")
        return self.value  # type: ignore[return-value]  # a success always carries R, which may be None
