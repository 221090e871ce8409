"""The driver answers every question as `decide` does, whichever field has changed since the question before.

Each test asks the driver twice. In between, one field of the operation, of the situation or of the moment gets another
value. The fields and their types come from msgspec, so that a new field takes part without being named here; a type
for which no second value is known fails the test.

A memo is sound only if its key holds every field that the rules read. The second half plants memos whose keys lack one
field, a new reason that blocks, or what a new rule reads, and each of them has to be found.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
import pytest
from msgspec.structs import fields, replace

from beforehand.engine import situation as asking
from beforehand.engine.operation_driver import OperationDriver
from beforehand.model import records as r
from beforehand.model.contract import Contract, Key, Natural, Once, Pending, Rejection
from beforehand.model.decision import decide as rules
from beforehand.model.decision.decide import decide
from beforehand.model.decision.evidence import RULE, Case
from beforehand.model.decision.moves import Move, Settle
from beforehand.model.decision.situation import Block, LimitWait, Now, OtherEffect, Situation, SpentBudget
from beforehand.model.operation import OperationState, ScheduledWait
from beforehand.model.outcome import Basis, PendingEffect
from beforehand.model.policy import Past, PolicyFacts, Queue, Ruling
from beforehand.policies import Budget, Gate, Require, Retry
from tests.unit.model import stories
from tests.unit.model.stories import HOUR, MINUTE, SECOND, STEP, Story

LIMIT: Final = LimitWait("service bank", MINUTE)

# --- one question, and the same with another value of one field ------------------------------------------------------


class Question(NamedTuple):
    """What `decide` is asked with."""

    operation: OperationState
    situation: Situation
    now: Now


class Variant(NamedTuple):
    """A question with another value in one field. `fields` names it, and the fields that it is a part of."""

    fields: tuple[str, ...]
    question: Question


# What a type holds besides booleans, literals and structs, which are worked out. Several sizes: a rule may have bounds.
SECOND_VALUES: Final[dict[Any, tuple[Any, ...]]] = {
    int: (0, 1, 2, 40 * SECOND, 400 * HOUR, 2**50),
    float: (0.0, 0.5, 1e9),
    str: ("", "another", "retry", "verify", "breaker", "monday"),
    timedelta: (timedelta(0), timedelta(milliseconds=1), timedelta(days=400)),
    type(None): (None,),
    r.Raw: (r.NOTHING, r.Raw(b"[2]")),
    tuple[str, str]: (("support", "2027-01-01"), ("acme", "2027-01-02")),
    Once: (Once(), Once("to", then="block")),
    Pending: (Pending("an answer"),),
}


def variants_of(question: Question) -> Iterator[Variant]:
    """Every question that differs from this one in one field."""
    for part, value in question._asdict().items():
        for path, other in struct_variants(value):
            yield Variant(path, question._replace(**{part: other}))


def struct_variants(value: msgspec.Struct) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every copy of a struct with another value in one field of it, or of its parts."""
    for field in fields(type(value)):
        name = f"{type(value).__name__}.{field.name}"
        for path, other in value_variants(getattr(value, field.name), field.type, name):
            try:
                yield (name, *path), replace(value, **{field.name: other})
            except ValueError:  # a clause that cannot be written
                continue


