"""Masks secrets in the records of a run: values covered by `Secret` and `redact`, wherever they occur as text.

A run learns a value when it is revealed or passed as a redacted argument, and replaces it from then on. Texts (reasons,
errors, evidence, frames) are masked in every record. A result is masked where it echoes a secret or a redacted argument
of its own call: agent code receives the masked form too, as it would on replay. Arguments and other values that
agent code computes with are left as they are, since a mask in them would be sent.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote, quote_plus

import msgspec

from beforehand.model import records as r
from beforehand.model.secret import Secret
from beforehand.model.values import ResultCodec

MASK: Final = "[masked]"
SHORTEST: Final = 4
"""Characters of a value that is masked in texts. A shorter one occurs in words that have nothing to do with it."""
SHORTEST_IN_RESULTS: Final = 8
REMEMBERED: Final = 500
"""Redacted values that one run remembers, the newest: each of them is searched for in each text."""

_TEXTS: Final = frozenset({"why", "error", "detail", "reason", "evidence", "note", "asks", "frames"})
_R = TypeVar("_R", bound=msgspec.Struct)


class Masks:
    """The secret values that one run knows. Nothing here is stored."""

    def __init__(self) -> None:
        self._secrets: dict[str, None] = {}
        self._redacted: dict[str, None] = {}
        self._pattern: tuple[int, re.Pattern[str]] | None = None
        self._learned = 0

    def __bool__(self) -> bool:
        return self._learned > 0

    def reveal(self, value: str) -> None:
        """Learn a secret that is revealed; a tool's thread may call this."""
        if len(value) >= SHORTEST and value not in self._secrets:
            self._secrets[value] = None
            self._learned += 1

    def redact(self, arguments: Mapping[str, Any], redacted: Iterable[str]) -> None:
        """Learn the values of redacted arguments, with all texts and numbers in them."""
        for value in leaves([arguments[name] for name in redacted if name in arguments]):
            if value not in self._redacted:
                self._redacted[value] = None
                self._learned += 1
        while len(self._redacted) > REMEMBERED:
            del self._redacted[next(iter(self._redacted))]

    def text(self, text: str) -> str:
        """The text without the values, in any of their usual encodings, and without a part of one at its cut end."""
        pattern = self._compiled()
        if pattern is None or not text:
            return text
        return _without_cut(pattern.sub(MASK, text), self._values())

    def record(self, record: _R) -> _R:
        """The record with its texts masked."""
        if not self._learned:
            return record
        changes = {name: self._masked(value) for name in _texts_of(type(record)) if (value := getattr(record, name))}
        return msgspec.structs.replace(record, **changes) if changes else record

    def end(self, end: r.End, arguments: Mapping[str, Any] | None, redacted: frozenset[str]) -> r.End:
        """The end of a call with its texts masked, and the echoes of this call's own arguments in its result."""
        if not self._learned:
            return end
        own = self._own(arguments, redacted)
        replace = msgspec.structs.replace
        facts = tuple(r.Reported(self.text(fact.name), self.json(fact.value, own)) for fact in end.facts)
        pending = tuple(replace(part, name=self.text(part.name)) for part in end.pending)
        why, code, result = self.text(end.why), self.text(end.code), self.json(end.result, own)
        return replace(end, why=why, code=code, result=result, facts=facts, pending=pending)

    def own(self, value: r.Raw, arguments: Mapping[str, Any] | None, redacted: frozenset[str]) -> r.Raw:
        """The JSON value without secrets and without the redacted arguments of its own call."""
        return self.json(value, self._own(arguments, redacted))

    def records(self, records: tuple[_R, ...]) -> tuple[_R, ...]:
        """The records with their texts masked."""
        return tuple(map(self.record, records)) if self._learned else records

    def result(self, codec: ResultCodec, stored: bytes) -> bytes:
        """The result of a run, without anything that the run knows to be secret. Raises `ValueError` for a misfit."""
        masked = bytes(self.json(r.Raw(stored), self._values())) if self._learned else stored
        if masked != stored and (misfit := codec.misfit(masked)):
            raise ValueError(f"it repeats a secret, and what remains without it does not fit: {misfit}")
        return masked

    def json(self, stored: r.Raw, values: Iterable[str]) -> r.Raw:
        """The JSON value without these values: in its texts, and as whole numbers."""
        wanted = tuple(value for value in values if len(value) >= SHORTEST_IN_RESULTS)
        text = bytes(stored).decode()
        if not wanted or not text:
            return stored
        pattern = _pattern_of(wanted)
        if pattern.search(text) is None:
            return stored
        return r.Raw(msgspec.json.encode(_mapped(msgspec.json.decode(stored), pattern, frozenset(wanted))))

    def _own(self, arguments: Mapping[str, Any] | None, redacted: frozenset[str]) -> tuple[str, ...]:
        given = [arguments[name] for name in redacted if name in arguments] if arguments else []
        return (*tuple(self._secrets), *leaves(given))

    def _values(self) -> tuple[str, ...]:
        return (*tuple(self._secrets), *tuple(self._redacted))

    def _compiled(self) -> re.Pattern[str] | None:
        if not self._learned:
            return None
        if self._pattern is None or self._pattern[0] != self._learned:
            learned = self._learned  # read first: a value that is learned meanwhile rebuilds the pattern
            self._pattern = (learned, _pattern_of(self._values()))
        return self._pattern[1]

    def _masked(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        frames = cast("tuple[r.Frame, ...]", value)
        return tuple(msgspec.structs.replace(frame, source=self.text(frame.source)) for frame in frames)


def leaves(value: object) -> Iterator[str]:
    """The texts and numbers in a value, as text, that are long enough to be recognised."""
    inner = _inner(value)
    if inner is not None:
        for one in inner:
            yield from leaves(one)
        return
    text = _leaf(value)
    if len(text) >= SHORTEST:
        yield text


def _inner(value: object) -> Iterable[object] | None:
    """The values in a container; None for any other value."""
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value).values()
    if isinstance(value, (list, tuple, set, frozenset)):
        return cast("Iterable[object]", value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.astuple(value)
    if is_dataclass(value):
        return vars(value).values() if hasattr(value, "__dict__") else ()
    return None


def _leaf(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    if value is None or isinstance(value, (bool, Secret)):  # a secret is learned when it is revealed
        return ""
    if isinstance(value, (int, float)) or type(value).__str__ is not object.__str__:
        return str(value)
    return ""


def spellings(value: str) -> set[str]:
    """The value as it usually stands in texts: plain, escaped, for an address, in base64 and in hexadecimal digits."""
    import json  # noqa: PLC0415 - only a run with secrets needs it

    raw = value.encode("utf-8", "surrogatepass")
    found = {value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    found |= {
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        quote(raw, safe="").lower(),
        raw.hex(),
        raw.hex().upper(),
    }
    for shift in range(3):  # where it begins within a group of three bytes, as in "name:secret"
        coded = base64.b64encode(bytes(shift) + raw).decode().rstrip("=")
        core = coded[(0, 2, 3)[shift] : len(coded) - ((shift + len(raw)) % 3 > 0)]
        if len(core) >= SHORTEST_IN_RESULTS:
            found |= {core, core.replace("+", "-").replace("/", "_")}
    return {one for one in found if len(one) >= SHORTEST}


def _pattern_of(values: Iterable[str]) -> re.Pattern[str]:
    every = {spelled for value in values for spelled in spellings(value)}
    return re.compile("|".join(map(re.escape, sorted(every, key=len, reverse=True))))


def _without_cut(text: str, values: Iterable[str]) -> str:
    """The text without the beginning of a value at its end: texts are cut to a length before they come here."""
    kept = text.removesuffix("...")
    for value in values:
        for length in range(min(len(value) - 1, len(kept)), SHORTEST - 1, -1):
            if kept.endswith(value[:length]):
                return kept[:-length] + MASK + text[len(kept) :]
    return text


def _mapped(value: object, pattern: re.Pattern[str], whole: frozenset[str]) -> object:
    match value:
        case str():
            return pattern.sub(MASK, value)
        case bool() | None:
            return value
        case int() | float():
            return MASK if str(value) in whole else value
        case list():
            return [_mapped(one, pattern, whole) for one in cast("list[object]", value)]
        case dict():
            members = cast("dict[str, object]", value)
            return {pattern.sub(MASK, key): _mapped(one, pattern, whole) for key, one in members.items()}
        case _:
            return value


@cache
def _texts_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name in _TEXTS)
