"""Every answer to a review, in processes that are really killed: at every point of giving it, and at every point of what
it lets happen. The bank's books outlive them: the answer counts once, nothing is paid twice, and nothing is lost.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from beforehand.model import records as r
from tests.crash.desks import Case, killed
from tests.draws import daily

PROGRAM = "tests.crash.reviewed"
CASES = {
    "happened": ("landed", "paid", ["paid"]),
    "retry": ("lost", "paid", ["paid"]),
    "give_up": ("lost", "OperationFailed", []),
    "same_key": ("keyed", "paid", ["paid"]),
    "compensate": ("booked", "TransactionAborted", ["paid", "paid back"]),
    "abandon": ("landed", "stopped: cancelled", ["paid"]),
}
WORDS = daily(CASES)
COUNTS = {"compensate": (r.TransactionAborting, r.Resolved), "abandon": (r.RunStoppedRecord,)}


def words(case: Case, about: str) -> Counter[type]:
    """How often the words of people changed something, by kind."""
    kinds = (r.Resolved, r.RunStoppedRecord, r.TransactionAborting)
    return Counter(type(one) for one in case.records(f"order-{about}") if isinstance(one, kinds))


def begun(fresh: Callable[[], Case], about: str, *answers: str) -> Case:
    """A run that waits for a review, or has its answer."""
    case = fresh()
    assert case.says(f"{about} drive").startswith("waits: ")
    for word in answers:
        assert case.says(f"{about} {word}") == "said"
    return case


def driven(case: Case, about: str) -> str:
    """The run, as far as it comes. A process that learns on the way that it was called off releases it: it is due at once."""
    said: str = case.says(f"{about} drive")
    return case.says(f"{about} drive") if "is called off" in said else said


@pytest.mark.deeper
@pytest.mark.parametrize(
    "at_once",
    [True, pytest.param(False, marks=pytest.mark.deep)],
    ids=["and said again at once", "and looked for first"],
)
@pytest.mark.parametrize("word", WORDS)
def test_a_kill_while_it_is_said_leaves_it_said_or_not(fresh: Callable[[], Case], word: str, at_once: bool):
    about, heard, done = CASES[word]
    for case in killed(partial(begun, fresh, about), f"{about} {word}"):
        before = case.happened()
        if at_once:
            case.says(f"{about} {word}")
            assert case.happened() == before, "an answer sends nothing by itself"
        elif driven(case, about).startswith("waits: "):
            assert (words(case, about), case.happened()) == ({}, before), "half an answer counts"
            assert case.says(f"{about} {word}") == "said"
        assert driven(case, about) == heard
        assert case.happened() == done
        assert words(case, about) == dict.fromkeys(COUNTS.get(word, (r.Resolved,)), 1)


@pytest.mark.deeper
@pytest.mark.parametrize("word", WORDS)
def test_a_kill_between_the_answer_and_its_end(fresh: Callable[[], Case], word: str):
    """What a kill makes unknown again is reviewed again, by what stands in the books."""
    about, heard, done = CASES[word]
    again = 0
    for case in killed(partial(begun, fresh, about, word), f"{about} drive"):
        said = driven(case, about)
        if said.startswith("waits: "):
            again += 1
            truth = "same_key" if about == "keyed" else "happened" if case.happened() else "retry"
            assert case.says(f"{about} {truth}") == "said"
            said = driven(case, about)
        assert (said, case.happened()) == (heard, done)
    assert (again > 0) == (word in {"retry", "same_key"}), "only what may be sent again can be cut short again"
