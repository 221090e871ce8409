"""A printed command is read by a shell as exactly the words that were meant, whatever they contain."""

import os
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beforehand.cli.config import located, named_by
from beforehand.model.shell import PLACEHOLDERS, is_placeholder, lines, named, to_type
from beforehand.model.waits import answers_with, brings

HOSTILE = [
    "B-7;touch${IFS}pwned;", "$(touch pwned)", "`touch pwned`", "a' ; touch pwned ; '", "a | b", "x > pwned", "&& true",
    "#", "~", "~root", "a=~", "a:~root", "*", "?", "[a]", "{a,b}", "!!", "\\", "", " ", "-", "--journal=evil.db", "$HOME",
    "a\u00e4b", "p\u0430ypal", "r-ann/pay#1", "p1~child.1", "<NAME>", 'a"b', "=ls", "x beforehand cancel y",
]  # fmt: skip
WORDS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(HOSTILE)


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    """A directory with a `beforehand` in it that says which words it was given."""
    place = tmp_path_factory.mktemp("stub")
    program = place / "beforehand"
    program.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\" END\n", encoding="utf-8")
    program.chmod(0o755)
    return place


def read_back(stub, script: str) -> list[list[str]]:
    environment = {"PATH": f"{stub}:{os.environ['PATH']}", "HOME": str(stub), "LANG": "C.UTF-8"}
    ended = subprocess.run(["sh", "-c", script], cwd=stub, env=environment, capture_output=True, text=True, check=True)
    assert sorted(one.name for one in stub.iterdir()) == ["beforehand"]
    return [one.split("\0")[:-1] for one in ended.stdout.split("END\0")[:-1]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=8))
@example([[one] for one in HOSTILE])
def test_a_shell_reads_back_what_was_meant(stub, commands):
    script = "\n".join(to_type(*words) for words in commands)
    assert len(script.split("\n")) == len(commands)
    for words, read in zip(commands, read_back(stub, script), strict=True):
        meant = [word if word.isprintable() else "A-NAME-THAT-CANNOT-BE-TYPED" for word in words]
        assert read == meant


@settings(max_examples=30, deadline=None)
@given(WORDS, WORDS, st.sampled_from(["answer", "event", "approval", "question", "handoff", "halted", "person"]))
def test_each_command_for_a_wait_is_one_line_of_its_own(stub, run, step, kind):
    commands = answers_with(run, kind, step, shown=step) or brings(run, kind, step, step)
    found = read_back(stub, lines(*commands)) if commands else []
    assert len(found) == len(commands)


def test_ascii_whole_is_read_back(stub):
    every = "".join(map(chr, range(0x20, 0x7F)))
    assert read_back(stub, "\n".join(to_type(sign, every) for sign in every)) == [[sign, every] for sign in every]


@settings(max_examples=30, deadline=None)
@given(WORDS, st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=12))
@example("x beforehand cancel y", "a&b'.db")
def test_the_option_that_names_the_journal_is_added_to_the_command_and_to_no_word_of_it(stub, word, journal):
    meant = word if word.isprintable() else "A-NAME-THAT-CANNOT-BE-TYPED"
    located_line = located(to_type("answer", word, "no"), named_by(journal))
    assert read_back(stub, located_line) == [["--journal", journal, "answer", meant, "no"]]
    demo = to_type("demo", word)
    assert located(demo, named_by(journal)) == demo


def test_names_are_not_read_as_options():
    assert to_type("deliver", *named("--journal=evil.db")) == "beforehand deliver -- --journal=evil.db"
    assert to_type("=ls") == "beforehand '=ls'", "zsh puts the path of a program in its place"
    assert to_type("deliver", *named("B-7")) == "beforehand deliver B-7"


def test_placeholders_are_known():
    assert all(map(is_placeholder, [*PLACEHOLDERS, "LIMIT=AMOUNT", "cost=AMOUNT EUR"]))
    assert not any(map(is_placeholder, ["anna", "name", "NAMED", "cost=1.00 EUR"]))
