"""Beforehand: a transactional runtime for agents that use tools.

Every tool call is written down before it is sent. After a crash Beforehand repeats it, checks it or asks a
person; it never guesses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from beforehand.agent.agent import agent
    from beforehand.agent.hosted import tool_from_schema
    from beforehand.agent.run import Run, current_run
    from beforehand.agent.tool import tool
    from beforehand.app import Beforehand
    from beforehand.engine.current_operation import current_operation
    from beforehand.errors import (
        Ambiguous,
        BeforehandError,
        Deferred,
        NotSent,
        OperationFailed,
        OutcomePending,
        Rejected,
        RunSuspended,
        TransactionAborted,
    )
    from beforehand.model.contract import FreeText, Key, Natural, Once, Pending
    from beforehand.model.outcome import CannotTell, Conflict, DidNotHappen, Happened, Outcome, Receipt, Verdict
    from beforehand.model.secret import Secret
    from beforehand.model.view import Operation

__all__ = [
    "Ambiguous",
    "Beforehand",
    "BeforehandError",
    "CannotTell",
    "Conflict",
    "Deferred",
    "DidNotHappen",
    "FreeText",
    "Happened",
    "Key",
    "Natural",
    "NotSent",
    "Once",
    "Operation",
    "OperationFailed",
    "Outcome",
    "OutcomePending",
    "Pending",
    "Receipt",
    "Rejected",
    "Run",
    "RunSuspended",
    "Secret",
    "TransactionAborted",
    "Verdict",
    "agent",
    "current_operation",
    "current_run",
    "tool",
    "tool_from_schema",
]

# Where each name comes from. It is imported when it is asked for: a command that only looks needs none of them,
# and all of them together take longer to import than ten thousand waiting items take to list.
_HOMES: Final = {
    name: home
    for home, names in {
        "beforehand.agent.agent": ("agent",),
        "beforehand.agent.hosted": ("tool_from_schema",),
        "beforehand.agent.run": ("Run", "current_run"),
        "beforehand.agent.tool": ("tool",),
        "beforehand.app": ("Beforehand",),
        "beforehand.engine.current_operation": ("current_operation",),
        "beforehand.errors": (
            "Ambiguous", "Deferred", "BeforehandError", "NotSent", "OperationFailed", "OutcomePending",
            "Rejected", "RunSuspended", "TransactionAborted",
        ),
        "beforehand.model.contract": ("FreeText", "Key", "Natural", "Once", "Pending"),
        "beforehand.model.outcome": (
            "CannotTell", "Conflict", "DidNotHappen", "Happened", "Outcome", "Receipt", "Verdict",
        ),
        "beforehand.model.secret": ("Secret",),
        "beforehand.model.view": ("Operation",),
    }.items()
    for name in names
}  # fmt: skip

# The package `beforehand.agent` has the name of the decorator. A package takes its name when it is loaded, which is now
# and never again; so the name is free, and stands for the decorator from here on.
import_module("beforehand.agent")
globals().pop("agent", None)


def __getattr__(name: str) -> object:
    """One of the names above, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The names above, and what every module has."""
    return sorted({*globals(), *__all__})
