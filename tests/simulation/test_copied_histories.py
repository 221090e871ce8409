"""A copy of a history is independent of it, for every record that simulated runs append."""

from typing import Any

import pytest

from holdfast.model.records import Record
from holdfast.model.run_history import RunHistory
from simulator.generator.plans import draw
from simulator.world import simulate


def state(history: RunHistory) -> dict[str, str]:
    """Everything in a history, its parts included, in a form that later changes do not reach."""
    parts: dict[str, Any] = {name: getattr(history, name) for name in history.__slots__}
    return {name: repr(vars(part) if hasattr(part, "__dict__") else part) for name, part in parts.items()}


def folded(run: str, records: list[Record], *, whole: bool) -> RunHistory:
    history = RunHistory(run, whole=whole)
    for record in records:
        history.add(record)
    return history


@pytest.mark.parametrize("seed", range(8))
def test_adding_to_a_copy_leaves_the_history_as_it_is(seed: int, monkeypatch: pytest.MonkeyPatch):
    stories: dict[int, tuple[RunHistory, list[Record]]] = {}
    add = RunHistory.add

    def noted(history: RunHistory, record: Record) -> None:
        add(history, record)
        stories.setdefault(id(history), (history, []))[1].append(record)

    with monkeypatch.context() as patched:
        patched.setattr(RunHistory, "add", noted)
        simulate(draw(seed))
    told = {history.run: records for history, records in stories.values() if len(records) == history.records}
    assert told
    for run, records in told.items():
        half = len(records) // 2
        history, expected = folded(run, records[:half], whole=True), state(folded(run, records, whole=True))
        before, copy = state(history), history.copy()
        for record in records[half:]:
            copy.add(record)
        assert (state(history), state(copy)) == (before, expected)
        for record in records[half:]:
            history.add(record)
        assert (state(history), state(copy)) == (expected, expected)
