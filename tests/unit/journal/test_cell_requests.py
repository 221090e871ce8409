"""The rules of permits, rates and hints as tables: the answer, and exactly which cells change."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from beforehand.errors import LimitsChanged
from beforehand.journal import requests
from beforehand.journal.port import (
    HintRequest,
    LedgerEntry,
    LimitState,
    Permit,
    PermitAnswer,
    PermitRequest,
    ReleaseRequest,
    SlowRequest,
    WorkerState,
)
from beforehand.journal.requests import CellAddress, Changes, decide
from beforehand.model.cell_limit import CellLimit
from tests.unit.journal.commit_facts import DictFacts

PAUSE_MS = 600
ALIVE, DEAD = WorkerState("alive", 0, 21), WorkerState("dead", 90, 22)
MISSED = WorkerState("unknown", PAUSE_MS, 23)
"""A worker that cannot be observed, silent for as long as a process can pause, and no longer."""
SILENT = WorkerState("unknown", PAUSE_MS + 1, 24)
STOPPED = WorkerState("alive", PAUSE_MS, 25)
HUNG = WorkerState("alive", PAUSE_MS + 1, 26)
LONG_HUNG = WorkerState("alive", PAUSE_MS + 9, 20)
MINE = Permit("w", 5, "r/5")
ONE, TWO = CellLimit("tool", 1), CellLimit("tool", 2)
PER_SECOND = CellLimit("rate", None, 1_000_000_000, 1)
"""One in a second. The journal's clock is at 500 ms."""
UNPACED = b'["b",500000000,0,500000000,0]'
"""The moments of a limit without a rate once a permit was granted."""
IDLE = b'["b",0,0,0,0]'
HELD = {"mine": ("w", 4), "other": ("v", 1), "another": ("u", 2)}


class Case(NamedTuple):
    """A request, the cells before it and the workers that hold slots, its answer, and the cells that change."""

    request: Any
    before: dict[CellAddress, bytes]
    answer: Any
    after: dict[CellAddress, bytes | None]
    workers: dict[str, WorkerState] = {}


def slot(worker: str, number: int, limit: str = "tool") -> CellAddress:
    return "slot", limit, f"{worker} {number}"


def rate(limit: str = "tool") -> CellAddress:
    return "rate", limit, ""


def holder(operation: str, units: int = 1, at_ms: int = 500) -> bytes:
    return b'["%s",%d,%d]' % (operation.encode(), units, at_ms)


def ask(*limits: CellLimit, declared: int = 0) -> PermitRequest:
    return PermitRequest(MINE, limits, declared, PAUSE_MS)


def beside(
    state: WorkerState, limit: CellLimit, *, granted: bool, hung: int = 0, silent_ms: int = 0, gone: bool = False
) -> Case:
    """A request beside a permit of a worker in this state. `gone`: the cell of that permit is deleted."""
    counts = not gone and state is not SILENT
    full = limit.at_once == (1 if granted else 0) + (1 if counts else 0)
    after: dict[CellAddress, bytes | None] = {slot("v", 1): None} if gone else {}
    after |= {slot("w", 5): holder("r/5"), rate(): UNPACED} if granted else {rate(): IDLE}
    answer = PermitAnswer(granted, (LimitState("tool", full, 0, hung, silent_ms),))
    return Case(ask(limit), {slot("v", 1): holder("r/1", 1, 100)}, answer, after, {"v": state})


def granted_alone(limit: CellLimit, state: LimitState, pace: bytes, before: bytes | None = None) -> Case:
    name = limit.name
    known = {} if before is None else {rate(name): before}
    after: dict[CellAddress, bytes | None] = {slot("w", 5, name): holder("r/5", limit.units), rate(name): pace}
    return Case(ask(limit), known, PermitAnswer(True, (state,)), after)


