"""Limits of calls: how many are under way at once, and how many begin in a time, over all processes.

A call may be under several limits together: that of its tool, of each service that the tool reaches, those of its
model for calls and for tokens, and those of its tenant. A call that is under way has a permit in the journal under all
of them. A rate is kept as one moment per limit (GCRA): the one at which all calls so far would have begun, had each
waited for its turn. Both are judged here, by functions of what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

_RATE: Final = re.compile(r"([0-9]{1,12})\s*/\s*(second|minute|hour|day)")
_PERIOD_NS: Final = {
    "second": 1_000_000_000, "minute": 60_000_000_000, "hour": 3_600_000_000_000, "day": 86_400_000_000_000,
}  # fmt: skip
_MS: Final = 1_000_000
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


class CallPace(msgspec.Struct, frozen=True):
    """The stored moments of a limit, on the journal's clock of `boot`.

    `due_ns` is when all calls so far would have begun at the full rate, and `busy_ns` since when one was always due.
    `apart_ns` is the rate by which that was computed. `closed_ms` is until when the service has asked not to be called.
    """

    boot: str = ""
    due_ns: int = 0
    closed_ms: int = 0
    busy_ns: int = 0
    apart_ns: int = 0


class LimitVerdict(msgspec.Struct, frozen=True):
    """One limit after a request, with the pace to be stored.

    `wait_ms` is how long no further call may begin, because of the rate or its service. `full`: as many calls are under
    way as may be.
    """

    granted: bool
    full: bool
    wait_ms: int
    pace: CallPace


def judge(limit: CallLimit, in_use: int, pace: CallPace, boot: str, now_ms: int, units: int = 1) -> LimitVerdict:
    """Judge a request to begin one more call, with `in_use` of them under way."""
    verdict = _unchanged(limit, in_use, pace, boot, now_ms)
    if verdict.full or verdict.wait_ms:
        return verdict
    return replace(_unchanged(limit, in_use + 1, _charged(verdict.pace, units, now_ms), boot, now_ms), granted=True)


def judge_all(limits: Collection[tuple[AppliedLimit, int, CallPace]], boot: str, now_ms: int) -> list[LimitVerdict]:
    """Judge a request under several limits, each with the calls under way and its pace. One refusal is one of all."""
    verdicts = [judge(one.limit, in_use, pace, boot, now_ms, one.units) for one, in_use, pace in limits]
    if all(verdict.granted for verdict in verdicts):
        return verdicts
    return [_unchanged(one.limit, in_use, pace, boot, now_ms) for one, in_use, pace in limits]


def _unchanged(limit: CallLimit, in_use: int, pace: CallPace, boot: str, now_ms: int) -> LimitVerdict:
    """The limit as it is, with so many calls under way: nothing is granted."""
    pace = on_boot(limit, pace, boot, now_ms)
    full = limit.at_once is not None and in_use >= limit.at_once
    return LimitVerdict(False, full, opens_in_ms(limit, pace, boot, now_ms), pace)


def _charged(pace: CallPace, units: int, now_ms: int) -> CallPace:
    """The pace after so many units were used."""
    now_ns = now_ms * _MS
    begin, busy = (now_ns, now_ns) if pace.due_ns <= now_ns else (pace.due_ns, pace.busy_ns)
    return replace(pace, due_ns=begin + units * pace.apart_ns, busy_ns=busy)


def opens_in_ms(limit: CallLimit, pace: CallPace, boot: str, now_ms: int) -> int:
    """How long no further call may begin, whatever is under way; 0: one may begin now."""
    pace = on_boot(limit, pace, boot, now_ms)
    turn_ns = pace.due_ns - (limit.burst - 1) * limit.apart_ns if limit.apart_ns else 0
    return max(0, -(-turn_ns // _MS) - now_ms, pace.closed_ms - now_ms)


def on_boot(limit: CallLimit, pace: CallPace, boot: str, now_ms: int) -> CallPace:
    """The pace on the clock of this boot, and under the limit in force.

    The moments of another boot do not compare with this clock: then all of the burst counts as used. What was used
    under another rate is due in the time that the rate in force gives it.
    """
    now_ns, apart = now_ms * _MS, limit.apart_ns
    if pace.boot not in {"", boot}:
        return CallPace(boot, now_ns + limit.burst * apart, 0, now_ns, apart)
    if pace.apart_ns == apart:
        return replace(pace, boot=boot)
    ahead = max(0, pace.due_ns - now_ns) * apart // pace.apart_ns if pace.apart_ns else 0
    return CallPace(boot, now_ns + ahead, pace.closed_ms, now_ns, apart)


def settled(pace: CallPace, boot: str, reserved: int, used: int, began_ms: int, now_ms: int) -> CallPace:
    """The pace after a call that began with so many units reserved has used another number.

    Less is given back only while calls have been due ever since: else the time that it reserved has passed.
    """
    if pace.boot != boot or not pace.apart_ns or used == reserved:
        return pace
    if used > reserved:
        return _charged(pace, used - reserved, now_ms)
    if began_ms * _MS < pace.busy_ns:
        return pace
    return replace(pace, due_ns=pace.due_ns - (reserved - used) * pace.apart_ns)


def slowed(pace: CallPace, boot: str, until_ms: int) -> CallPace:
    """The pace after a service has asked not to be called until this moment. It is never moved to an earlier one."""
    known = pace if pace.boot in {"", boot} else CallPace()
    return replace(known, boot=boot, closed_ms=max(known.closed_ms, until_ms))
