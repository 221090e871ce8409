"""Letters that look like others are found and named; honest texts of any language are left alone."""

import time

import pytest

from beforehand.model.names import SEARCHED, foreign, read_as, remarks, same_person, shows_something

HONEST = ["Müller, Straße", "東京の天気", "Привет, мир", "\u0441\u043e\u0440 \u0432 \u0441\u0430\u0434\u0443", "αβγ και άλλα", "naïve café", "حساب", "90 €", "👍",
          "Tシャツ", "서울 Seoul", "Ελλάδα", "ไทย", "हिन्दी", "x²", "user_1"]  # fmt: skip


@pytest.mark.parametrize("text", HONEST)
def test_honest_texts_of_any_language_have_no_remark(text: str):
    assert remarks(text) == ()
    assert foreign(text) == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p\u0430ypal.com", "contains Cyrillic '\u0430' (U+0430) among Latin letters"),
        ("g\u03bfogle", "contains Greek '\u03bf' (U+03BF) among Latin letters"),
        ("\u0430\u0440\u0440\u04cf\u0435", "and reads as 'app"),
        ("\uff41cme", "among Latin letters"),
        ("\U0001d5balice", "among Latin letters"),
        ("DE\u0661\u06612", "(U+0661)"),
        ("ab\u0261d", "(U+0261)"),
    ],
)
def test_what_looks_like_another_letter_is_named(text: str, says: str):
    assert any(says in one for one in remarks(f'{{"to":"{text}"}}')), remarks(text)
    assert foreign(text)


def test_signs_that_turn_a_text_around_are_counted():
    assert remarks("file\u202efdp.exe") == ("signs in it that change the direction of writing: 1",)


def test_only_some_words_are_named_and_the_others_counted():
    told = remarks(" ".join(f"p\u0430y{number}" for number in range(10)))
    assert len(told) == 4
    assert told[-1] == "7 more words contain letters that look like others"


def test_what_was_not_searched_is_said_and_the_search_is_short():
    began = time.perf_counter()
    told = remarks("\u0430a " * 500_000)
    assert time.perf_counter() - began < 20
    assert f"{1_500_000 - SEARCHED:,} more characters were not searched" in told[-1]


@pytest.mark.parametrize(
    "name",
    [
        "\u0430nn\u0430",
        "an\u200bna",
        "\uff21nna",
        " Anna",
        "\u0251nna",
        "an\u3164na",
        "an\u034fna",
        "anna\ufe0f",
        "an\u2800na",
        "an\uffa0na",
        "anna\U000e0101",
    ],
)
def test_a_name_that_looks_like_another_is_the_same_person(name: str):
    assert same_person("anna", name)
    assert same_person(name, "Anna")


def test_plain_names_are_compared_letter_by_letter():
    assert not same_person("user1", "userl")
    assert not same_person("мария", "мариа")
    assert read_as("p\u0430y") == "pay"


@pytest.mark.parametrize("text", [*HONEST, "\u2713", "a\u0301", "\u200ba"])
def test_a_text_with_one_drawn_sign_shows_something(text: str):
    assert shows_something(text)


@pytest.mark.parametrize(
    "text", ["", " ", "\u3164", "\u2063", "\x01", "\u2800", "\u2028", "\u0301", "\ufe0f", "\U0001d159"]
)
def test_a_text_without_one_shows_nothing(text: str):
    assert not shows_something(text)
    assert not shows_something(f"{text} {text}\u200b")