def waits(limit: CellLimit, wait_ms: int, before: bytes, after: bytes | None = None) -> Case:
    """A rate under which no call may begin yet. Its cell stays as it is where it is under the limit in force."""
    changed: dict[CellAddress, bytes | None] = {} if after is None else {rate(limit.name): after}
    answer = PermitAnswer(False, (LimitState(limit.name, False, wait_ms),))
    return Case(ask(limit), {rate(limit.name): before}, answer, changed)


PERMITS = {
    "no limit": Case(ask(), {}, PermitAnswer(True), {}),
    "the first": granted_alone(TWO, LimitState("tool", False, 0), UNPACED),
    "the last place": granted_alone(ONE, LimitState("tool", True, 0), UNPACED),
    "beside a living one": beside(ALIVE, TWO, granted=True),
    "beside one that was missed": beside(MISSED, TWO, granted=True, silent_ms=600),
    "no place beside a living one": beside(ALIVE, ONE, granted=False),
    "no place beside one that was missed": beside(MISSED, ONE, granted=False, silent_ms=600),
    "no place beside one that is silent and seen": beside(STOPPED, ONE, granted=False, silent_ms=600),
    "no place beside a hung one": beside(HUNG, ONE, granted=False, hung=26, silent_ms=601),
    "the place of a dead one": beside(DEAD, ONE, granted=True, gone=True),
    "the place of one that is silent and not seen": beside(SILENT, ONE, granted=True),
    "no place beside its own": Case(
        ask(ONE), {slot("w", 4): holder("r/4"), rate(): IDLE}, PermitAnswer(False, (LimitState("tool", True, 0),)), {},
        {"w": DEAD},
    ),
    "one of several workers is dead, and none is left over": Case(
        ask(TWO),
        {slot("w", 4): holder("r/4"), slot("v", 1): holder("r/1"), slot("u", 2): holder("r/2"), rate(): IDLE},
        PermitAnswer(False, (LimitState("tool", True, 0, 26, 601),)),
        {slot("v", 1): None},
        {"v": DEAD, "u": HUNG},
    ),
    "of two that hang the lower process, and the longest silence": Case(
        ask(TWO), {slot("v", 1): holder("r/1"), slot("u", 2): holder("r/2"), rate(): IDLE},
        PermitAnswer(False, (LimitState("tool", True, 0, 20, 609),)), {}, {"v": HUNG, "u": LONG_HUNG},
    ),
    "a worker whose name has a space": Case(
        ask(ONE), {("slot", "tool", "a b 1"): holder("r/1"), rate(): IDLE},
        PermitAnswer(False, (LimitState("tool", True, 0),)), {}, {"a b": ALIVE, "a": DEAD},
    ),
    "asked again under one number": Case(
        ask(TWO), {slot("w", 5): holder("r/4", 1, 10), rate(): UNPACED}, PermitAnswer(True, (LimitState("tool", True, 0),)),
        {slot("w", 5): holder("r/5")},
    ),
    "a rate": granted_alone(
        PER_SECOND, LimitState("rate", False, 1_000), b'["b",1500000000,0,500000000,1000000000]'
    ),
    "a rate with a burst": granted_alone(
        CellLimit("rate", None, 1_000_000_000, 2, 1), LimitState("rate", False, 0),
        b'["b",1500000000,0,500000000,1000000000]',
    ),
    "a call that counts several": granted_alone(
        CellLimit("rate", None, 1_000_000_000, 2, 3), LimitState("rate", False, 2_000),
        b'["b",3500000000,0,500000000,1000000000]',
    ),
    "a rate at its moment": granted_alone(
        PER_SECOND, LimitState("rate", False, 1_000), b'["b",1500000000,0,500000000,1000000000]',
        b'["b",500000000,0,1,1000000000]',
    ),
    "a rate before its moment": waits(PER_SECOND, 1, b'["b",500000001,0,1,1000000000]'),
    "a rate that is slowed down": waits(PER_SECOND, 200, b'["b",0,700,1,1000000000]'),
    "a rate of another boot": waits(
        PER_SECOND, 1_000, b'["a",7,9000,7,1000000000]', b'["b",1500000000,0,500000000,1000000000]'
    ),
    "a rate that was declared otherwise": waits(
        PER_SECOND, 100, b'["b",700000000,0,1,2000000000]', b'["b",600000000,0,500000000,1000000000]'
    ),
    "a rate that was declared otherwise, and is slowed down": waits(
        PER_SECOND, 400, b'["b",700000000,900,1,2000000000]', b'["b",600000000,900,500000000,1000000000]'
    ),
    "several limits": Case(
        ask(TWO, PER_SECOND), {}, PermitAnswer(True, (LimitState("tool", False, 0), LimitState("rate", False, 1_000))),
        {
            slot("w", 5): holder("r/5"), rate(): UNPACED, slot("w", 5, "rate"): holder("r/5"),
            rate("rate"): b'["b",1500000000,0,500000000,1000000000]',
        },
    ),
    "several limits, one of which refuses": Case(
        ask(TWO, PER_SECOND), {rate(): IDLE, rate("rate"): b'["b",700000000,0,1,1000000000]'},
        PermitAnswer(False, (LimitState("tool", False, 0), LimitState("rate", False, 200))), {},
    ),
    "several limits, one of which is full": Case(
        ask(PER_SECOND, ONE), {slot("v", 1): holder("r/1"), rate("rate"): b'["b",1,0,1,1000000000]', rate(): IDLE},
        PermitAnswer(False, (LimitState("rate", False, 0), LimitState("tool", True, 0))), {}, {"v": ALIVE},
    ),
    "several limits, and a dead holder of the one that does not refuse": Case(
        ask(TWO, PER_SECOND),
        {slot("v", 1): holder("r/1"), rate(): IDLE, rate("rate"): b'["b",700000000,0,1,1000000000]'},
        PermitAnswer(False, (LimitState("tool", False, 0), LimitState("rate", False, 200))),
        {slot("v", 1): None}, {"v": DEAD},
    ),
}  # fmt: skip


