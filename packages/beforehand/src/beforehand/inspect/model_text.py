"""Decisions of models as people read them: messages as text, and calls as `model → pay(invoice=INV-13, cents=5)`.

A decision records its input and its answer as JSON, and of a conversation that grows only the part that is new. The
ready loop and the adapters of frameworks record different shapes: the names below are those in which they keep texts,
messages and calls. The values of other decisions are shown as their fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from beforehand.inspect.text import LONGEST, cut, marked
from beforehand.model import records as r
from beforehand.model.wording import arguments_text, call_text

_TRIES: Final = 50
"""How many places of a part that begins inside a message are tried as the beginning of a value."""
_INSIDE: Final = (
    "instructions", "system", "system_instruction", "text", "content", "data", "parts", "contents", "messages", "input",
    "output", "response", "function_response", "calls", "tool_calls", "structured",
)  # fmt: skip
"""The fields that hold texts, messages or calls, in the order in which they are read."""
_TOLD: Final = frozenset({"instructions", "system", "system_instruction"})
_NAMES: Final = ("tool", "tool_name", "name")
_ARGUMENTS: Final = ("arguments", "args", "input")
_ROLES: Final = ("role", "part_kind", "type", "kind")
_MODEL: Final = "model"
_FUNCTIONS: Final = frozenset({_MODEL, "summary"})
"""The functions under which the ready loop and the adapters ask a model; others are of agent code."""
_SPEAKERS: Final = {
    "user": "user", "human": "user", "user-prompt": "user", "assistant": _MODEL, "ai": _MODEL, "model": _MODEL,
    "response": _MODEL, "system": "instructions", "developer": "instructions", "system-prompt": "instructions",
    "tool": "tool", "tool-return": "tool", "function_call_output": "tool", "function": "tool",
}  # fmt: skip


def said_text(result: r.Raw, function: str, limit: int = LONGEST) -> str:
    """The answer of a decision by this function: its texts, and behind an arrow each call that a model chose."""
    texts = [text for _, text in _spoken(_plain(bytes(result)), "", known=function in _FUNCTIONS)]
    return cut("\n".join(texts) if texts else bytes(result).decode("utf-8", "replace"), limit)


def seen_text(seen: r.Raw | bytes, function: str, limit: int = LONGEST) -> str:
    """The input of a decision by this function, a message to a paragraph. Of a long one the last messages are shown.

    Of a recorded part (see `WholeInput`) only the new messages are shown, without the model's own answer before them.
    """
    value, known = _plain(bytes(seen)), function in _FUNCTIONS
    match value:
        case {"as_before": int(), "then": str() as part}:
            spoken = list(_spoken(_values_in(part), "", known=known))
            answer = next((place for place, (speaker, _) in enumerate(spoken) if speaker != _MODEL), 0)
            spoken = spoken[answer:]
        case {"cut": int() as size, "start": str()}:
            return f"({size:,} bytes, too long to be stored)"
        case _:
            spoken = list(_spoken(value, "", known=known))
    return _last([_line(speaker, cut(text, limit // 3)) for speaker, text in spoken], limit)


class WholeInput:
    """The whole input of each decision: a record holds only what is new since the one before it."""

    def __init__(self) -> None:
        self._last: dict[str, bytes | None] = {}

    def forget(self) -> None:
        """Forget earlier input, as after the start of a new process."""
        self._last.clear()

    def of(self, record: r.DecisionRecorded) -> bytes | None:
        """The whole input of this decision; None where it was too long to be stored, or its beginning is missing."""
        seen, before = bytes(record.seen), self._last.get(record.function, b"")
        whole: bytes | None = seen
        if seen.startswith((b'{"as_before":', b'{"cut":')):
            whole = _joined(before, seen)
        self._last[record.function] = whole
        return whole


class _Part(msgspec.Struct, frozen=True):
    as_before: int
    then: str


def _joined(before: bytes | None, seen: bytes) -> bytes | None:
    try:
        part = msgspec.json.decode(seen, type=_Part)
    except msgspec.MsgspecError:
        return None
    if before is None or len(before) < part.as_before or "\ufffd" in part.then:  # a sign was cut in two
        return None
    return before[: part.as_before] + part.then.encode()


# --- values as messages -----------------------------------------------------------------------------------------------


def _plain(value: bytes) -> Any:
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return value.decode("utf-8", "replace")


def _values_in(part: str) -> list[Any]:
    """The whole values in the last part of a JSON text; what it begins in the middle of is left out."""
    values: list[Any] = []
    decoder, place, failed = json.JSONDecoder(), part.find("{"), 0
    while place >= 0 and failed < _TRIES:
        try:
            value, place = decoder.raw_decode(part, place)
            values.append(value)
        except (ValueError, RecursionError):
            place, failed = place + 1, failed + 1
        place = part.find("{", place)
    return values


def _spoken(value: Any, speaker: str, *, known: bool) -> Iterator[tuple[str, str]]:
    """Who said what, in order: texts, and the calls of a model. `known`: its objects have the shape of messages."""
    match value:
        case str():
            if value.strip():
                yield speaker, value.replace("→", "->")  # the arrow is ours: no text looks like a call
        case list():
            for one in cast("list[object]", value):
                yield from _spoken(one, speaker, known=known)
        case dict():
            yield from _in_object(cast("dict[str, Any]", value), speaker, known=known)
        case None:
            return
        case _:
            yield speaker, msgspec.json.encode(value).decode()


def _in_object(value: dict[str, Any], speaker: str, *, known: bool) -> Iterator[tuple[str, str]]:
    own = _speaker(value)
    known = known or bool(own)
    if known and (call := _call(value)) is not None:
        yield _MODEL, f"→ {call}"
        return
    fields = [name for name in _INSIDE if known and name in value]
    if not fields and value:
        yield own or speaker, arguments_text(msgspec.json.encode(value))
    for name in fields:
        yield from _spoken(value[name], "instructions" if name in _TOLD else own or speaker, known=True)


def _call(value: dict[str, Any]) -> str | None:
    """The call that this object is, in words; None where it is none."""
    inner = value.get("function", value.get("function_call", value.get("functionCall")))
    given = cast("dict[str, Any]", inner) if isinstance(inner, dict) else value
    tool = _first(given, _NAMES)
    arguments = _first(given, _ARGUMENTS)
    without = given is not value or given.keys() == {"id", "tool"}  # the loop stores no empty arguments
    if not isinstance(tool, str) or (arguments is None and not without):
        return None
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    return call_text(tool, text.encode("utf-8", "replace") or b"{}")


def _speaker(value: dict[str, Any]) -> str:
    roles = (role for role in map(value.get, _ROLES) if isinstance(role, str))
    speaker = next((_SPEAKERS[role] for role in roles if role in _SPEAKERS), "")
    if speaker == "tool" or "response" in value:
        name = _first(value, _NAMES)
        return f"{name if isinstance(name, str) else 'tool'}{' failed' if value.get('failed') else ''}"
    return speaker


def _first(value: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((value[name] for name in names if name in value), None)


def _line(speaker: str, text: str) -> str:
    """One message. A line end in it begins no other message."""
    shown = marked(text)
    if not speaker:
        return shown
    return f"{speaker} {shown}" if speaker == _MODEL and text.startswith("→ ") else f"{speaker}: {shown}"


def _last(lines: list[str], limit: int) -> str:
    """The last of these messages that fit, and how many are left out before them."""
    first, size = len(lines), 0
    while first and (size := size + len(lines[first - 1])) <= limit:
        first -= 1
    first = min(first, max(0, len(lines) - 1))
    left_out = [f"({first:,} earlier {'message' if first == 1 else 'messages'})"] if first else []
    return "\n".join([*left_out, *(cut(line, limit) for line in lines[first:])])
