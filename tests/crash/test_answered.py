"""Every answer of a person, in processes that are really killed: at every point of giving it, and at every point of what
it lets happen. The effect is a plain write, so only this test would notice a second one.
"""

from collections.abc import Callable

import pytest

from beforehand.model import records as r
from tests.crash.answered import LATER, NAMES
from tests.crash.desks import Case, killed
from tests.draws import daily

PROGRAM = "tests.crash.answered"
PAID = {"edit": 1, "stand_in": 0, "ask_back": 0, "decline": 0}
NOBODY = ["", "", 0, 0]
HANDED = {"delegate": ["cid", "", 0, 0], "snooze": ["", "", LATER, 0], "escalate": ["", "leads", 0, 1]}
HEARD = {"edit": "paid 7000", "stand_in": "by hand", "ask_back": "asked_back: why?", "decline": "declined: no"}


@pytest.fixture
def after(fresh: Callable[[], Case]) -> Callable[..., Callable[[], Case]]:
    """A journal after these lives, in which no process died."""

    def begun(*before: str) -> Case:
        case = fresh()
        for what in before:
            assert case.live(what) == 0
        return case

    return lambda *before: lambda: begun(*before)


@pytest.mark.deeper
@pytest.mark.parametrize("word", daily(PAID))
def test_a_kill_while_it_is_said_leaves_it_said_or_not(after: Callable[..., Callable[[], Case]], word: str):
    for case in killed(after("drive"), word):
        heard, _ = case.says("drive")
        if "may pay" in heard[0]:
            assert case.effects() == []
            assert case.live(word) == 0
            heard, _ = case.says("drive")
        if word == "edit":
            assert case.effects() == [], "an edit alone sends nothing, whichever process died"
            assert case.live("agree") == 0
            heard, _ = case.says("drive")
        assert (heard[0], len(case.effects())) == (HEARD[word], PAID[word])


@pytest.mark.deeper
@pytest.mark.parametrize(
    "word", ["edit", *(pytest.param(word, marks=pytest.mark.deep) for word in PAID if word != "edit")]
)
def test_a_kill_between_the_answer_and_its_end(after: Callable[..., Callable[[], Case]], word: str):
    """Once an attempt may have left, no answer sends another one: the write is plain, and a person is asked."""
    ended: set[str] = set()
    lives = ("drive", word, "drive", "agree") if word == "edit" else ("drive", word)
    for case in killed(after(*lives), "drive"):
        heard, _ = case.says("drive")
        ended.add(heard[0].partition(":")[0])
        assert len(case.effects()) <= PAID[word]
        if heard[0].startswith("waits: "):
            assert "may have landed" in heard[0]
        else:
            assert (heard[0], len(case.effects())) == (HEARD[word], PAID[word])
    assert HEARD[word].partition(":")[0] in ended
    assert ("waits" in ended) == (PAID[word] == 1)


@pytest.mark.deeper
def test_a_kill_while_several_are_said_leaves_all_said_or_none(after: Callable[..., Callable[[], Case]]):
    said = 0
    for case in killed(after("drive"), "both"):
        heard, _ = case.says("drive")
        assert heard in (["paid 9000", "paid 9000"], [one for one in heard if "may pay" in one])
        assert len(case.effects()) == (2 if heard[0] == "paid 9000" else 0)
        said += len(case.effects()) == 2
    assert said > 0


@pytest.mark.deeper
def test_a_kill_while_a_permission_is_used_counts_it_once_and_pays_no_more_than_once(
    after: Callable[..., Callable[[], Case]],
):
    for case in killed(after("allow"), "drive"):
        heard, used = case.says("drive")
        told = [one for name in NAMES for one in case.records(f"refund-{name}")]
        left = sum(isinstance(one, r.AttemptStarted) and bool(one.standing) for one in told)
        assert (used, left) == ([1], 1), "what may have left has used it, and nothing else has"
        assert len(case.effects()) <= 1
        assert sum(one == "paid 9000" for one in heard) <= len(case.effects())
        assert any(one.startswith("waits: ") for one in heard)


@pytest.mark.deeper
def test_a_kill_while_a_permission_is_revoked_leaves_it_revoked_or_not(after: Callable[..., Callable[[], Case]]):
    for case in killed(after("allow"), "revoke"):
        case.live("revoke")
        heard, used = case.says("drive")
        assert (used, case.effects()) == ([0], [])
        assert all("may pay" in one for one in heard)


@pytest.mark.deeper
@pytest.mark.parametrize("word", daily(HANDED))
def test_a_kill_while_it_is_handed_over_leaves_it_with_either_and_it_is_answered_once(
    after: Callable[..., Callable[[], Case]], word: str
):
    for case in killed(after("drive"), word):
        if (now := case.says("look")) != HANDED[word]:
            assert now == NOBODY
            assert case.says(word) == "said"
        assert case.says("look") == HANDED[word]
        assert "may pay" in case.says("drive")[0][0], "the run knows nothing of it"
        assert case.says("approve") == "said"
        assert case.says("drive")[0][0] == "paid 9000"
        assert case.effects() == ["9000"]


@pytest.mark.deeper
@pytest.mark.parametrize(
    "word", ["delegate", *(pytest.param(word, marks=pytest.mark.deep) for word in ("snooze", "escalate"))]
)
def test_a_kill_of_whoever_drives_the_run_leaves_it_with_whom_it_was_given_to(
    after: Callable[..., Callable[[], Case]], word: str
):
    for case in killed(after("drive", word), "drive"):
        assert case.says("look") == HANDED[word]
        assert case.effects() == []
