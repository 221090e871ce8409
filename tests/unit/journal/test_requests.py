"""The rules of writes, claims and posts as tables: the answer, and exactly what changes. A refusal changes nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from beforehand.errors import (
    ArgumentError,
    BudgetSpent,
    JournalError,
    LeaseLost,
    LedgerTaken,
    LimitsChanged,
    QueueDraining,
    QueueFull,
    RecordRefused,
    SendingPaused,
)
from beforehand.journal import requests
from beforehand.journal.backend_rules import FOREVER_MS, MAX_BODY
from beforehand.journal.port import (
    Busy,
    ClaimRequest,
    Firing,
    Lease,
    LeaseGranted,
    LedgerEntry,
    NewRun,
    Post,
    Posts,
    QueuePlace,
    Row,
    RunChange,
    RunRow,
    Worker,
    WorkerState,
    Write,
)
from beforehand.journal.requests import Changes, decide
from beforehand.model.money import MOST_UNITS
from beforehand.model.shared_use import Charge
from beforehand.policies import MOST
from tests.unit.journal.commit_facts import DictFacts

LINE = RunRow("r", 4, "desk", "shop", "running", "", None, b"[]", 3, "w", 10, 20)
LEASE = Lease("r", 4, 3, "w")
FIRST, SECOND, THIRD = (Row(seq, b"%d" % seq, bytes([seq]) * 32) for seq in (1, 2, 3))
MINE = LedgerEntry(6, "s", "k", b"1", 30)
LIMITS = LedgerEntry(8, "queues", "", b"{}", 40)
PAUSED = LedgerEntry(7, "pause/*", "pause/0", b"7", 60)
UNPAUSED = LedgerEntry(8, "pause/*", "unpause/7", b"{}", 70)
PAUSED_TOOL = LedgerEntry(9, "pause/pay", "pause/0", b"{}", 80)
SCHEDULES = LedgerEntry(9, "schedules", "", b"{}", 50)
ALIVE, UNSEEN, DEAD = WorkerState("alive", 0), WorkerState("unknown", 0), WorkerState("dead", 0)
COUNTER = ("counter", "team 2026", "tokens")


class Case(NamedTuple):
    """A request, what the store knows, and what is decided."""

    request: Any
    facts: DictFacts
    answer: Any
    changes: Changes


class Refusal(NamedTuple):
    """A request that is refused, with this error and these words in it."""

    request: Any
    facts: DictFacts
    error: type[JournalError | ArgumentError]
    words: str


def a_run(line: RunRow = LINE, *ledger: LedgerEntry, worker: WorkerState = ALIVE, **cells: bytes) -> DictFacts:
    """The run with two records, and its owner; counters by their limit."""
    stored: Any = {(*COUNTER[:2], limit): body for limit, body in cells.items()}
    return DictFacts(
        lines={"r": line}, records={4: [FIRST, SECOND]}, workers={"w": worker}, ledger=list(ledger), stored=stored
    )


def charge(used: int, reserved: int = 0, most: int | None = None, limit: str = "tokens") -> Charge:
    return Charge("team", "2026", limit, used, reserved, most)


def counted(*charges: Charge, after: bytes, limit: str = "tokens", **before: bytes) -> Case:
    """Charges, and the one counter that they leave behind."""
    changes = Changes(lease=LEASE, cells={("counter", "team 2026", limit): after})
    return Case(Write(LEASE, charges=charges), a_run(**before), None, changes)


# --- writes -----------------------------------------------------------------------------------------------------------

WRITES = {
    "nothing": Case(Write(LEASE), a_run(), None, Changes(lease=LEASE)),
    "the next record": Case(Write(LEASE, (THIRD,)), a_run(), None, Changes(lease=LEASE, rows=(THIRD,))),
    "for an owner whose lease is over": Case(
        Write(LEASE, (THIRD,)), a_run(worker=DEAD), None, Changes(lease=LEASE, rows=(THIRD,))
    ),
    "an attempt, after a pause of all sending": Case(
        Write(LEASE, (THIRD,), sends=True), a_run(LINE, PAUSED, UNPAUSED), None, Changes(lease=LEASE, rows=(THIRD,))
    ),
    "an attempt, while a tool is paused": Case(
        Write(LEASE, (THIRD,), sends=True), a_run(LINE, PAUSED_TOOL), None, Changes(lease=LEASE, rows=(THIRD,))
    ),
    "what is no attempt, while all sending is paused": Case(
        Write(LEASE, (THIRD,)), a_run(LINE, PAUSED), None, Changes(lease=LEASE, rows=(THIRD,))
    ),
    "posts, numbered from the next one": Case(
        Write(LEASE, posts=(Post("s", "k2", b"2"), Post("t", "k", b"3"), Post("s", "", b"4"), Post("s", "", b"4"))),
        a_run(LINE, MINE),
        None,
        Changes(
            lease=LEASE,
            entries=[
                LedgerEntry(7, "s", "k2", b"2", 1_000),
                LedgerEntry(8, "t", "k", b"3", 1_000),
                LedgerEntry(9, "s", "", b"4", 1_000),
                LedgerEntry(10, "s", "", b"4", 1_000),
            ],
        ),
    ),
    "under the limits in force": Case(Write(LEASE, declared=8), a_run(LINE, LIMITS), None, Changes(lease=LEASE)),
    "under the limits in force, and with entries of other streams": Case(
        Write(LEASE, declared=8), a_run(LINE, LIMITS, replace(LIMITS, id=9, stream="queues/mail")), None, Changes(lease=LEASE)
    ),
    "before any were declared": Case(Write(LEASE, declared=0), a_run(), None, Changes(lease=LEASE)),
    "a first charge": counted(charge(5, 2, 10), after=b"[5,2]"),
    "one below the limit may exceed it": counted(charge(5, 0, 10), after=b"[14,0]", tokens=b"[9,0]"),
    "one that is not limited": counted(charge(1), after=b"[11,0]", tokens=b"[10,0]"),
    "a reservation that is given back": counted(charge(3, -4), after=b"[4,0]", tokens=b"[1,4]"),
    "more given back than was reserved": counted(charge(0, -9), after=b"[1,0]", tokens=b"[1,4]"),
    "two charges of one counter": counted(charge(2, 0, 10), charge(3, 1, 10), after=b"[10,1]", tokens=b"[5,0]"),
    "a count that is full": counted(charge(9, 9), after=b"[%d,%d]" % (MOST, MOST), tokens=b"[%d,%d]" % (MOST, MOST)),
    "a sum of money that is full": counted(
        charge(9, 0, None, "cost EUR"), after=b"[%d,0]" % MOST_UNITS, limit="cost EUR", **{"cost EUR": b"[%d,0]" % MOST_UNITS}
    ),
    "charges of two counters": Case(
        Write(LEASE, charges=(charge(1, 0, 9), Charge("team", "2027", "tokens", 2, 0, 1), charge(3, 0, 9, "effects"))),
        a_run(tokens=b"[8,0]", other=b"[9,9]"),
        None,
        Changes(
            lease=LEASE,
            cells={
                ("counter", "team 2026", "tokens"): b"[9,0]",
                ("counter", "team 2027", "tokens"): b"[2,0]",
                ("counter", "team 2026", "effects"): b"[3,0]",
            },
        ),
    ),
    "a change of the listing": Case(
        Write(LEASE, (), RunChange("suspended", "why", 77, b'["x"]')),
        a_run(),
        None,
        Changes(
            lease=LEASE,
            listed=replace(LINE, status="suspended", reason="why", due_ms=77, waits=b'["x"]', updated_ms=1_000),
        ),
    ),
    "a release, after which the token is void": Case(
        Write(LEASE, (THIRD,), RunChange("completed", release=True)),
        a_run(),
        None,
        Changes(
            lease=LEASE, rows=(THIRD,), listed=replace(LINE, status="completed", updated_ms=1_000, owner=None, token=4)
        ),
    ),
    "a run of a queue that keeps its place": Case(
        Write(LEASE, (), RunChange("suspended", release=True)),
        a_run(replace(LINE, queue="mail", tenant="acme")),
        None,
        Changes(
            lease=LEASE,
            listed=replace(
                LINE, status="suspended", updated_ms=1_000, owner=None, token=4, queue="mail", tenant="acme"
            ),
        ),
    ),
    "a run that leaves its queue": Case(
        Write(LEASE, (), RunChange("suspended", leaves_queue=True)),
        a_run(replace(LINE, queue="mail", tenant="acme")),
        None,
        Changes(
            lease=LEASE, listed=replace(LINE, status="suspended", updated_ms=1_000, tenant="acme"), leaves=True
        ),
    ),
}  # fmt: skip
REFUSED_WRITES = {
    "a counter that another program has damaged": Refusal(
        Write(LEASE, charges=(charge(1),)), a_run(tokens=b"nine"), JournalError, "a cell of the journal is damaged"
    ),
    "an older token": Refusal(Write(replace(LEASE, token=2), (THIRD,)), a_run(), LeaseLost, "lease 2 was taken over"),
    "a newer token": Refusal(Write(replace(LEASE, token=4)), a_run(), LeaseLost, "lease 4 was taken over"),
    "an unknown run": Refusal(Write(replace(LEASE, row=5)), a_run(), LeaseLost, "lease 3 was taken over"),
    "a lost lease, whatever else is wrong": Refusal(
        Write(replace(LEASE, token=2), (FIRST,), None, (Post("s", "k", b"2"),), (charge(1, 0, 0),), 3),
        a_run(LINE, MINE), LeaseLost, "lease 2",
    ),
    "an attempt while all sending is paused": Refusal(
        Write(LEASE, (THIRD,), sends=True), a_run(LINE, PAUSED), SendingPaused, "all sending is paused"
    ),
    "an attempt while all sending is paused, whatever else is wrong": Refusal(
        Write(LEASE, (FIRST,), posts=(Post("s", "k", b"1"),), sends=True), a_run(LINE, MINE, PAUSED), SendingPaused, "is paused"
    ),
    "an attempt of a late owner while all sending is paused": Refusal(
        Write(replace(LEASE, token=2), (THIRD,), sends=True), a_run(LINE, PAUSED), LeaseLost, "was taken over"
    ),
    "a key that is taken": Refusal(
        Write(LEASE, (THIRD,), None, (Post("s", "", b""), Post("s", "k", b"2"))), a_run(LINE, MINE), LedgerTaken, "'k'"
    ),
    "a key taken with the same body": Refusal(
        Write(LEASE, posts=(Post("s", "k", b"1"),)), a_run(LINE, MINE), LedgerTaken, "s already has"
    ),
    "two posts of one key": Refusal(
        Write(LEASE, posts=(Post("t", "k", b"1"), Post("t", "k", b"2"))), a_run(), LedgerTaken, "t already has"
    ),
    "other limits": Refusal(Write(LEASE, declared=7), a_run(LINE, LIMITS), LimitsChanged, "are in force"),
    "limits, the first": Refusal(Write(LEASE, declared=0), a_run(LINE, LIMITS), LimitsChanged, "are in force"),
    "a counter at its limit": Refusal(
        Write(LEASE, charges=(charge(1, 0, 10),)), a_run(tokens=b"[10,0]"), BudgetSpent, "tokens of the budget team"
    ),
    "a counter that reservations bring there": Refusal(
        Write(LEASE, charges=(charge(0, 1, 10),)), a_run(tokens=b"[3,7]"), BudgetSpent, "is reached"
    ),
    "a counter above its limit": Refusal(
        Write(LEASE, (THIRD,), charges=(charge(0, 0, 10),)), a_run(tokens=b"[12,0]"), BudgetSpent, "is reached"
    ),
    "a limit of nothing": Refusal(Write(LEASE, charges=(charge(1, 0, 0),)), a_run(), BudgetSpent, "is reached"),
    "a second charge after the first came there": Refusal(
        Write(LEASE, charges=(charge(4, 1, 10), charge(1, 0, 10))), a_run(tokens=b"[5,0]"), BudgetSpent, "is reached"
    ),
    "one charge of two": Refusal(
        Write(LEASE, posts=(Post("s", "k", b""),), charges=(charge(1), charge(1, 0, 2, "effects"))),
        a_run(effects=b"[2,0]"), BudgetSpent, "limit of effects",
    ),
    "a record too early": Refusal(Write(LEASE, (SECOND,)), a_run(), RecordRefused, "record 2 came where 3 is next"),
    "a record too late": Refusal(
        Write(LEASE, (replace(THIRD, seq=4),), RunChange("completed", release=True), (Post("s", "k", b""),), (charge(1),)),
        a_run(), RecordRefused, "record 4 came where 3 is next",
    ),
}  # fmt: skip


# --- claims -----------------------------------------------------------------------------------------------------------

NEW = NewRun("desk", (FIRST, SECOND), program="shop")
IN_QUEUE = RunChange("queued", due_ms=900, release=True)
PLACE = QueuePlace("mail", "acme", "order-1", 2, 3, 8)
TAKEN = replace(LINE, token=4, owner="v", updated_ms=1_000)
GRANTED = LeaseGranted(Lease("r", 4, 4, "v"), TAKEN, SECOND)
BORN = RunRow("r", 0, "desk", "shop", "running", "", None, b"[]", 1, "v", 1_000, 1_000)
SUBMITTED = replace(BORN, status="queued", due_ms=900, token=2, owner=None, queue="mail", tenant="acme")
FIRED = ("once", "nightly", "0000000000000900")


def claim(new: NewRun | None = None, worker: str = "v") -> ClaimRequest:
    return ClaimRequest("r", worker, new)


def taken_by(worker: WorkerState, *, new: NewRun | None = None, line: RunRow = LINE) -> Case:
    """A run whose owner is in this state, and whose lease is granted."""
    row = replace(line, token=4, owner="v", updated_ms=1_000)
    return Case(claim(new), a_run(line, worker=worker), replace(GRANTED, row=row), Changes(taken=row))


def busy(facts: DictFacts, request: ClaimRequest, owner: Worker | None = None, changes: Changes | None = None) -> Case:
    return Case(request, facts, Busy(facts.lines["r"], owner or Worker("w")), changes or Changes())


def fires(moment_ms: int = 900, entry: int = 9, place: QueuePlace | None = None) -> ClaimRequest:
    return claim(replace(NEW, rows=(FIRST,), change=IN_QUEUE, place=place, firing=Firing("nightly", moment_ms, entry)))


def calendar(*fired_ms: int, later: int = 9, runs: DictFacts | None = None) -> DictFacts:
    """The schedules in force, and the moments at which this one has fired."""
    facts = runs or DictFacts()
    facts.ledger += [LIMITS, replace(SCHEDULES, id=later)]
    for moment in fired_ms:
        facts.stored["once", "nightly", f"{moment:016}"] = b'"before"'
    return facts


def submitted(facts: DictFacts, place: QueuePlace | None = None) -> Case:
    """A firing that is granted: the run is new, and the moment is stored with it."""
    row = SUBMITTED if place else replace(SUBMITTED, queue="", tenant="")
    lease = Lease("r", 0, 1, "v")
    changes = Changes((row, place or QueuePlace("")), rows=(FIRST,), lease=lease, cells={FIRED: b'"r"'})
    return Case(fires(place=place), facts, LeaseGranted(lease, row, FIRST, fresh=True), changes)


def fired_at(wall_ms: int) -> Case:
    """The moment 900 fires by this wall clock."""
    case = submitted(DictFacts(wall_ms, ledger=[LIMITS, SCHEDULES]))
    row = replace(case.answer.row, created_ms=wall_ms, updated_ms=wall_ms)
    changes = replace(case.changes, created=(row, QueuePlace("")))
    return case._replace(answer=replace(case.answer, row=row), changes=changes)


CLAIMS = {
    "no such run": Case(claim(), DictFacts(), None, Changes()),
    "a new one": Case(
        claim(NEW), DictFacts(), LeaseGranted(Lease("r", 0, 1, "v"), BORN, SECOND, fresh=True),
        Changes((BORN, QueuePlace("")), rows=(FIRST, SECOND), lease=Lease("r", 0, 1, "v")),
    ),
    "a new one without records": Case(
        claim(NewRun("desk")), DictFacts(),
        LeaseGranted(Lease("r", 0, 1, "v"), replace(BORN, program=""), None, fresh=True),
        Changes((replace(BORN, program=""), QueuePlace("")), lease=Lease("r", 0, 1, "v")),
    ),
    "a new one that waits": Case(
        claim(replace(NEW, change=RunChange("suspended", "why", 5, b'["x"]'))), DictFacts(),
        LeaseGranted(
            Lease("r", 0, 1, "v"), waiting := replace(BORN, status="suspended", reason="why", due_ms=5, waits=b'["x"]'),
            SECOND, fresh=True,
        ),
        Changes((waiting, QueuePlace("")), rows=(FIRST, SECOND), lease=Lease("r", 0, 1, "v")),
    ),
    "without an owner": Case(claim(), a_run(replace(LINE, owner=None)), GRANTED, Changes(taken=TAKEN)),
    "of a dead owner": taken_by(DEAD),
    "of a silent owner that is seen to live": taken_by(WorkerState("alive", 1)),
    "of a silent owner": taken_by(WorkerState("unknown", 1)),
    "of its own program": taken_by(DEAD, new=NEW),
    "of a run without a program": taken_by(DEAD, new=NEW, line=replace(LINE, program="")),
    "for a claim without a program": taken_by(DEAD, new=NewRun("desk")),
    "ended": taken_by(DEAD, line=replace(LINE, status="completed")),
    "without records yet": Case(
        claim(), DictFacts(lines={"r": replace(LINE, owner=None)}), replace(GRANTED, last=None), Changes(taken=TAKEN)
    ),
    "of a living owner": busy(a_run(worker=ALIVE), claim(), Worker("w", pid=7)),
    "of an owner that renews its lease": busy(a_run(worker=UNSEEN), claim(), Worker("w", pid=7)),
    "its own": busy(a_run(), claim(worker="w"), Worker("w", pid=7)),
    "its own after its lease is over": busy(
        a_run(worker=WorkerState("unknown", 9)), claim(worker="w"), Worker("w", pid=7)
    ),
    "another agent": busy(a_run(worker=DEAD), claim(NewRun("other", program="shop"))),
    "another program": busy(a_run(worker=DEAD), claim(NewRun("desk", program="bank"))),
    "submitted again": busy(a_run(replace(LINE, owner=None)), claim(replace(NEW, place=PLACE)), Worker("")),
    "submitted to a queue with room": Case(
        claim(replace(NEW, change=IN_QUEUE, place=PLACE)), DictFacts(ledger=[LIMITS], queued={"mail": 2, "web": 9}),
        LeaseGranted(Lease("r", 0, 1, "v"), SUBMITTED, SECOND, fresh=True),
        Changes((SUBMITTED, PLACE), rows=(FIRST, SECOND), lease=Lease("r", 0, 1, "v")),
    ),
    "fired for the first time": submitted(calendar()),
    "fired for a later moment": submitted(calendar(800, 899)),
    "fired after a clock was wrong": submitted(calendar(800, 1_001)),
    "fired at its moment": fired_at(900),
    "fired into a queue": submitted(calendar(), PLACE),
    "fired for a run that exists": busy(
        calendar(runs=a_run()), fires(), Worker("w", pid=7), Changes(cells={FIRED: b'"r"'})
    ),
    "fired for a run of another agent": busy(
        calendar(runs=a_run(replace(LINE, agent="other"))), fires(), None, Changes(cells={FIRED: b'"r"'})
    ),
    "before its moment": Case(fires(1_001), calendar(), None, Changes()),
    "fired already": Case(fires(), calendar(900), None, Changes()),
    "fired already, later": Case(fires(), calendar(901), None, Changes()),
    "fired already, at its moment": Case(fires(), calendar(900, runs=DictFacts(900)), None, Changes()),
    "fired already, with a run that exists": Case(fires(), calendar(900, runs=a_run()), None, Changes()),
    "declared anew": Case(fires(), calendar(later=10), None, Changes()),
    "declared for the first time": Case(fires(entry=0), calendar(), None, Changes()),
}  # fmt: skip


def into(place: QueuePlace, *ledger: LedgerEntry, waiting: int = 0) -> tuple[ClaimRequest, DictFacts]:
    facts = DictFacts(ledger=list(ledger), queued={"mail": waiting})
    return claim(replace(NEW, change=IN_QUEUE, place=place)), facts


REFUSED_CLAIMS = {
    "a full queue": Refusal(*into(PLACE, LIMITS, waiting=3), QueueFull, "mail is full: 3 runs wait"),
    "an overfull queue": Refusal(*into(PLACE, LIMITS, waiting=4), QueueFull, "mail is full: 4 runs wait"),
    "a queue without room for any": Refusal(*into(replace(PLACE, capacity=0), LIMITS), QueueFull, "0 runs wait"),
    "a draining queue": Refusal(*into(replace(PLACE, draining=True), LIMITS), QueueDraining, "mail is drained"),
    "a draining queue that is full": Refusal(
        *into(replace(PLACE, draining=True), LIMITS, waiting=9), QueueDraining, "mail is drained"
    ),
    "other limits": Refusal(*into(PLACE, replace(LIMITS, id=9), waiting=9), LimitsChanged, "are in force"),
    "no limits": Refusal(*into(PLACE), LimitsChanged, "are in force"),
    "a firing into a full queue": Refusal(
        fires(place=replace(PLACE, capacity=0)), calendar(), QueueFull, "mail is full"
    ),
    "a first record that is too large": Refusal(
        claim(NewRun("desk", (replace(FIRST, body=bytes(MAX_BODY + 1)),))), DictFacts(), RecordRefused, "the limit is"
    ),
    "a moment outside of time": Refusal(
        claim(replace(NEW, change=RunChange("suspended", due_ms=FOREVER_MS + 1))), DictFacts(), RecordRefused, "not a time"
    ),
}  # fmt: skip


# --- posts ------------------------------------------------------------------------------------------------------------


def known(*ledger: LedgerEntry) -> DictFacts:
    return DictFacts(ledger=list(ledger))


def posted(request: Post, number: int, *ledger: LedgerEntry) -> Case:
    entry = LedgerEntry(number, request.stream, request.key, request.body, 1_000)
    return Case(request, known(*ledger), entry, Changes(entries=[entry]))


SEVERAL = [LedgerEntry(7, "s", "k2", b"2", 1_000), LedgerEntry(8, "t", "k", b"3", 1_000)]
POSTS = {
    "the first of all": posted(Post("s", "k", b"2"), 1),
    "the next one": posted(Post("s", "k2", b"2"), 7, MINE),
    "a key of another stream": posted(Post("t", "k", b"2"), 7, MINE),
    "without a key": posted(Post("s", "", b"2"), 8, MINE, LedgerEntry(7, "s", "", b"2", 31)),
    "a key that is taken": Case(Post("s", "k", b"2"), known(MINE), replace(MINE, fresh=False), Changes()),
    "several": Case(
        Posts((Post("s", "k2", b"2"), Post("t", "k", b"3"))), known(MINE), SEVERAL, Changes(entries=SEVERAL)
    ),
    "several of none": Case(Posts(()), known(MINE), [], Changes()),
}  # fmt: skip
REFUSED_POSTS = {
    "one of several taken": Refusal(
        Posts((Post("s", "k2", b"2"), Post("s", "k", b"2"))), known(MINE), LedgerTaken, "s already has an entry 'k'"
    ),
    "two of one key": Refusal(Posts((Post("s", "k", b"1"), Post("s", "k", b"1"))), known(), LedgerTaken, "'k'"),
    "a stream that is no text": Refusal(Post("\ud800", "", b""), known(), ArgumentError, "cannot be the stream"),
    "a key that is no text": Refusal(Post("s", "\ud800", b""), known(), ArgumentError, "cannot be the key"),
    "a body too large": Refusal(Post("s", "", bytes(MAX_BODY + 1)), known(), ArgumentError, "the limit is"),
    "the last of several invalid": Refusal(
        Posts((Post("s", "a", b""), Post("s", "\ud800", b""))), known(), ArgumentError, "cannot be the key"
    ),
}  # fmt: skip

CASES = {f"{kind}, {name}": case for kind, table in (("write", WRITES), ("claim", CLAIMS), ("post", POSTS))
         for name, case in table.items()}  # fmt: skip
REFUSALS = {f"{kind}, {name}": case for kind, table in
            (("write", REFUSED_WRITES), ("claim", REFUSED_CLAIMS), ("post", REFUSED_POSTS))
            for name, case in table.items()}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_request_has_its_answer_and_changes_no_more_than_that(case: Case):
    assert decide(case.request, case.facts) == (case.answer, case.changes)


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_comes_before_any_change(case: Refusal, monkeypatch: pytest.MonkeyPatch):
    changes = Changes()
    monkeypatch.setattr(requests, "Changes", lambda: changes)
    with pytest.raises(case.error) as caught:
        decide(case.request, case.facts)
    assert case.words in str(caught.value)
    assert changes == Changes()


def test_a_refusal_names_what_stands():
    with pytest.raises(LedgerTaken) as taken:
        decide(Posts((Post("s", "k", b"mine"),)), known(MINE))
    assert (taken.value.stream, taken.value.key, taken.value.body) == ("s", "k", b"1")
    with pytest.raises(LedgerTaken) as twice:
        decide(Posts((Post("s", "k", b"mine"), Post("s", "k", b"again"))), known())
    assert twice.value.body == b"mine"
    with pytest.raises(BudgetSpent) as spent:
        decide(Write(LEASE, charges=(charge(4, 1, 10), charge(1, 0, 10))), a_run(tokens=b"[5,0]"))
    assert (spent.value.budget, spent.value.limit, spent.value.used, spent.value.reserved) == ("team", "tokens", 9, 1)