def release(used: int | None, slots: dict[CellAddress, bytes], pace: bytes, after: bytes | None) -> Case:
    """A permit under the rate is released. `after`: its pace, where it changes."""
    changed: dict[CellAddress, bytes | None] = {slot("w", 5, "rate"): None} if slots else {}
    changed |= {} if after is None else {rate("rate"): after}
    return Case(ReleaseRequest(MINE, {"rate": used}), {**slots, rate("rate"): pace}, None, changed)


BUSY = b'["b",4000000000,0,100000000,1000000000]'
OWN = {slot("w", 5, "rate"): holder("r/5", 3, 200)}
RELEASES = {
    "as it was requested": release(None, OWN, BUSY, None),
    "with less": release(1, OWN, BUSY, b'["b",2000000000,0,100000000,1000000000]'),
    "with less by the call since which it is busy": release(
        1, {slot("w", 5, "rate"): holder("r/5", 3, 100)}, BUSY, b'["b",2000000000,0,100000000,1000000000]'
    ),
    "with nothing": release(0, OWN, BUSY, b'["b",1000000000,0,100000000,1000000000]'),
    "with more": release(5, OWN, BUSY, b'["b",6000000000,0,100000000,1000000000]'),
    "with more after a pause": release(
        4, OWN, b'["b",500000000,0,7,1000000000]', b'["b",1500000000,0,500000000,1000000000]'
    ),
    "with as many": release(3, OWN, BUSY, BUSY),
    "with less after a pause": release(
        1, OWN, b'["b",4000000000,0,200000001,1000000000]', b'["b",4000000000,0,200000001,1000000000]'
    ),
    "with less, by the call with which the busy time began": release(
        1, OWN, b'["b",4000000000,0,200000000,1000000000]', b'["b",2000000000,0,200000000,1000000000]'
    ),
    "with less after another boot": release(1, OWN, b'["a",9,0,1,1000000000]', b'["a",9,0,1,1000000000]'),
    "twice": release(1, {}, BUSY, None),
    "never held": Case(ReleaseRequest(MINE, {"tool": 1, "rate": None}), {rate("rate"): BUSY}, None, {}),
    "under two, the first of which it never held": Case(
        ReleaseRequest(MINE, {"tool": 1, "rate": None}), {**OWN, rate("rate"): BUSY}, None, {slot("w", 5, "rate"): None}
    ),
    "held under the last limit alone": Case(
        ReleaseRequest(MINE, {"tool": None, "rate": None}), OWN, None, {slot("w", 5, "rate"): None}
    ),
    "under no limit": Case(ReleaseRequest(MINE, {}), OWN, None, {}),
    "beside those of others": Case(
        ReleaseRequest(MINE, {"tool": None, "rate": None}),
        {**OWN, slot("w", 5): holder("r/5"), slot("w", 55): holder("r/6"), slot("v", 5): holder("r/7")},
        None,
        {slot("w", 5): None, slot("w", 5, "rate"): None},
    ),
    "under one limit of two": Case(
        ReleaseRequest(MINE, {"rate": None}), {**OWN, slot("w", 5): holder("r/5")}, None, {slot("w", 5, "rate"): None}
    ),
}  # fmt: skip
OTHERS = {
    "slow: for the first time": Case(SlowRequest(("tool",), 250), {}, None, {rate(): b'["b",0,750,0,0]'}),
    "slow: several": Case(
        SlowRequest(("tool", "rate"), 250), {rate("rate"): BUSY}, None,
        {rate(): b'["b",0,750,0,0]', rate("rate"): b'["b",4000000000,750,100000000,1000000000]'},
    ),
    "slow: for longer": Case(SlowRequest(("tool",), 250), {rate(): b'["b",0,749,0,0]'}, None, {rate(): b'["b",0,750,0,0]'}),
    "slow: never shorter": Case(
        SlowRequest(("tool",), 250), {rate(): b'["b",0,800,0,0]'}, None, {rate(): b'["b",0,800,0,0]'}
    ),
    "slow: since another boot": Case(
        SlowRequest(("tool",), 250), {rate(): b'["a",9,800,9,9]'}, None, {rate(): b'["b",0,750,0,0]'}
    ),
    "slow: nothing": Case(SlowRequest((), 250), {}, None, {}),
    "hint: the first": Case(HintRequest("h", b"1", None), {}, True, {("hint", "h", ""): b"1"}),
    "hint: the next": Case(HintRequest("h", b"2", b"1"), {("hint", "h", ""): b"1"}, True, {("hint", "h", ""): b"2"}),
    "hint: another was faster": Case(HintRequest("h", b"2", b"1"), {("hint", "h", ""): b"3"}, False, {}),
    "hint: another was first": Case(HintRequest("h", b"2", None), {("hint", "h", ""): b"3"}, False, {}),
    "hint: it is gone": Case(HintRequest("h", b"2", b"1"), {("hint", "g", ""): b"1"}, False, {}),
}  # fmt: skip
CASES = {f"permit: {name}": case for name, case in PERMITS.items()} | {
    f"release: {name}": case for name, case in RELEASES.items()
} | OTHERS  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_request_has_its_answer_and_changes_these_cells_alone(case: Case):
    facts = DictFacts(stored=case.before, workers=case.workers)
    assert decide(case.request, facts) == (case.answer, Changes(cells=case.after))


@pytest.mark.parametrize("declared", [0, 2, 4])
def test_a_permit_is_judged_under_the_limits_in_force_or_changes_nothing(
    declared: int, monkeypatch: pytest.MonkeyPatch
):
    changes = Changes()
    monkeypatch.setattr(requests, "Changes", lambda: changes)
    facts = DictFacts(
        stored={slot("v", 1): holder("r/1")}, workers={"v": DEAD}, ledger=[LedgerEntry(3, "queues", "", b"{}", 1)]
    )
    with pytest.raises(LimitsChanged):
        decide(ask(ONE, declared=declared), facts)
    assert changes == Changes()
    assert decide(ask(ONE, declared=3), facts)[0].granted
