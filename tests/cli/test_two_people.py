"""Two people answer one item at the same time, each in a process of their own: one word counts, both are on record."""

import pytest

from tests.cli.lab import Lab
from tests.cli.test_inbox import DESK

WORDS = {
    "yes and no": (["yes"], ["no"]),
    "an edit and a yes": (["--edit", '{"cents": 6000}'], ["yes"]),
    "an answer in its place and a question back": (["--stand-in", '"by hand"'], ["--ask", "why?"]),
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_of_two_answers_at_once_one_counts_and_both_are_on_record(holdfast: Lab, words: tuple[list[str], list[str]]):
    holdfast.directory.joinpath("desk.py").write_text(DESK)
    holdfast("run", "desk.py:desk", '"9"')
    shown = holdfast.seen("refund-9/refund#1")
    both = [
        holdfast.start("answer", "refund-9/refund#1", *word, "--by", by, *shown)
        for word, by in zip(words, ("bea", "cid"), strict=True)
    ]
    told = [process.communicate(timeout=60)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], told
    (refused,) = [said for said, process in zip(told, both, strict=True) if process.returncode]
    known = ("was answered", "has changed since it was shown", "takes no answer now")  # the last while it is being sent
    assert any(words in refused for words in known), refused
    holdfast("resume", "refund-9")
    told_again = holdfast("show", "refund-9", "--json").out
    assert "refused: " in told_again or "has changed since" in refused
