"""Holdfast: a transactional runtime for agents that use tools.

Every effect has an identity before it is attempted, a record before it can be lost, and an outcome
that somebody can prove.
"""

from holdfast.agent.agent import agent
from holdfast.agent.run import Run
from holdfast.agent.tool import tool
from holdfast.app import Holdfast
from holdfast.engine.current import current_operation
from holdfast.errors import (
    Ambiguous,
    Deferred,
    HoldfastError,
    NotSent,
    OperationFailed,
    Rejected,
    RunSuspended,
    TransactionAborted,
)
from holdfast.model.contract import Key, Natural, Once
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
    "Receipt",
    "Rejected",
    "Run",
    "RunSuspended",
    "Secret",
    "TransactionAborted",
    "Verdict",
    "agent",
    "current_operation",
    "tool",
]
