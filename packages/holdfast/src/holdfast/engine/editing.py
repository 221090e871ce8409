"""Editing what a person approves: the operation stays the same one, and what is sent is what that person wrote.

What names the effect cannot be edited: another business key, or another set of the words that make a repeat, is
another effect. Neither can what the record does not hold, for nobody could say what would be sent.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.engine.tooling import ToolCode, words_of
from holdfast.errors import ArgumentError, UsageError
from holdfast.model import records as r
from holdfast.model.canonical.encode import digest, forms
from holdfast.model.operation import OperationState


def edited_intent(operation: OperationState, changes: r.Raw, tool: ToolCode, secret: bytes) -> r.Intent:
    """What would be sent with these changes: an object with the parameters that are different, as JSON.

    Raises `UsageError` (`ArgumentError` where a value does not fit its parameter), saying what is wrong.
    """
    intent = operation.intent
    _checked_editable(operation)
    arguments = tool.edited(bytes(intent.arguments), bytes(changes))
    written = forms(arguments, tool.redact)
    if written.stored == bytes(intent.arguments):
        raise ArgumentError("nothing is different", next_step="approve it as it is")
    if not written.executable:
        raise ArgumentError("what would be sent could not be stored", next_step="decline it, and say what is wanted")
    if (tool.business_key(arguments) if tool.claims else "") != intent.claim:
        raise _names_another(", ".join(tool.contract.claim) or "its business key")
    if words_of(tool, arguments, secret) != intent.words:
        raise _names_another(", ".join(tool.contract.once.parameters) if tool.contract.once else "its words")
    return replace(
        intent,
        arguments=r.Raw(written.stored),
        digest=digest(secret, written.identity),
        title=tool.title_of(written.stored),
        expected=tool.expected(arguments) if tool.contract.expects else r.NOTHING,
    )


def _checked_editable(operation: OperationState) -> None:
    if operation.attempts:
        raise UsageError("it was attempted before with other arguments", next_step="approve it as it is, or decline it")
    if not operation.intent.executable:
        raise UsageError(
            "some of its arguments are not stored, so nobody could say what would be sent",
            next_step="approve it as it is, or decline it and say what is wanted",
        )


def _names_another(names: str) -> UsageError:
    return UsageError(
        f"{names}: that would be another effect",
        known="what names the effect is kept when the rest is edited",
        next_step="decline it, and let the agent propose the other one",
    )
