"""Limits of calls: how many are under way at once, and how many begin in a time, over all processes.

A call may be under several limits together: that of its tool, of each service that the tool reaches, those of its
model for calls and for tokens, and those of its tenant. A call that is under way has a permit in the journal under all
of them: `beforehand.journal.cells` judges it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from beforehand.model.cell_limit import CellLimit

_RATE: Final = re.compile(r"([0-9]{1,12})\s*/\s*(second|minute|hour|day)")
_PERIOD_NS: Final = {
    "second": 1_000_000_000, "minute": 60_000_000_000, "hour": 3_600_000_000_000, "day": 86_400_000_000_000,
}  # fmt: skip
_FASTEST_NS: Final = 1_000_000
_FASTEST_TOKENS_NS: Final = 1_000
HOW_OFTEN: Final = "write a rate such as 10/second, 100/minute, 20/hour or 500/day"


class CallLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One limit of calls. Without `at_once` any number is under way, without `rate` they begin at any time.

    `rate` is a number of calls and a period, such as `100/minute`: they begin evenly spread over it. After a pause up
    to `burst` of them begin together. So in any time at most `burst` calls begin, and those that the rate gives it.
    """

    at_once: int | None = None
    rate: str = ""
    burst: int = 1

    @property
    def apart_ns(self) -> int:
        """Nanoseconds between two calls at the full rate; 0 without a rate."""
        found = _RATE.fullmatch(self.rate.strip())
        if found is None:
            return 0
        return -(-_PERIOD_NS[found[2]] // max(1, int(found[1])))

    def cell(self, name: str = "", units: int = 1) -> CellLimit:
        """The limit as the journal judges it, for a call that counts so many units."""
        return CellLimit(name, self.at_once, self.apart_ns, self.burst, units)

    def faults(self) -> Iterator[str]:
        """Every field that is out of range, or that contradicts another one."""
        if self.at_once is not None and self.at_once < 1:
            yield f".at_once={self.at_once}: it is at least 1; to stop a tool: beforehand pause --tool NAME"
        if self.burst < 1:
            yield f".burst={self.burst}: it is at least 1"
        if not self.rate:
            if self.burst > 1:
                yield f".burst={self.burst} without rate: {HOW_OFTEN}"
            return
        found = _RATE.fullmatch(self.rate.strip())
        if found is None:
            yield f".rate={self.rate[:40]!r}: {HOW_OFTEN}"
        elif not int(found[1]):
            yield f".rate={self.rate!r} permits no call; to stop a tool: beforehand pause --tool NAME"
        elif self.apart_ns < _FASTEST_NS:
            yield f".rate={self.rate!r}: it is at most 1000/second; leave it out for no limit"
        if self.at_once is not None and self.burst > self.at_once >= 1:
            yield f".burst={self.burst} is above at_once={self.at_once}"


class ServiceLimit(CallLimit, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limit of one service, over the calls of all `tools` that reach it."""

    tools: tuple[str, ...] = ()


class ModelLimit(CallLimit, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limit of one model. `tokens` is a number of tokens and a period, such as `200000/minute`.

    A call begins once the tokens of earlier calls have been due; `token_burst` of them may be ahead of their time.
    """

    tokens: str = ""
    token_burst: int = 1

    @property
    def of_tokens(self) -> CallLimit:
        """The limit in which each call counts as many units as it uses tokens."""
        return CallLimit(rate=self.tokens, burst=self.token_burst)

    def faults(self) -> Iterator[str]:
        """Every field that is out of range, or that contradicts another one."""
        yield from CallLimit.faults(self)
        found = _RATE.fullmatch(self.tokens.strip())
        if self.tokens and (found is None or not int(found[1])):
            yield f".tokens={self.tokens[:40]!r}: write a rate of at least one token, such as 200000/minute"
        elif self.tokens and self.of_tokens.apart_ns < _FASTEST_TOKENS_NS:
            yield f".tokens={self.tokens!r}: it is at most 1000000/second; leave it out for no limit"
        if self.token_burst < 1 or (self.token_burst > 1 and not self.tokens):
            yield f".token_burst={self.token_burst}: it is at least 1, beside tokens"


class LimitedCall(msgspec.Struct, frozen=True):
    """A call, as far as limits are concerned: of a tool, or of a model, for the tenant of its run.

    A call of a model that may ask one of several is under the limits of all of them. `tokens` is what it may use.
    """

    tool: str = ""
    tenant: str = ""
    models: tuple[str, ...] = ()
    tokens: int = 1


class AppliedLimit(msgspec.Struct, frozen=True):
    """One limit that a call is under. `name` is that of its state in the journal, and in messages.

    `shared`: it is that of a tool or service for all tenants, so a `Retry-After` concerns all of its calls. `units` is
    how much the call counts under the rate.
    """

    name: str
    limit: CallLimit
    shared: bool = True
    units: int = 1

    @property
    def cell(self) -> CellLimit:
        """The limit as the journal judges it."""
        return self.limit.cell(self.name, self.units)
