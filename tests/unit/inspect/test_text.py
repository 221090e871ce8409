"""Texts for a terminal: harmless, short, readable."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.inspect.text import ago, count, duration, safe, safe_json, short


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str):
    shown = safe(text)
    assert not [sign for sign in shown if unicodedata.category(sign) in {"Cc", "Cs", "Zl", "Zp"}]
    assert not [
        sign
        for sign in shown
        if unicodedata.bidirectional(sign) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("é 漢 🙂", "é 漢 🙂"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("\x9b2J", "\\x9b2J"),
        ("in\u200bvisible", "in\\u200bvisible"),
        ("\ud800", "\\ud800"),
        ("a\U000e0061b", "a\\U000e0061b"),
        ("a\u3164b\u2800c\ufe0fd", "a\\u3164b\\u2800c\\ufe0fd"),
    ],
)
def test_what_is_spelled_out(text: str, shown: str):
    assert safe(text) == shown


def test_lines_are_kept_where_they_are_wanted():
    assert safe("a\n\tb\r\x1b", lines=True) == "a\n\tb\\r\\x1b"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_stays_the_same_value(text: str):
    spelled = safe_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(spelled) == text
    assert "\x1b" not in spelled
    assert "\u202e" not in spelled


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (1500, "1.5 s"),
        (59_000, "59 s"),
        (90_000, "1.5 min"),
        (7_200_000, "2 h"),
        (864_000_000, "10 d"),
    ],
)
def test_durations(ms: int, text: str):
    assert duration(ms) == text


@pytest.mark.parametrize(("ms", "text"), [(10_000, "now"), (4_000, "6 s ago"), (70_000, "in 1 min")])
def test_moments(ms: int, text: str):
    assert ago(ms, 10_000) == text


def test_counts_and_beginnings():
    assert (count(1, "run"), count(2, "run"), count(0, "entry", "entries")) == ("1 run", "2 runs", "0 entries")
    assert short("one  two\nthree", 9) == "one two …"
    assert short("short", 9) == "short"
