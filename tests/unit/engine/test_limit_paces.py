"""The pace of a limit of calls as tables: every moment that is stored, after each thing that can happen to it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from beforehand.journal.cells import CallPace, LimitVerdict, judge, judge_all, on_boot, opens_in_ms, settled, slowed
from beforehand.model.cell_limit import CellLimit
from beforehand.queues.call_limits import CallLimit

S = 10**9  # a second
EACH_SECOND, BURST = CallLimit(rate="1/second"), CallLimit(rate="1/second", burst=3)
NO_RATE, TWO = CallLimit(), CallLimit(at_once=2)


def pace(due_s: int, busy_s: int = 0, closed_s: int = 0, apart_ns: int = S, boot: str = "now") -> CallPace:
    return CallPace(boot, due_s * S, closed_s * 1000, busy_s * S, apart_ns)


@pytest.mark.parametrize(
    ("limit", "in_use", "before", "units", "verdict"),
    [
        # limit, under way, pace before, units -> granted, full, wait, pace after; it is second 100
        (EACH_SECOND, 0, pace(90, 80), 1, (True, False, 1000, pace(101, 100))),
        (EACH_SECOND, 0, pace(100, 80), 1, (True, False, 1000, pace(101, 100))),
        (EACH_SECOND, 0, pace(101, 80), 1, (False, False, 1000, pace(101, 80))),
        (EACH_SECOND, 0, pace(90, 80), 5, (True, False, 5000, pace(105, 100))),
        (BURST, 0, pace(90, 80), 1, (True, False, 0, pace(101, 100))),
        (BURST, 0, pace(101, 80), 1, (True, False, 0, pace(102, 80))),
        (BURST, 0, pace(102, 80), 1, (True, False, 1000, pace(103, 80))),
        (BURST, 0, pace(103, 80), 1, (False, False, 1000, pace(103, 80))),
        (BURST, 0, pace(90, 80), 9, (True, False, 7000, pace(109, 100))),
        (EACH_SECOND, 0, pace(90, 80, closed_s=100), 1, (True, False, 1000, pace(101, 100, 100))),
        (EACH_SECOND, 0, pace(90, 80, closed_s=103), 1, (False, False, 3000, pace(90, 80, 103))),
        (EACH_SECOND, 0, pace(105, 80, closed_s=103), 1, (False, False, 5000, pace(105, 80, 103))),
        (TWO, 0, pace(0, apart_ns=0), 1, (True, False, 0, pace(100, 100, apart_ns=0))),
        (TWO, 1, pace(0, apart_ns=0), 1, (True, True, 0, pace(100, 100, apart_ns=0))),
        (TWO, 2, pace(0, apart_ns=0), 1, (False, True, 0, pace(0, apart_ns=0))),
        (TWO, 3, pace(0, apart_ns=0), 1, (False, True, 0, pace(0, apart_ns=0))),
        (NO_RATE, 9, pace(0, apart_ns=0), 7, (True, False, 0, pace(100, 100, apart_ns=0))),
        (NO_RATE, 9, pace(0, closed_s=102, apart_ns=0), 1, (False, False, 2000, pace(0, 0, 102, 0))),
        (replace(TWO, rate="1/second"), 1, pace(90), 1, (True, True, 1000, pace(101, 100))),
        (replace(TWO, rate="1/second"), 2, pace(90), 1, (False, True, 0, pace(90))),
        (EACH_SECOND, 0, CallPace(), 1, (True, False, 1000, pace(101, 100))),
        (EACH_SECOND, 0, pace(999, 900, 950, boot="before"), 1, (False, False, 1000, pace(101, 100))),
        (BURST, 0, pace(1, 1, 1, boot="before"), 1, (False, False, 1000, pace(103, 100))),
    ],
)  # fmt: skip
def test_a_request_is_judged_by_what_is_due_and_by_what_is_under_way(
    limit: CallLimit, in_use: int, before: CallPace, units: int, verdict: tuple[bool, bool, int, CallPace]
):
    applied = limit.cell("mail", units)
    assert judge(applied, in_use, before, "now", 100_000) == LimitVerdict(*verdict)
    assert judge_all([(applied, in_use, before)], "now", 100_000) == [LimitVerdict(*verdict)]
    refused = (CellLimit("full", at_once=1), 1, CallPace())
    beside, _ = judge_all([(applied, in_use, before), refused], "now", 100_000)
    assert (beside.granted, beside.pace) == (False, on_boot(limit.cell(), before, "now", 100_000)), (
        "one refusal is one of all"
    )
    assert beside.wait_ms == opens_in_ms(limit.cell(), before, "now", 100_000)


@pytest.mark.parametrize(
    ("limit", "before", "after"),
    [
        (EACH_SECOND, CallPace(), pace(100, 100)),
        (NO_RATE, CallPace(), CallPace("now")),
        (NO_RATE, CallPace(closed_ms=7), CallPace("now", closed_ms=7)),
        (EACH_SECOND, pace(104, 80, 103), pace(104, 80, 103)),
        (EACH_SECOND, pace(104, 80, 103, boot=""), pace(104, 80, 103)),
        (EACH_SECOND, pace(104, 80, 103, boot="before"), pace(101, 100)),
        (BURST, pace(1, 80, 103, boot="before"), pace(103, 100)),
        (NO_RATE, pace(104, 80, 103, apart_ns=0, boot="before"), pace(100, 100, apart_ns=0)),
        (EACH_SECOND, pace(104, 80, 103, apart_ns=2 * S), pace(102, 100, 103)),
        (EACH_SECOND, pace(104, 80, 103, apart_ns=S // 2), pace(108, 100, 103)),
        (EACH_SECOND, pace(96, 80, 103, apart_ns=2 * S), pace(100, 100, 103)),
        (EACH_SECOND, pace(104, 80, 103, apart_ns=0), pace(100, 100, 103)),
        (NO_RATE, pace(104, 80, 103), pace(100, 100, 103, apart_ns=0)),
    ],
)
def test_a_pace_is_read_on_the_clock_of_this_boot_and_at_the_rate_in_force(
    limit: CallLimit, before: CallPace, after: CallPace
):
    assert on_boot(limit.cell(), before, "now", 100_000) == after


@pytest.mark.parametrize(
    ("before", "reserved", "used", "began_s", "after"),
    [
        (pace(130, 80), 10, 10, 90, pace(130, 80)),
        (pace(130, 80), 10, 4, 90, pace(124, 80)),
        (pace(130, 80), 10, 0, 80, pace(120, 80)),
        (pace(130, 80), 10, 0, 79, pace(130, 80)),
        (pace(130, 80), 10, 15, 90, pace(135, 80)),
        (pace(130, 80), 10, 15, 79, pace(135, 80)),
        (pace(90, 80), 10, 15, 80, pace(105, 100)),
        (pace(100, 80), 10, 15, 80, pace(105, 100)),
        (pace(90, 80), 10, 4, 80, pace(84, 80)),
        (pace(130, 80, apart_ns=0), 10, 15, 90, pace(130, 80, apart_ns=0)),
        (pace(130, 80, apart_ns=0), 10, 4, 90, pace(130, 80, apart_ns=0)),
        (pace(130, 80, boot="before"), 10, 15, 90, pace(130, 80, boot="before")),
        (pace(130, 80, boot="before"), 10, 4, 90, pace(130, 80, boot="before")),
        (pace(130, 80, 7, apart_ns=2 * S), 10, 9, 90, pace(128, 80, 7, apart_ns=2 * S)),
    ],
)
def test_what_a_call_has_used_takes_the_place_of_what_it_reserved(
    before: CallPace, reserved: int, used: int, began_s: int, after: CallPace
):
    assert settled(before, "now", reserved, used, began_s * 1000, 100_000) == after


@pytest.mark.parametrize(
    ("before", "until_s", "after"),
    [
        (CallPace(), 105, CallPace("now", closed_ms=105_000)),
        (pace(130, 80), 105, pace(130, 80, 105)),
        (pace(130, 80, 110), 105, pace(130, 80, 110)),
        (pace(130, 80, 103), 105, pace(130, 80, 105)),
        (pace(130, 80, 110, boot=""), 105, pace(130, 80, 110)),
        (pace(130, 80, 110, boot="before"), 105, CallPace("now", closed_ms=105_000)),
    ],
)
def test_a_service_that_asks_for_a_pause_gets_the_longest_it_asked_for(before: CallPace, until_s: int, after: CallPace):
    assert slowed(before, "now", until_s * 1000) == after
