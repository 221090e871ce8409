"""Limits of tools: how many calls are under way at once, and how many begin in a time, over all processes.

A call that is under way has a permit in the journal. A rate is kept as one moment per tool (GCRA): the one at which all
calls so far would have begun, had each waited for its turn. Both are judged here, by functions of what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

_RATE: Final = re.compile(r"([0-9]{1,9})\s*/\s*(second|minute|hour|day)")
_PERIOD_US: Final = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
_FASTEST_US: Final = 1_000
HOW_OFTEN: Final = "write a rate such as 10/second, 100/minute, 20/hour or 500/day"


class ToolLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limit of one tool. Without `at_once` any number of calls is under way, without `rate` they begin at any time.

    `rate` is a number of calls and a period, such as `100/minute`: they begin evenly spread over it. After a pause up
    to `burst` of them begin together. So in any time at most `burst` calls begin, and those that the rate gives it.
    """

    at_once: int | None = None
    rate: str = ""
    burst: int = 1

    @property
    def apart_us(self) -> int:
        """Microseconds between two calls at the full rate; 0 without a rate."""
        found = _RATE.fullmatch(self.rate.strip())
        if found is None:
            return 0
        return -(-_PERIOD_US[found[2]] // max(1, int(found[1])))

    def faults(self) -> Iterator[str]:
        """Every field that is out of range, or that contradicts another one."""
        if self.at_once is not None and self.at_once < 1:
            yield f".at_once={self.at_once}: it is at least 1; to stop a tool: holdfast pause --tool NAME"
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
            yield f".rate={self.rate!r} permits no call; to stop a tool: holdfast pause --tool NAME"
        elif self.apart_us < _FASTEST_US:
            yield f".rate={self.rate!r}: it is at most 1000/second; leave it out for no limit"
        if self.at_once is not None and self.burst > self.at_once >= 1:
            yield f".burst={self.burst} is above at_once={self.at_once}"


class ToolPace(msgspec.Struct, frozen=True):
    """The stored moments of a tool, on the journal's clock of `boot`.

    `due_us` is when all calls so far would have begun at the full rate. `closed_ms` is until when its service has asked
    not to be called.
    """

    boot: str = ""
    due_us: int = 0
    closed_ms: int = 0


class PermitVerdict(msgspec.Struct, frozen=True):
    """The answer to one request, with the pace to be stored.

    `wait_ms` is how long no further call may begin, because of the rate or its service. `full`: as many calls are under
    way as may be.
    """

    granted: bool
    full: bool
    wait_ms: int
    pace: ToolPace


def judge(limit: ToolLimit, in_use: int, pace: ToolPace, boot: str, now_ms: int) -> PermitVerdict:
    """Judge a request to begin one more call, with `in_use` of them under way."""
    pace = on_boot(limit, pace, boot, now_ms)
    full = limit.at_once is not None and in_use >= limit.at_once
    wait_ms = opens_in_ms(limit, pace, boot, now_ms)
    if full or wait_ms:
        return PermitVerdict(False, full, wait_ms, pace)
    pace = replace(pace, due_us=max(pace.due_us, now_ms * 1000) + limit.apart_us)
    full = limit.at_once is not None and in_use + 1 >= limit.at_once
    return PermitVerdict(True, full, opens_in_ms(limit, pace, boot, now_ms), pace)


def opens_in_ms(limit: ToolLimit, pace: ToolPace, boot: str, now_ms: int) -> int:
    """How long no further call may begin, whatever is under way; 0: one may begin now."""
    pace = on_boot(limit, pace, boot, now_ms)
    turn_us = pace.due_us - (limit.burst - 1) * limit.apart_us if limit.apart_us else 0
    return max(0, -(-turn_us // 1000) - now_ms, pace.closed_ms - now_ms)


def on_boot(limit: ToolLimit, pace: ToolPace, boot: str, now_ms: int) -> ToolPace:
    """The pace on the clock of this boot, and under the limit in force.

    The moments of another boot do not compare with this clock: then all of the burst counts as used. A rate that was
    raised does not wait for a moment that the old one had made.
    """
    last_us = now_ms * 1000 + limit.burst * limit.apart_us
    if pace.boot not in {"", boot}:
        return ToolPace(boot, last_us)
    return replace(pace, boot=boot, due_us=min(pace.due_us, last_us))


def slowed(pace: ToolPace, boot: str, until_ms: int) -> ToolPace:
    """The pace after a service has asked not to be called until this moment. It is never moved to an earlier one."""
    known = pace if pace.boot in {"", boot} else ToolPace(due_us=0)
    return replace(known, boot=boot, closed_ms=max(known.closed_ms, until_ms))
