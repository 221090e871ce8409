"""Two people answer one item at the same time, each in a process of their own: one word counts, both are on record."""

import re

import pytest

from tests.cli.lab import Lab
from tests.cli.test_inbox import DESK

WORDS = {
    "yes and no": (["yes"], ["no"]),
    "an edit and a yes": (["--edit", '{"cents": 6000}'], ["yes"]),
    "an answer in its place and a question back": (["--stand-in", '"by hand"'], ["--ask", "why?"]),
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_of_two_answers_at_once_one_counts_and_both_are_on_record(beforehand: Lab, words: tuple[list[str], list[str]]):
    beforehand.directory.joinpath("desk.py").write_text(DESK)
    beforehand("run", "desk.py:desk", '"9"')
    shown = beforehand.seen("refund-9/refund#1")
    both = [
        beforehand.start("answer", "refund-9/refund#1", *word, "--by", by, *shown)
        for word, by in zip(words, ("bea", "cid"), strict=True)
    ]
    told = [process.communicate(timeout=60)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], told
    ((refused, late),) = [
        (said, by) for said, process, by in zip(told, both, ("bea", "cid"), strict=True) if process.returncode
    ]
    known = ("answered", "has changed since it was shown", "takes no answer now")  # the last while it is being sent
    assert any(words in refused for words in known), refused
    beforehand("resume", "refund-9")
    told_again = beforehand("show", "refund-9", "--json").out
    if "takes no answer now" in refused:  # the call was being sent already: this was refused before it was an answer
        assert not re.search(rf"\b{late}\b", told_again)
    else:
        assert "refused: " in told_again or "has changed since" in refused
