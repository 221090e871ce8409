"""Calls and questions in words: `pay(cents=103847, invoice=INV-13)`, and the one sentence that asks a person about it.

A model chooses names and values. A text stands in quotation marks unless it is one plain word, so that none can be read
as another argument, and the number 9000 differs from the text "9000".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beforehand.model.canonical.plain import plain_arguments

if TYPE_CHECKING:
    from beforehand.model.operation import OperationState
    from beforehand.model.records import Intent

SHOWN: Final = 300
"""How many characters of the arguments a question shows."""
_NAME: Final = re.compile(r"[^\W\d][\w.-]*")
_WORD: Final = re.compile(r"[^\W\d_][\w.:/@+-]*")
_TAGGED: Final = re.compile(r'\{"\$(?:int|decimal|date|datetime|time|timedelta|uuid)":"(?P<content>[\w.:+-]+)"\}')
_REDACTED: Final = '{"$redacted":true}'
_LITERALS: Final = frozenset({"true", "false", "null"})


def call_text(tool: str, arguments: bytes) -> str:
    """A call as people read it; what is left out of a long one is counted."""
    text = f"{_named(tool)}({arguments_text(arguments)})"
    if is_whole(arguments) or len(text) <= SHOWN:
        return text
    return f"{text[:SHOWN]}… ({len(text) - SHOWN:,} more characters)"


def is_whole(arguments: bytes) -> bool:
    """True if a text of the call shows these arguments whole."""
    return len(arguments.decode("utf-8", "replace")) <= SHOWN


def arguments_text(arguments: bytes) -> str:
    """The fields of a JSON object as the arguments of a call; another value as it is."""
    try:
        given = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return arguments.decode("utf-8", "replace")
    return ", ".join(f"{_named(name)}={_value(bytes(value))}" for name, value in given.items())


def _named(name: str) -> str:
    return name if _NAME.fullmatch(name) else msgspec.json.encode(name).decode()


def _value(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    if (tagged := _TAGGED.fullmatch(text)) is not None:
        return tagged["content"]
    if text == _REDACTED:
        return "(redacted)"
    if not text.startswith('"'):
        return text
    word = msgspec.json.decode(value, type=str)
    return word if _WORD.fullmatch(word) and word not in _LITERALS else msgspec.json.encode(word).decode()


def asked_about(intent: Intent) -> str:
    """The question whether a call may be sent, without the reason for asking: its title, or else the call."""
    if intent.asks_only:
        return _asked_about_plan(plain_arguments(bytes(intent.arguments)))
    if intent.title:
        return f"{intent.title}: may it be sent?"
    return f"may {call_text(intent.tool, bytes(intent.arguments))} be sent?"


def _asked_about_plan(shown: dict[str, Any]) -> str:
    """The question about a plan, with the calls of its steps; fallbacks and conditions are in the arguments."""
    steps = ", ".join(_step(step["primary"]) for step in shown["steps"])
    more = f"… ({len(steps) - SHOWN:,} more characters)" if len(steps) > SHOWN else ""
    return f"may the plan {shown['plan']} be carried out: {steps[:SHOWN]}{more}?"


def _step(call: dict[str, Any]) -> str:
    text = call_text(call["tool"], msgspec.json.encode(call.get("arguments", {})))
    return f"{text} within {call['within']}" if call.get("within") else text


def shows_whole(question: str, tool: str, arguments: bytes) -> bool:
    """True if the question has the whole call in it. Where it does not, no command beside it approves the call."""
    return is_whole(arguments) and call_text(tool, arguments) in question


def question_of(operation: OperationState, rule: str = "") -> str:
    """The question to a person: the title of the call, why it waits, and what the last call answered."""
    title, why = operation.intent.title, _why_asked(operation, rule)
    return f"{title}: {why}" if title and not why.startswith(f"{title}: ") else why


def reason_to_ask(operation: OperationState) -> str:
    """The reason for a question, without the title or the call that stands before it."""
    reason, title = operation.reason, operation.intent.title
    return reason.removeprefix(f"{asked_about(operation.intent)} ").removeprefix(f"{title}: " if title else "")


def _why_asked(operation: OperationState, rule: str) -> str:
    reason = operation.reason or rule
    if operation.wants_approval and operation.approval.people_needed > 1:
        approved = f", {', '.join(operation.approval.approvers)} said yes" if operation.approval.approvers else ""
        return f"{reason} ({operation.approval.people_needed} people{approved})"
    end = operation.attempts[-1].end if operation.attempts else None
    return reason if end is None or not end.why or end.why in reason else f"{reason} ({end.why})"
