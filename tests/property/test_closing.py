"""`close` over everything that the operations of a boundary can be: it always answers, and never says too much."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model import saga as c
from beforehand.model.contract import Contract, Key
from beforehand.model.operation import OperationState
from beforehand.model.outcome import FINAL, SETTLED, Phase
from beforehand.model.records.transaction import Pivot
from beforehand.model.saga import Backlog, Member, attempt_number, close
from beforehand.model.transaction import TransactionState

PHASES: tuple[Phase, ...] = (
    "planned", "ready", "gated", "held", "running", "verifying", "awaiting", "succeeded", "failed", "unknown",
    "cancelled",
)  # fmt: skip


def state(step: str, phase: Phase, hold: str = "", *, released: bool = False) -> OperationState:
    intent = r.Intent("do", r.Raw(b"{}"), "d", "c", hold=hold)
    return OperationState(step, intent, phase, "c", released=released)


@st.composite
def members(draw: st.DrawFn, phases: tuple[Phase, ...] = PHASES) -> list[Member]:
    made: list[Member] = []
    for number in range(draw(st.integers(0, 5))):
        step, held = f"t/do#{number + 1}", draw(st.booleans())
        phase = draw(st.sampled_from(phases))
        released = held and phase != "held" and draw(st.booleans())
        operation = state(step, phase, "t" if held else "", released=released)
        compensates = draw(st.booleans())
        contract = Contract(
            "do",
            compensates=compensates,
            restores=compensates and draw(st.booleans()),
            absent_safe=draw(st.booleans()),
            idempotency=draw(st.sampled_from([None, Key.forever()])),
            confirms=draw(st.sampled_from(["", "confirm_it"])),
            observes=draw(st.booleans()),
        )
        begun = draw(st.integers(1, 20))
        ended = begun + draw(st.integers(1, 10)) if phase in SETTLED else 0
        compensation = (
            state(f"{step}/undo", draw(st.sampled_from(PHASES))) if compensates and draw(st.booleans()) else None
        )
        if compensation is not None and draw(st.booleans()):
            operation = replace(operation, links=replace(operation.links, overtaken=compensation.step))
        done = state(f"{step}/confirm", draw(st.sampled_from(phases))) if draw(st.booleans()) else None
        made.append(
            Member(
                operation,
                contract,
                begun,
                ended,
                compensation,
                done,
                reading=draw(st.sampled_from(["unread", "same", "changed"])),
                stray=draw(st.booleans()),
            )
        )
    return made


@given(members(), st.integers(1, 3), st.booleans())
def test_on_the_way_back_nothing_is_compensated_too_early_or_twice(found: list[Member], tries: int, parked: bool):
    boundary = TransactionState("t", "parked" if parked else "aborting", backward=True, tries=tries)
    move = close(boundary, found)
    by_step = {member.step: member for member in found}
    assert isinstance(move, (c.AwaitOperations, c.StartCompensations, c.ParkTransaction, c.Finish))
    if isinstance(move, (c.StartCompensations, c.ParkTransaction, c.Finish)):
        assert all(member.operation.phase in SETTLED for member in found)
    if isinstance(move, c.StartCompensations):
        for member in (by_step[step] for step in move.steps):
            assert member.operation.phase == "succeeded" or member.contract.absent_safe
            again = member.compensation is not None and (
                member.compensation.phase in {"failed", "cancelled"} or member.overtaken
            )
            assert member.compensation is None or (again and attempt_number(member.compensation.step) < tries)
            later = [one for one in found if one.begun > member.ended > 0 and _stands(one)]
            assert not later, "something that started after it ended still stands"
    if isinstance(move, c.Finish):
        assert all(not _stands(member) for member in found)
        assert set(move.undone) == {member.step for member in found if member.undone}
    if isinstance(move, c.ParkTransaction):
        assert move.stuck


def _stands(member: Member) -> bool:
    """Whether something is left to do about it on the way back."""
    if member.undone:
        return False
    return member.operation.phase == "unknown" or (member.landed and member.contract.compensates)


ENDED = members(("succeeded", "succeeded", "failed", "unknown"))  # where nothing is on its way, most is left to decide


@given(
    ENDED,
    st.lists(st.one_of(ENDED, members()), max_size=4),
    st.integers(1, 3),
    st.sets(st.integers(1, 5), max_size=2),
)
def test_what_the_backlog_shows_is_all_that_the_decision_on_the_way_back_rests_on(
    found: list[Member], news: list[list[Member]], tries: int, accepted: set[int]
):
    boundary = TransactionState(
        "t", "aborting", backward=True, tries=tries, accepted=tuple(f"t/do#{number}" for number in accepted)
    )
    backlog, now = Backlog(boundary, found), {member.step: member for member in found}
    assert close(boundary, backlog.front() or found) == close(boundary, found)
    for later in (member for some in news for member in some if member.step in now):
        then = now[later.step]  # where it began is known for ever, and where it ended as soon as it has
        ended = then.ended or (later.ended and later.ended - later.begun + then.begun)
        now[later.step] = member = replace(later, begun=then.begun, ended=ended)
        backlog.put(member)
        every = list(now.values())
        assert close(boundary, backlog.front() or every) == close(boundary, every)


@given(members(), st.sampled_from(["one", "best effort"]))
def test_on_the_way_forward_one_thing_leaves_at_a_time_and_the_pivot_first(found: list[Member], pivot: Pivot):
    boundary = TransactionState("t", "committing", pivot=pivot)
    move = close(boundary, found)
    held = [member for member in found if member.held]
    left = [one for one in held if one.landed or one.operation.phase == "unknown"]
    if isinstance(move, c.Release):
        (member,) = (one for one in held if one.step == move.step)
        assert not member.operation.released
        assert all(one.operation.final for one in found if not one.held)
        assert all(
            one.confirmation is not None and one.confirmation.phase == "succeeded"
            for one in found
            if one.contract.confirms and one.operation.phase == "succeeded"
        )
        if c.repeatable(member.contract):
            assert all(one.operation.phase in FINAL for one in held if not c.repeatable(one.contract))
    if isinstance(move, c.TurnBack):
        assert not left, "something irreversible has left: there is no way back"
    if isinstance(move, c.Finish):
        assert all(one.operation.phase == "succeeded" for one in held)
    if isinstance(move, c.StartCompensations):
        assert {one.step for one in found if one.stray} >= set(move.steps), "what belongs to a commit is not undone"


@given(members())
def test_a_person_who_accepts_ends_it(found: list[Member]):
    """A reviewer who lets everything stand that is stuck gets to the end, once nothing is on its way."""
    found = [
        m
        for m in found
        if all(one is None or one.phase in SETTLED for one in (m.operation, m.compensation, m.confirmation))
    ]
    boundary = TransactionState("t", "parked", backward=True, accepted=tuple(member.step for member in found))
    assert isinstance(close(boundary, found), c.Finish)
    for member in found:
        assert replace(member) == member


@given(members())
def test_nothing_is_released_while_its_confirmation_is_on_its_way_or_unknown(found: list[Member]):
    move = close(TransactionState("t", "aborting", backward=True), found)
    if isinstance(move, c.StartCompensations):
        confirmations = [one.confirmation for one in found if one.step in move.steps and one.confirmation is not None]
        assert all(one.phase in FINAL for one in confirmations)


@given(members(), st.sampled_from(["one", "best effort"]))
def test_a_commit_turns_back_only_once_no_confirmation_is_on_its_way(found: list[Member], pivot: Pivot):
    found = [replace(one, operation=replace(one.operation, phase="succeeded")) for one in found if not one.held]
    move = close(TransactionState("t", "committing", pivot=pivot), found)
    confirmed = [one for one in found if one.contract.confirms and one.confirmation is not None]
    if isinstance(move, c.TurnBack):
        assert all(one.confirmation.phase in FINAL for one in confirmed if one.confirmation and not one.stray)
    if isinstance(move, c.ParkTransaction):  # nothing is held here, so only a stray, which is undone, needs a person
        stuck = [one for one in found if one.step in move.stuck]
        assert stuck
        assert all(one.stray and not one.on_its_way for one in stuck)