def value_variants(value: Any, kind: Any, name: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Other values that a field of this type may hold: of its own, and with one part of them changed."""
    if isinstance(value, msgspec.Struct):
        yield from struct_variants(value)
    for place, one in enumerate(value if isinstance(value, tuple) else ()):
        for path, other in struct_variants(one) if isinstance(one, msgspec.Struct) else ():
            yield path, (*value[:place], other, *value[place + 1 :])
    for other in examples(kind, name):
        if type(other) is not type(value) or other != value:
            yield (), other


def examples(kind: Any, name: str) -> tuple[Any, ...]:
    """Values of this type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return inner
    if origin in {Union, types.UnionType}:
        return tuple(value for one in inner for value in examples(one, name))
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return ((), *((value,) for value in examples(inner[0], name)))
    if origin is frozenset:
        return (frozenset(), *(frozenset({value}) for value in examples(inner[0], name)))
    if kind is bool:
        return (False, True)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        needed = {field.name: examples(field.type, name)[-1] for field in fields(kind) if field.required}
        return (kind(**needed),)
    known = SECOND_VALUES.get(kind)
    assert known, f"{name} has the type {kind}, of which SECOND_VALUES knows no value: add two that differ."
    return known


# --- cases in which each field that is read makes a difference --------------------------------------------------------

START: Final = Story()  # monday, on the clock and the wall clock of every story
SOON: Final = Now("monday", START.up + SECOND, START.wall + SECOND, START.up + SECOND)
TUESDAY: Final = Now("tuesday", HOUR, START.wall + 2 * HOUR, HOUR)
BOTH: Final = replace(stories.VERIFIABLE, idempotency=Natural())
ALL_STORED: Final = replace(stories.VERIFIABLE, idempotency=Key(timedelta(hours=24), stores="all"))
RUNS_TWICE: Final = replace(stories.VERIFIABLE, idempotency=Key(timedelta(hours=24), in_progress="runs_twice"))
FOREVER: Final = replace(stories.KEYED, idempotency=Key.forever())
PATIENT: Final = replace(stories.VERIFIABLE, retry=stories.PATIENT)
CLAUSES: Final = Contract(
    "charge",
    was_natural=Natural(),
    rejections=(Rejection(409, "rejected"),),
    once=Once("to"),
    gate=Gate("true", require=Require(person=True)),
    pending=Pending("an answer"),
)
BRIEF: Final = replace(stories.PLAIN, retry=Retry(elapsed=timedelta(seconds=1)))
CLAIMED: Final = OtherEffect("claim", "pending", "desk/charge#9")
HUNG: Final[dict[str, Any]] = {"hung": "a process hangs", "hung_owner_ms": 10 * MINUTE}
RULING: Final = Ruling("refuse", "no charges", require=Require(person=True))
FACTS: Final = PolicyFacts("charge", "desk", 1, "monday", history=Past(), queue=Queue())


def part(operation: OperationState, name: str, **changes: Any) -> OperationState:
    """The operation with other values in one of its parts."""
    return replace(operation, **{name: replace(getattr(operation, name), **changes)})


def pausing(story: Story, why: str, charged: Any = "attempts", **changes: Any) -> OperationState:
    """The operation during a pause of ten seconds."""
    wait = ScheduledWait("monday", START.up, 10 * SECOND, START.wall + 10 * SECOND, why, "drawn", charged)
    return replace(story.state, wait=replace(wait, **changes))


def ask(operation: OperationState, contract: Contract, now: Now = SOON, **situation: Any) -> Question:
    return Question(operation, Situation(contract, **situation), now)


def questions() -> dict[str, Question]:
    """Cases chosen so that each field that a rule reads decides one of them."""
    planned, sent = Story().planned().state, Story(stories.VERIFIABLE).sent("ambiguous")
    unsent, lost = Story().sent("not_sent", cost=1.0), Story().sent("lost").state
    awaiting = Story(stories.VERIFIABLE).starts().deferred(HOUR).state
    checked = part(sent.state, "verification", checked_since=1, checked_boot="monday", checked_up=START.up)
    checked = part(checked, "verification", believable_checks=1)
    approved = part(planned, "approval", approved_digest="a1", approved_until=START.wall + HOUR)
    ruled = part(planned, "judgement", ruling=RULING, facts=FACTS, policy="v1")
    unfit = replace(awaiting.attempts[0], end=r.End("ambiguous", unfit=True, why="not a receipt"))
    given_up = replace(lost.attempts[0], over_up=None, over_boot="monday", given_up=START.up - 10 * MINUTE)
    fact, late = r.Reported("paid", r.Raw(b"1")), r.LateReport(step=STEP, number=1, end=r.End(), at=0, up=0)
    item = r.PendingItem("an answer", "k1", 1)
    asked = Story().sent("not_sent").asked().state
    accepted = PendingEffect("desk/charge#9", ("an answer",))
    full = part(planned, "settlement", basis=Basis("rule"), pending_effect=PendingEffect("desk/charge#9"))
    full = part(part(full, "links", disputes=(late,)), "approval", require=Require(person=True))
    return {
        "pause, preconditions changed": ask(pausing(sent, "retry", boot="sunday"), ALL_STORED, reading="changed"),
        "approved": ask(approved, replace(stories.NATURAL, observes=True), gate="wanted", asks="a1"),
        "approved, look first": ask(approved, replace(stories.VERIFIABLE, check_first=True), reading="same"),
        "claim held": ask(planned, BOTH, other=CLAIMED),
        "claim deferred": ask(planned, BOTH, other=replace(CLAIMED, by="guard", deferred=True)),
        "claim with other arguments": ask(planned, RUNS_TWICE, other=replace(CLAIMED, mismatch=True)),
        "claim that succeeded": ask(planned, BOTH, other=replace(CLAIMED, state="succeeded")),
        "thing pending": ask(planned, PATIENT, other=replace(CLAIMED, pending_effect=accepted)),
        "reading due": ask(pausing(unsent, "verify"), PATIENT, began_doubtful=True),
        "budget": ask(pausing(unsent, "verify"), replace(stories.PLAIN, budget=Budget(2.0, "0.40 EUR")), hold="trip"),
        "read back, rebooted": ask(checked, RUNS_TWICE, TUESDAY),
        "read back, call running": ask(checked, stories.VERIFIABLE, live=frozenset({1}), **HUNG),
        "unfit answer": ask(replace(awaiting, attempts=(unfit,)), FOREVER, **HUNG),
        "answer comes later": ask(part(awaiting, "deferral", every_ms=MINUTE), RUNS_TWICE),
        "answer comes later, rebooted": ask(awaiting, stories.VERIFIABLE, TUESDAY),
        "refused by the policy": ask(ruled, PATIENT, key_age_ms=HOUR),
        "policy asks": ask(part(ruled, "judgement", ruling=Ruling("ask", "r")), ALL_STORED, reading="changed"),
        "policy draws it": ask(part(ruled, "judgement", ruling=Ruling("sample", "r")), stories.PLAIN),
        "answer with parts and facts": ask(Story().sent("ambiguous", pending=(item,), facts=(fact,)).state, BOTH),
        "gated": ask(part(asked, "approval", answer_by=START.wall + HOUR), RUNS_TWICE, asks="a1"),
        "gated, time over": ask(part(Story().planned().asked().state, "approval", answer_by=START.wall), FOREVER),
        "unknown": ask(sent.settled("unknown").state, PATIENT, live=frozenset({1}), **HUNG),
        "unknown, process hangs": ask(replace(lost, attempts=(given_up,), phase="unknown"), PATIENT, **HUNG),
        "process hangs": ask(replace(lost, attempts=(given_up,)), stories.PLAIN, **HUNG),
        "key in progress": ask(Story().sent("key_in_progress").state, FOREVER, policy="v1"),
        "refused after an ambiguous one": ask(Story().sent("lost").sent("rejected", why="no").state, ALL_STORED),
        "sent, landing window": ask(Story().sent("lost").sent("returned").state, BOTH),
        "landing window of an old clause": ask(Story().sent("lost").sent("returned").state, CLAUSES),
        "ambiguous": ask(lost, BOTH, asks="a1", gate="wanted"),
        "natural, rebooted": ask(lost, stories.NATURAL, TUESDAY),
        "conflict after a return": ask(
            part(Story().sent("returned").state, "verification", conflict="theirs"), replace(PATIENT, expects=True)
        ),
        "returned, evidence wanted": ask(Story().sent("returned").state, replace(PATIENT, expects=True)),
        "arguments not stored": ask(replace(planned, intent=replace(planned.intent, executable=False)), stories.PLAIN),
        "body of a host": ask(replace(planned, intent=replace(planned.intent, late=True)), stories.PLAIN),
        "hold": ask(replace(planned, intent=replace(planned.intent, hold="trip")), stories.PLAIN, hold="trip"),
        "edited": ask(part(planned, "editing", called=planned.intent, editors=("ann",)), stories.PLAIN),
        "budget of the run": ask(planned, stories.PLAIN, budget=SpentBudget("3 of 3 effects", "stop"), limit=LIMIT),
        "budget of the run, held back": ask(unsent.state, stories.PLAIN, budget=SpentBudget("3 of 3 effects")),
        "every part": ask(full, CLAUSES, other=CLAIMED),
        "time for attempts": ask(pausing(unsent, "other"), BRIEF),
        "one attempt, died": ask(
            Story().sent("lost").state, replace(stories.KEYED, retry=Retry(attempts=1)), deaths_allowed=1
        ),
        "pause, rebooted": ask(
            pausing(unsent, "retry"), stories.PLAIN, replace(TUESDAY, wall=START.wall + SECOND), claimed_up=HOUR
        ),
        "natural, clocks in doubt": ask(lost, replace(stories.NATURAL, idempotency=Natural(timedelta(seconds=30)))),
        "one death too many": ask(lost, stories.NATURAL, deaths_allowed=1),
    }


QUESTIONS: Final = questions() | {
    "ambiguous, transaction aborting": ask(
        Story().sent("lost").state, replace(FOREVER, compensates=True), blocked="aborting", way_back="open"
    ),
}


@functools.cache
def variants() -> list[tuple[Question, Variant]]:
    """Every question with each of its variants. They take a second, so only what runs these tests makes them."""
    return [(question, variant) for question in QUESTIONS.values() for variant in variants_of(question)]


# --- the driver under test, and what its answers depend on -----------------------------------------------------------


def answer(ask: Callable[[OperationState, Situation, Now], Move], question: Question) -> Move | str:
    """The move, or the name of the error: some values can stand in no record, and the rules refuse them."""
    try:
        return ask(*question)
    except (AssertionError, IndexError, TypeError, OverflowError, ValueError) as error:
        return type(error).__name__


class Driver:
    """One driver of one operation, which reads exactly what each question holds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        history = SimpleNamespace(operations={})
        process = SimpleNamespace(calls=SimpleNamespace(any_late=False))
        active: Any = SimpleNamespace(process=process, run="r-ann", history=history, log=SimpleNamespace())
        self.driver = OperationDriver(active, STEP, None, None)
        self.operations = history.operations
        self.read: Situation
        monkeypatch.setattr(asking, "inputs_of", lambda driver, operation: None)
        monkeypatch.setattr(asking, "situation_of", lambda operation, inputs: self.read)

    def next_move(self, operation: OperationState, situation: Situation, now: Now) -> Move:
        self.operations[STEP] = operation
        self.read = situation
        return asking.next_move(self.driver, operation, now)

    def wrong(self, variants: list[tuple[Question, Variant]]) -> Variant | None:
        """The first variant that is not answered as `decide` does, right after the question it came from."""
        for question, variant in variants:
            answer(self.next_move, question)
            if answer(self.next_move, variant.question) != answer(decide, variant.question):
                return variant
        return None


@functools.cache
def decisive() -> dict[str, list[tuple[Question, Variant]]]:
    """For each field the variants in which it changes the move."""
    found: dict[str, list[tuple[Question, Variant]]] = {}
    for question, variant in variants():
        before, after = answer(decide, question), answer(decide, variant.question)
        if before != after and not isinstance(before, str) and not isinstance(after, str):
            for name in variant.fields:
                found.setdefault(name, []).append((question, variant))
    return found


@functools.cache
def paths() -> dict[str, set[str]]:
    """For each field those that change with it in a variant: itself, what it is a part of, and its parts."""
    found: dict[str, set[str]] = {}
    for _, variant in variants():
        for field in variant.fields:
            found.setdefault(field, set()).update(variant.fields)
    return found


def watched(value: Any, seen: set[str]) -> Any:
    """The same value, which notes the name of each field that is read from it."""
    if isinstance(value, tuple):
        return tuple(watched(one, seen) for one in value)
    if not isinstance(value, msgspec.Struct):
        return value
    kind = type(value)

    def read(self: Any, name: str) -> Any:
        if name in kind.__struct_fields__:
            seen.add(f"{kind.__name__}.{name}")
        return object.__getattribute__(self, name)

    watching = msgspec.defstruct(kind.__name__, [], bases=(kind,), namespace={"__getattribute__": read}, frozen=True)
    return watching(**{name: watched(getattr(value, name), seen) for name in kind.__struct_fields__})


def fields_within(kind: Any, found: set[str]) -> set[str]:
    """The name of every field of this type and of the structs in it."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in fields(kind):
            if (name := f"{kind.__name__}.{field.name}") not in found:
                found.add(name)
                fields_within(field.type, found)
    for inner in get_args(kind):
        fields_within(inner, found)
    return found


FIELDS: Final = sorted(set().union(*(fields_within(kind, set()) for kind in (OperationState, Situation, Now))))


def test_every_field_gets_another_value():
    left_out = set(FIELDS) - set(paths())
    assert not left_out, f"{sorted(left_out)}: no question holds such a value: add one that does to `questions`."
    assert set(paths()) == set(FIELDS)


def test_a_field_without_a_known_second_value_fails():
    class Wider(Situation, frozen=True):
        region: complex = 0j

    with pytest.raises(AssertionError, match=r"Wider\.region has the type .*complex.*: add two that differ"):
        list(struct_variants(Wider(Contract("pay"))))


def test_every_field_that_the_rules_read_decides_a_question():
    seen: set[str] = set()
    for question in QUESTIONS.values():
        read: set[str] = set()
        operation, situation, now = (watched(value, read) for value in question)
        read.clear()  # a clause reads its own fields as it is made
        decide(operation, situation, now)
        seen |= read
    idle = (seen & set(FIELDS)) - set(decisive())
    assert not idle, f"{sorted(idle)}: read, and no question is decided by it: add one that is to `questions`."
    assert len(seen) > 80


def test_the_driver_answers_every_question_as_decide_does(monkeypatch: pytest.MonkeyPatch):
    assert Driver(monkeypatch).wrong(variants()) is None


# --- planted memos ---------------------------------------------------------------------------------------------------


def key_without(left_out: frozenset[str], value: Any) -> Any:
    """What a memo compares, without these fields."""
    if isinstance(value, tuple):
        return tuple(key_without(left_out, one) for one in value)
    if not isinstance(value, msgspec.Struct):
        return repr(value)
    kind = type(value).__name__
    names = [name for name in value.__struct_fields__ if f"{kind}.{name}" not in left_out]
    return (kind, *(key_without(left_out, getattr(value, name)) for name in names))


def plant(monkeypatch: pytest.MonkeyPatch, key: Callable[[Question], Any]) -> None:
    """Let the driver remember its moves by this key."""
    ask, memo = asking.next_move, {}

    def remembered(driver: OperationDriver, operation: OperationState, now: Now) -> Move:
        known = key(Question(operation, asking.situation_of(operation, asking.inputs_of(driver, operation)), now))
        if known not in memo:
            memo[known] = ask(driver, operation, now)
        return memo[known]

    monkeypatch.setattr(asking, "next_move", remembered)


@pytest.mark.parametrize("name", FIELDS)
def test_a_memo_whose_key_leaves_out_one_field_is_found(name: str, monkeypatch: pytest.MonkeyPatch):
    if name in decisive():
        leave_out_what_is_read(name, monkeypatch)
    else:
        leave_out_what_a_new_rule_reads(name, monkeypatch)


def leave_out_what_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda question: key_without(frozenset({name}), tuple(question)))
    found = Driver(monkeypatch).wrong(decisive()[name])
    assert found is not None
    assert name in found.fields


