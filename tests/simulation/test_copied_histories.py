"""Histories over every record that simulated runs append: copies are independent, and all at once folds as one by one."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import pytest

from beforehand.model.records import AttemptStarted, Claimed, End, Intent, OperationSettled, Raw, Record
from beforehand.model.run_history import RunHistory
from simulator.generator.plans import draw
from simulator.world import simulate
from tests.draws import daily


def state(history: RunHistory) -> dict[str, str]:
    """Everything in a history, its parts included, in a form that later changes do not reach."""
    parts: dict[str, Any] = {name: getattr(history, name) for name in history.__slots__}
    return {name: repr(vars(part) if hasattr(part, "__dict__") else part) for name, part in parts.items()}


def folded(run: str, records: list[Record], *, whole: bool) -> RunHistory:
    history = RunHistory(run, whole=whole)
    for record in records:
        history.add(record)
    return history


def told_by(seed: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Record]]:
    """The records of the runs of a simulated seed."""
    stories: dict[int, tuple[RunHistory, list[Record]]] = {}
    add = RunHistory.add

    def noted(history: RunHistory, record: Record) -> None:
        add(history, record)
        stories.setdefault(id(history), (history, []))[1].append(record)

    def one_by_one(history: RunHistory, records: Iterable[Record]) -> None:
        for record in records:
            noted(history, record)

    with monkeypatch.context() as patched:
        patched.setattr(RunHistory, "add", noted)
        patched.setattr(RunHistory, "add_all", one_by_one)
        simulate(draw(seed))
    told = {history.run: records for history, records in stories.values() if len(records) == history.records}
    assert told
    return told


@pytest.mark.parametrize("seed", daily(range(8), 4))
def test_adding_to_a_copy_leaves_the_history_as_it_is(seed: int, monkeypatch: pytest.MonkeyPatch):
    for run, records in told_by(seed, monkeypatch).items():
        half = len(records) // 2
        history, expected = folded(run, records[:half], whole=True), state(folded(run, records, whole=True))
        before, copy = state(history), history.copy()
        for record in records[half:]:
            copy.add(record)
        assert (state(history), state(copy)) == (before, expected)
        for record in records[half:]:
            history.add(record)
        assert (state(history), state(copy)) == (expected, expected)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", daily(range(12), 5))
def test_all_at_once_folds_as_one_by_one(seed: int, whole: bool, monkeypatch: pytest.MonkeyPatch):
    for run, records in told_by(seed, monkeypatch).items():
        assert_alike(run, records, whole=whole)


def test_writes_that_overlap_fold_as_one_by_one():
    """Ten writes of a gather: some end, some stay open, in between one is looked at and the run is claimed anew."""
    records = [started(number) for number in range(10)]
    records += [settled(3), settled(7, "failed"), settled(4, "unknown"), OperationSettled(step="pay#4")]
    records += [Claimed(worker="w2", token=2, boot="b2", number=2, at=9, up=3), settled(5), started(11), settled(11)]
    assert_alike("run", records, whole=False)


def assert_alike(run: str, records: Sequence[Record], *, whole: bool) -> None:
    """However the records are cut into pages, the fold is that of one by one."""
    one_by_one = folded(run, list(records), whole=whole)
    for page in (1, 2, 3, 7, len(records)):
        history = RunHistory(run, whole=whole)
        for at in range(0, len(records), page):
            history.add_all(records[at : at + page])
        opened = [operation.step for operation in history.open_operations()]
        assert opened == [operation.step for operation in one_by_one.open_operations()]
        assert history.operations == one_by_one.operations
        history.operations = one_by_one.operations  # the order of those that have ended means nothing
        assert state(history) == state(one_by_one)


def started(number: int) -> AttemptStarted:
    intent = Intent(tool="pay", arguments=Raw(b'{"to":%d}' % number), digest="d", contract="c")
    return AttemptStarted(step=f"pay#{number}", intent=intent, at=number, up=number)


def settled(number: int, status: Literal["succeeded", "failed", "unknown"] = "succeeded") -> OperationSettled:
    first = End("returned") if status != "unknown" else End("ambiguous")
    return OperationSettled(step=f"pay#{number}", status=status, result=Raw(b"1"), end=first, at=50, up=60 + number)
