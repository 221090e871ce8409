"""Words about what a person is asked to approve, as orders to a run: which fit, and what each adds to its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.engine.editing import edited_intent
from holdfast.engine.ends import clean
from holdfast.engine.tooling import ToolCode
from holdfast.errors import UsageError
from holdfast.journal.port import Entry
from holdfast.model import records as r
from holdfast.model.names import is_among
from holdfast.model.operation import OTHERWISE, OperationState

Verdict: TypeAlias = r.ApprovalGranted | r.ApprovalRefused | r.ArgumentsEdited | r.ResultGiven
YES: Final = (r.ApprovalGranted, r.ResultGiven)
"""Answers by which the run goes ahead. A proposer cannot give one; an edit is a proposal, and open to everyone."""
VERDICTS: Final = (r.ApprovalGranted, r.ApprovalRefused, r.ArgumentsEdited, r.ResultGiven)


class Codes(msgspec.Struct, frozen=True):
    """What judges a person's word: the code of the tools that are here, and the journal's secret."""

    tools: Mapping[str, ToolCode]
    secret: bytes


def came_late(operation: OperationState, word: Entry) -> bool:
    """Whether the time for an answer was over when this word came into the ledger, whoever has looked since."""
    return operation.asked_too_long(word.at_ms)


def verdict_of(operation: OperationState, record: Verdict, codes: Codes) -> Verdict:
    """The record that this word adds. Raises `UsageError` where it does not fit what is asked now."""
    if record.approval != operation.asks or operation.asks == OTHERWISE:
        raise UsageError(f"what {record.step} asks about has changed since")
    if isinstance(record, r.ApprovalGranted) and is_among(record.by, operation.approvers):
        raise UsageError(f"{record.by} approved {record.step} already")
    tool = codes.tools.get(operation.intent.tool)
    if isinstance(record, r.ArgumentsEdited):
        assert tool is not None, "an edit waits for its tool's code"
        return replace(record, intent=edited_intent(operation, record.changes, tool, codes.secret))
    if isinstance(record, r.ResultGiven):
        assert tool is not None, "a result waits for its tool's code"
        checked_result(operation, record, tool)
    return record


def checked_result(operation: OperationState, record: r.ResultGiven, tool: ToolCode) -> None:
    """Refuse an answer that the tool could not have given. Raises `UsageError` saying what it gives."""
    if operation.attempts:
        raise UsageError("it was attempted before", next_step="approve it, or decline it")
    if misfit := tool.codec.misfit(bytes(record.result)):
        text = clean(bytes(record.result).decode("utf-8", "replace"))
        raise UsageError(f"{text} is not what {operation.intent.tool} returns", known=misfit)
