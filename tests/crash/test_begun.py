"""A process that is killed while it begins a run leaves none, or one that can be driven, resumed and cancelled."""

from collections.abc import Callable

import pytest

from tests.crash.desks import Case, killed
from tests.draws import daily

PROGRAM = "tests.crash.begun"
TAKEN = ("after_lease", 1)  # the lease of the new run is durable, and its process dies before anything else


@pytest.mark.deeper
@pytest.mark.parametrize("begins", daily(["run", "fork", "notice"]))
def test_a_listed_run_has_a_record_of_its_start(fresh: Callable[[], Case], begins: str):
    for case in killed(fresh, begins):
        empty = {run: line for run, line in case.says("listed").items() if line[1] == 0}
        assert empty == {}


@pytest.mark.parametrize("then", ["run", "resume", "recover"])
def test_a_run_that_was_only_claimed_goes_on(fresh: Callable[[], Case], then: str):
    case = fresh()
    assert case.live("run", *TAKEN) == -9
    assert case.says(then) == ([] if then == "recover" else "ann")
    assert case.says("listed")["bill-ann"][0] == "completed"
    assert case.says("run") == "ann"
    assert case.happened() == ["ann"]


def test_a_run_that_was_only_claimed_is_cancelled(fresh: Callable[[], Case]):
    case = fresh()
    assert case.live("run", *TAKEN) == -9
    assert case.says("cancel") == "cancelled"
    assert case.says("recover") == []
    assert case.happened() == []
