"""Sequences of commits against a model in plain sets and numbers, which is written without the code it judges.

Whatever comes in what order, from processes that die, hang or fall silent and under a wall clock that is set: a run has
one owner, its token only grows, a counter never passes its limit by a charge that was refused, no more living calls are
under way than may be, the first entry under a key wins, and no moment fires twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from beforehand.errors import BeforehandError
from beforehand.journal.port import (
    Busy,
    ClaimRequest,
    Firing,
    Lease,
    LeaseGranted,
    LedgerEntry,
    NewRun,
    Permit,
    PermitAnswer,
    PermitRequest,
    Post,
    Posts,
    ReleaseRequest,
    Row,
    RunChange,
    WorkerState,
    Write,
)
from beforehand.model.cell_limit import CellLimit
from beforehand.model.shared_use import Charge
from tests.unit.journal.commit_facts import DictFacts

STATES = {
    "lives": WorkerState("alive", 0),
    "late": WorkerState("unknown", 5),
    "hangs": WorkerState("alive", 999),
    "lost": WorkerState("unknown", 999),
    "dead": WorkerState("dead", 0),
}
"""The states of a process, in an order in which it may pass through them. None comes back to an earlier one."""
ORDER = list(STATES)
AT_ONCE = {"one": 1, "two": 2}
MOST = 2
WORKERS, RUNS = st.sampled_from("abcd"), st.sampled_from(["r1", "r1", "r2"])
KEYS = st.sampled_from(["", "k1", "k2", "k3"])
MOMENTS = st.integers(1, 30)
LIMITS = st.sampled_from(["one", "two", "one two"])
CHARGES = st.lists(
    st.tuples(st.sampled_from("xxy"), st.integers(0, 1), st.integers(-2, 1), st.sampled_from([MOST, MOST, None])), max_size=2
)  # fmt: skip
CLAIM = WORKERS, RUNS, st.sampled_from(["desk", "desk", "other", None]), st.booleans()
PERMIT = WORKERS, st.integers(1, 3), LIMITS
WRITE = (
    RUNS, st.sampled_from([0, 0, 0, 1]), st.sampled_from([(0, 0), (1, 0), (2, 0), (1, -1), (1, 1)]),
    st.lists(KEYS, max_size=1), CHARGES, st.sampled_from([False, False, True]),
)  # fmt: skip
CALLS = st.one_of(
    *(st.tuples(st.just("write"), *WRITE) for _ in range(6)),
    *(st.tuples(st.just("claim"), *CLAIM) for _ in range(3)),
    *(st.tuples(st.just("permit"), *PERMIT) for _ in range(2)),
    st.tuples(st.just("give back"), *PERMIT),
    st.tuples(st.just("post"), KEYS),
    st.tuples(st.just("posts"), st.lists(KEYS, max_size=2)),
    st.tuples(st.just("fire"), RUNS, MOMENTS, st.sampled_from([0, 0, 1])),
    st.tuples(st.just("declare")),
    st.tuples(st.just("set clock"), MOMENTS),
    st.tuples(st.just("fails"), WORKERS, st.sampled_from(ORDER)),
)
BEGINNING = [("set clock", 15), ("fails", "a", "lives"), ("claim", "a", "r1", "desk", False)]


@dataclass
class Model:
    """What is true, and what each call must answer."""

    owner: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    token: Counter[str] = field(default_factory=Counter[str])
    agent: dict[str, str] = field(default_factory=dict[str, str])
    records: Counter[str] = field(default_factory=Counter[str])
    used: Counter[str] = field(default_factory=Counter[str])
    reserved: Counter[str] = field(default_factory=Counter[str])
    slots: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    first: dict[str, int] = field(default_factory=dict[str, int])
    entries: int = 0
    fired: list[int] = field(default_factory=list[int])
    declared: int = 0
    wall: int = 3
    state: dict[str, str] = field(default_factory=lambda: dict.fromkeys("abcd", "lives"))

    def claim(self, worker: str, run: str, agent: str | None, *, released: bool = False) -> object:
        if run not in self.token:
            if agent is None:
                return None
            self.agent[run], self.owner[run] = agent, None if released else worker
            self.token[run] = 1 + released
            return 1
        if agent not in (None, self.agent[run]) or not self._free(run, worker):
            return "busy"
        self.owner[run] = worker
        self.token[run] += 1
        return self.token[run]

    def _free(self, run: str, worker: str) -> bool:
        owner = self.owner[run]
        return owner is None or (owner != worker and self.state[owner] != "lives")

    def write(self, lease: Lease, number: int, gap: int, keys: list[str], charges: Any, release: bool) -> str:
        if self.token[lease.run] != lease.token:
            return "LeaseLost"
        named = [key for key in keys if key]
        if len(set(named)) < len(named) or any(key in self.first for key in named):
            return "LedgerTaken"
        used, reserved = Counter(self.used), Counter(self.reserved)
        for counter, use, hold, most in charges:
            if most is not None and used[counter] + reserved[counter] >= most:
                return "BudgetSpent"
            used[counter] += use
            reserved[counter] = max(0, reserved[counter] + hold)
        if number and gap:
            return "RecordRefused"
        self.used, self.reserved = used, reserved
        self.records[lease.run] += number
        self._enter(keys)
        if release:
            self.owner[lease.run] = None
            self.token[lease.run] += 1
        return "done"

    def _enter(self, keys: list[str]) -> None:
        for key in keys:
            self.entries += 1
            if key:
                self.first[key] = self.entries

    def post(self, key: str) -> tuple[int, bool]:
        if key in self.first:
            return self.first[key], False
        self._enter([key])
        return self.entries, True

    def posts(self, keys: list[str]) -> object:
        named = [key for key in keys if key]
        if len(set(named)) < len(named) or any(key in self.first for key in named):
            return "LedgerTaken"
        self._enter(keys)
        return list(range(self.entries - len(keys) + 1, self.entries + 1))

    def holders(self, limit: str, asking: str = "") -> list[str]:
        """The workers of the calls under this limit that may be under way."""
        over = {worker for worker, state in self.state.items() if state in {"lost", "dead"}}
        return [worker for name, worker, _ in self.slots if name == limit and (worker == asking or worker not in over)]

    def permit(self, worker: str, number: int, limits: list[str]) -> bool:
        free = all(len(self.holders(limit, worker)) < AT_ONCE[limit] for limit in limits)
        self.slots -= {slot for slot in self.slots if self.state[slot[1]] == "dead" and slot[1] != worker
                       and slot[0] in limits}  # fmt: skip
        if free:
            self.slots |= {(limit, worker, number) for limit in limits}
        return free

    def fire(self, run: str, moment: int, stale: int) -> object:
        if moment > self.wall or stale or any(moment <= one <= self.wall for one in self.fired):
            return None
        self.fired.append(moment)
        return self.claim("a", run, "desk")


@dataclass
class Play:
    """The same calls for the rules and for the model."""

    facts: DictFacts = field(default_factory=DictFacts)
    model: Model = field(default_factory=Model)
    leases: defaultdict[str, list[Lease]] = field(default_factory=lambda: defaultdict(list))

    def commit(self, request: Any) -> Any:
        try:
            answer = self.facts.commit(request)
        except BeforehandError as error:
            return type(error).__name__
        match answer:
            case LeaseGranted():
                self.leases[answer.lease.run].insert(0, answer.lease)
                return answer.lease.token
            case Busy():
                return "busy"
            case LedgerEntry():
                return answer.id, answer.fresh
            case PermitAnswer():
                return answer.granted
            case list():
                return [entry.id for entry in answer]
        return answer

    def call(self, verb: str, *given: Any) -> None:
        answer, expected = getattr(self, verb.replace(" ", "_"))(*given)
        assert answer == expected

    def claim(self, worker: str, run: str, agent: str | None, released: bool) -> Any:
        new = None if agent is None else NewRun(agent, change=RunChange("suspended", release=released))
        return self.commit(ClaimRequest(run, worker, new)), self.model.claim(worker, run, agent, released=released)

    def write(self, run: str, age: int, rows: Any, keys: list[str], charges: Any, release: bool) -> Any:
        if age >= len(self.leases[run]):
            return None, None
        lease, (number, gap) = self.leases[run][age], rows
        first = self.model.records[lease.run] + 1 + gap
        request = Write(
            lease,
            tuple(Row(seq, b"1", b"") for seq in range(first, first + number)),
            RunChange("running", release=release),
            tuple(Post("s", key, b"1") for key in keys),
            tuple(Charge("team", "2026", counter, *charge) for counter, *charge in charges),
        )
        return self.commit(request) or "done", self.model.write(lease, number, gap, keys, charges, release)

    def post(self, key: str) -> Any:
        return self.commit(Post("s", key, b"1")), self.model.post(key)

    def posts(self, keys: list[str]) -> Any:
        return self.commit(Posts(tuple(Post("s", key, b"1") for key in keys))), self.model.posts(keys)

    def permit(self, worker: str, number: int, names: str) -> Any:
        if any((limit, worker, number) in self.model.slots for limit in AT_ONCE):
            return None, None  # a worker numbers its calls, and never again the same
        limits = tuple(CellLimit(name, AT_ONCE[name]) for name in names.split())
        request = PermitRequest(Permit(worker, number), limits, 0, pause_bound_ms=100)
        return self.commit(request), self.model.permit(worker, number, names.split())

    def give_back(self, worker: str, number: int, names: str) -> Any:
        answer = self.commit(ReleaseRequest(Permit(worker, number), dict.fromkeys(names.split())))
        self.model.slots -= {(limit, worker, number) for limit in names.split()}
        return answer, None

    def fire(self, run: str, moment: int, stale: int) -> Any:
        new = NewRun("desk", firing=Firing("nightly", moment, self.model.declared + stale))
        return self.commit(ClaimRequest(run, "a", new)), self.model.fire(run, moment, stale)

    def declare(self) -> Any:
        self.model.declared = self.model.entries + 1
        return self.commit(Post("schedules", "", b"{}")), self.model.post("")

    def set_clock(self, wall: int) -> Any:
        self.facts.wall_ms = self.model.wall = wall
        return None, None

    def fails(self, worker: str, state: str) -> Any:
        self.model.state[worker] = max(self.model.state[worker], state, key=ORDER.index)
        self.facts.workers = {name: STATES[state] for name, state in self.model.state.items()}
        return None, None


def check(play: Play, before: dict[str, int]) -> None:
    """The rules that hold after every call, read from what is stored alone."""
    facts, model = play.facts, play.model
    assert {run: (line.owner, line.token) for run, line in facts.lines.items()} == {
        run: (model.owner[run], model.token[run]) for run in model.token
    }
    assert all(line.token >= before.get(run, 0) for run, line in facts.lines.items())
    stored = {(kind, name): sorted(facts.cells(kind, name)) for kind, name, _ in facts.stored}
    for limit, most in AT_ONCE.items():
        assert stored.get(("slot", limit), []) == sorted(f"{w} {n}" for name, w, n in model.slots if name == limit)
        assert len(model.holders(limit)) <= most
    assert stored.get(("once", "nightly"), []) == sorted(f"{moment:016}" for moment in model.fired)
    assert len(set(model.fired)) == len(model.fired)
    counters = {key: body for key, body in facts.cells("counter", "team 2026").items() if body != b"[0,0]"}
    kept = {key: b"[%d,%d]" % (model.used[key], model.reserved[key]) for key in "xy"}
    assert counters == {key: body for key, body in kept.items() if body != b"[0,0]"}
    assert {entry.key: entry.id for entry in facts.ledger if entry.key} == model.first
    assert [entry.id for entry in facts.ledger] == list(range(1, model.entries + 1))


@settings(max_examples=50)
@given(st.lists(CALLS, min_size=25, max_size=50))
def test_no_sequence_of_commits_breaks_a_rule(calls: list[tuple[Any, ...]]) -> None:
    play = Play()
    for call in [*BEGINNING, *calls]:
        before = {run: line.token for run, line in play.facts.lines.items()}
        play.call(*call)
        check(play, before)
