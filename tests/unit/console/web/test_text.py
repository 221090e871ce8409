"""Nothing that a model or a tool wrote can hide on a page, or become a part of it."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beforehand_console.web.rendering import is_hidden, visible, visible_json

HIDDEN = ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\xa0", "\xad", "\u034f", "\u061c", "\u115f", "\u200b", "\u200e", "\u2028",
          "\u202e", "\u2066", "\u2800", "\u3000", "\u3164", "\ufe0f", "\ufeff", "\ufff9", "\U000e0041", "\ue000"]  # fmt: skip


@pytest.mark.parametrize("sign", HIDDEN, ids=ascii)
def test_what_a_screen_would_not_draw_is_spelled_out(sign: str):
    shown = visible(f"a{sign}b")
    assert sign not in shown.replace("title=", "")
    assert 'class="hidden"' in shown
    assert f"U+{ord(sign):04X}" in shown


@pytest.mark.parametrize(
    "text", ["Müller, Straße", "東京の天気", "Привет, мир", "αβγ", "naïve café", "حساب", "90 €", "👍"]
)
def test_honest_texts_of_any_language_stay_as_they_are(text: str):
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "marked"),
    [("p\u0430ypal", "\u0430"), ("g\u03bf\u03bfgle", "\u03bf"), ("\u0430pple", "\u0430"), ("\uff30ayPal", "\uff30")],
)
def test_a_letter_of_another_alphabet_inside_a_word_is_marked(text: str, marked: str):
    assert f">{marked}</mark>" in visible(text)


def test_marks_piled_on_a_letter_are_spelled_out_and_counted():
    assert visible("a" + "\u0301" * 4).count("hidden") == 2
    assert "[18 more combining marks]" in visible("a" + "\u0301" * 20)
    assert "[9,998 more hidden signs]" in visible("\u202e" * 10_000)


def test_a_long_text_says_how_much_is_left_out():
    assert "(990,000 more characters)" in visible("a" * 1_000_000)


def test_lines_stay_lines_where_they_are_wanted():
    assert visible("a\n\tb") == "a\n\tb"
    assert "\\n" in visible("a\nb", lines=False)
    assert "\\r" in visible("a\rb")


@given(st.text())
def test_no_text_is_markup_and_nothing_hidden_is_left(text: str):
    shown = visible(text)
    plain = shown
    for kind in ("hidden", "foreign"):
        plain = plain.replace(f'<mark class="{kind}"', "")
    assert "<script" not in shown
    assert not any(is_hidden(sign) for sign in shown if sign not in "\n\t")
    assert plain.count("<") == plain.count("</mark>")


@given(st.text())
@example("\x7f")
def test_json_to_be_edited_is_the_same_value_with_nothing_hidden(text: str):
    shown = visible_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(shown) == text
    assert not any(is_hidden(sign) for sign in shown)