def leave_out_what_a_new_rule_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key holds all that the rules of today read, so that only the new rule makes it wrong."""
    few = [(question, variant) for question, variant in variants() if name in variant.fields][:20]
    unread = frozenset(FIELDS) - set(decisive())
    plant(monkeypatch, lambda question: key_without(unread, tuple(question)))
    assert Driver(monkeypatch).wrong(few) is None

    def put_first(case: Case) -> Move:
        read = key_without(frozenset(FIELDS) - {name} - paths()[name], (case.operation, case.situation, case.now))
        return Settle("a new rule", "failed", RULE, repr(read))

    for table in ("_OPEN", "_UNTRIED", "_AFTER_UNKNOWN"):
        monkeypatch.setattr(rules, table, (put_first, *getattr(rules, table)))
    found = Driver(monkeypatch).wrong(few)
    assert found is not None
    assert name in found.fields


def test_a_memo_that_knows_the_stop_reasons_of_today_is_found(monkeypatch: pytest.MonkeyPatch):
    class Wider(Situation, frozen=True):
        blocked: Literal[Block, "evacuated"] = ""  # type: ignore[assignment]  # one more reason

    def key(question: Question) -> Any:
        stop: str = question.situation.blocked
        known = stop if stop in get_args(Block) else ""
        return key_without(frozenset({"Wider.blocked"}), tuple(question)), known

    monkeypatch.setattr(rules, "BLOCKED", {**rules.BLOCKED, "evacuated": "the building is empty"})
    question = QUESTIONS["ambiguous"]
    read: Any = {name: getattr(question.situation, name) for name in Situation.__struct_fields__}
    wider = question._replace(situation=Wider(**read))
    wide = [(wider, variant) for variant in variants_of(wider)]
    assert Driver(monkeypatch).wrong(wide) is None
    plant(monkeypatch, key)
    found = Driver(monkeypatch).wrong(wide)
    assert found is not None
    assert found.fields == ("Wider.blocked",)
    assert found.question.situation.blocked == "evacuated"
