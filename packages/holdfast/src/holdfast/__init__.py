"""Holdfast: a transactional runtime for agents that use tools.

Every tool call is written down before it is sent. After a crash Holdfast repeats it, checks it or asks a
person; it never guesses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.agent.agent import agent
    from holdfast.agent.hosted import tool_from_schema
    from holdfast.agent.run import Run, current_run
    from holdfast.agent.tool import tool
    from holdfast.app import Holdfast
    from holdfast.engine.current_operation import current_operation
    from holdfast.errors import (
        Ambiguous,
        Deferred,
        HoldfastError,
        NotSent,
        OperationFailed,
        OutcomePending,
        Rejected,
        RunSuspended,
        TransactionAborted,
    )
    from holdfast.model.contract import Key, Natural, Once, Pending
    from holdfast.model.outcome import CannotTell, Conflict, DidNotHappen, Happened, Outcome, Receipt, Verdict
    from holdfast.model.secret import Secret
    from holdfast.model.view import Operation

__all__ = [
    "Ambiguous",
    "CannotTell",
    "Conflict",
    "Deferred",
    "DidNotHappen",
    "Happened",
    "Holdfast",
    "HoldfastError",
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
        "holdfast.agent.agent": ("agent",),
        "holdfast.agent.hosted": ("tool_from_schema",),
        "holdfast.agent.run": ("Run", "current_run"),
        "holdfast.agent.tool": ("tool",),
        "holdfast.app": ("Holdfast",),
        "holdfast.engine.current_operation": ("current_operation",),
        "holdfast.errors": (
            "Ambiguous", "Deferred", "HoldfastError", "NotSent", "OperationFailed", "OutcomePending",
            "Rejected", "RunSuspended", "TransactionAborted",
        ),
        "holdfast.model.contract": ("Key", "Natural", "Once", "Pending"),
        "holdfast.model.outcome": (
            "CannotTell", "Conflict", "DidNotHappen", "Happened", "Outcome", "Receipt", "Verdict",
        ),
        "holdfast.model.secret": ("Secret",),
        "holdfast.model.view": ("Operation",),
    }.items()
    for name in names
}  # fmt: skip

# The package `holdfast.agent` has the name of the decorator. A package takes its name when it is loaded, which is now
# and never again; so the name is free, and stands for the decorator from here on.
import_module("holdfast.agent")
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
