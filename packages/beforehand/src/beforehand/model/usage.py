"""`Usage`: the tokens of one call of a model, as its service counted them, and the interface of lists of prices.

`usage_of` reads it in the forms in which services and agent frameworks write it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Protocol, cast

import msgspec


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The usage of one call of a model: its tokens, and a cost in a unit of your choice where code knows one.

    `input_tokens` include the cached ones, those written to a cache and those of audio; `output_tokens` include those
    of reasoning and of audio. `model` is the name that the service gives the model, `service` the provider's name or
    address, and `request` the service's own id of the answer. `refused`: the service refused the request, or was
    not reached, so nothing was used. Without input tokens, and not refused, the usage is unknown: a model that answers
    has read something.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    audio_input_tokens: int = 0
    audio_output_tokens: int = 0
    model: str = ""
    service: str = ""
    request: str = ""
    refused: bool = False

    @property
    def known(self) -> bool:
        """True if the service counted tokens, or nothing was used."""
        return self.refused or self.input_tokens > 0

    @property
    def called(self) -> bool:
        """True unless nothing was used: a request that was refused, or not sent, is not a call."""
        return not self.refused or self.input_tokens > 0 or self.output_tokens > 0

    @property
    def contradicts(self) -> bool:
        """True if parts of the input or of the output are more than the whole, so that the counts cannot be true."""
        return (
            self.cached_tokens + self.cache_write_tokens + self.audio_input_tokens > self.input_tokens
            or self.reasoning_tokens + self.audio_output_tokens > self.output_tokens
        )


class CallCost(msgspec.Struct, frozen=True):
    """The price of one call, and its basis: the file or the library, with its version."""

    amount: Decimal
    currency: str
    basis: str


class PriceSource(Protocol):
    """A list of prices. `basis` names it with its version."""

    @property
    def basis(self) -> str:
        """The name of the list, and its version."""
        ...

    def cost(self, used: Usage, at_ms: int) -> CallCost | None:
        """The cost of this usage at that time; None where the model has no price."""
        ...


_TOKENS: Final[Mapping[str, tuple[str, ...]]] = {
    "input_tokens": ("input_tokens", "prompt_tokens", "prompt_token_count"),
    "output_tokens": ("output_tokens", "completion_tokens", "candidates_token_count"),
    "cached_tokens": (
        "cached_tokens", "cache_read_tokens", "cache_read_input_tokens", "cached_content_token_count",
        "input_tokens_details.cached_tokens", "prompt_tokens_details.cached_tokens", "input_token_details.cache_read",
    ),
    "cache_write_tokens": (
        "cache_write_tokens", "cache_creation_input_tokens", "cache_creation_tokens",
        "input_token_details.cache_creation",
    ),
    "reasoning_tokens": (
        "reasoning_tokens", "thoughts_token_count", "output_tokens_details.reasoning_tokens",
        "completion_tokens_details.reasoning_tokens", "output_token_details.reasoning", "details.reasoning_tokens",
    ),
    "audio_input_tokens": (
        "audio_input_tokens", "input_audio_tokens", "prompt_tokens_details.audio_tokens", "input_token_details.audio",
    ),
    "audio_output_tokens": (
        "audio_output_tokens", "output_audio_tokens", "completion_tokens_details.audio_tokens",
        "output_token_details.audio",
    ),
}  # fmt: skip
"""The names of each count; the first one that is there counts. A dot leads into a part."""
_BESIDE_INPUT: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Counts that a service does not include in its input tokens."""
_BESIDE_OUTPUT: Final = ("thoughts_token_count",)
_TOTAL: Final = ("total_tokens", "total_token_count")
_OWN_NAMES: Final = ("model_name", "model", "name")
"""The attributes that hold the model's name. In a class of a framework `name` may be that of a step."""
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("model", "model_name", "model_version"),
    "service": ("service", "provider_name", "model_provider"),
    "request": ("request", "response_id", "provider_response_id", "request_id"),
}
_ANSWERS: Final = ("response", "chat.completion", "message")
"""The kinds of object whose `id` is the service's own name of the answer."""
_LONGEST: Final = 200
_MOST: Final = 2**53


def usage_of(answer: object) -> Usage:
    """The usage that an answer states in its `usage` or `usage_metadata`; empty where it states none.

    Of several parts, the last one that states it counts. What a client states may be of any type: only counts and
    texts that a record can hold are taken. Where a count cannot be read, or that of the input or the output is missing
    and does not follow from the total, no count is taken: a part of the tokens is not the usage.
    """
    parts: list[object] = list(reversed(cast("list[object]", answer))) if isinstance(answer, list) else [answer]
    stated = ((one, _part(one, kind)) for one in parts for kind in ("usage", "usage_metadata"))
    answer, counted = next((one for one in stated if one[1] is not None), (None, None))
    if counted is None:
        return Usage()
    found: dict[str, Any] = _counts(counted)
    for name, keys in _NAMES.items():
        found[name] = _text(_part(counted, name), *(_part(answer, one) for one in keys))
    if not found["request"] and any(_part(answer, kind) in _ANSWERS for kind in ("object", "type")):
        found["request"] = _text(_part(answer, "id"))
    return Usage(**found, cost=finite(_part(counted, "cost")) or 0.0, refused=_part(counted, "refused") is True)


def finite(number: object) -> float | None:
    """A number that a record can hold; None for anything else that a model client reports."""
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        return None
    try:
        return float(number) if math.isfinite(number) else None
    except OverflowError:  # an integer that no float reaches
        return None


def _counts(counted: object) -> dict[str, int]:
    """The counts that are stated; none of them unless all can be read, and both input and output are known."""
    try:
        found = {name: number for name, paths in _TOKENS.items() if (number := _count(counted, *paths)) is not None}
        for side, beside in (("input_tokens", _BESIDE_INPUT), ("output_tokens", _BESIDE_OUTPUT)):
            if side in found:
                found[side] += sum(_count(counted, name) or 0 for name in beside)
        missing = {"input_tokens", "output_tokens"} - found.keys()
        if missing:
            rest = (_count(counted, *_TOTAL) or -1) - found.get("input_tokens", 0) - found.get("output_tokens", 0)
            if len(missing) > 1 or rest < 0:
                return {}
            found[missing.pop()] = rest
    except ValueError:
        return {}
    return found


def _count(counted: object, *paths: str) -> int | None:
    """The first of these counts that is stated; None if none is. Raises `ValueError` if it cannot be read."""
    for path in paths:
        found = counted
        for name in path.split("."):
            found = _part(found, name)
        if isinstance(found, float) and found.is_integer():
            found = int(found)  # some services write whole numbers so
        if type(found) is int and 0 <= found < _MOST:
            return found
        if found is not None:
            raise ValueError(f"{path}={found!r} is not a count")
    return None


def _part(whole: object, name: str) -> object:
    if isinstance(whole, Mapping):
        return cast("Mapping[str, Any]", whole).get(name)
    return getattr(whole, name, None)


def _text(*found: object) -> str:
    text = next((one for one in found if isinstance(one, str) and one), "")
    return text[:_LONGEST].replace("\0", "").encode("utf-8", "replace").decode()


def own_name(model: object) -> str:
    """The name that a model states of itself; empty if it states none."""
    if isinstance(model, str):
        return model
    stated: list[object] = [getattr(model, one, None) for one in _OWN_NAMES]
    return next((one for one in stated if isinstance(one, str) and one), "")
