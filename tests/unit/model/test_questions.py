"""What answers a question, as a value and as a person wrote it."""

from __future__ import annotations

import pytest

from beforehand.errors import UsageError
from beforehand.model.questions import Question


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        ("text", " as it is ", " as it is "),
        ("whole", " 12 ", 12),
        ("number", "1", 1.0),
        ("number", "0.5", 0.5),
        ("yes_no", " Yes", True),
        ("yes_no", "false", False),
    ],
)
def test_an_answer_is_read_in_its_form(form, text, value):
    answer = Question("how?", form).read(text)
    assert (answer, type(answer)) == (value, type(value))


@pytest.mark.parametrize(
    ("form", "text", "known"),
    [
        ("whole", "a dozen", "an answer is a whole number"),
        ("whole", "1.5", "an answer is a whole number"),
        ("whole", "true", "an answer is a whole number"),
        ("number", '"1"', "an answer is a number"),
        ("number", "true", "an answer is a number"),
        ("yes_no", "perhaps", "an answer is yes or no"),
    ],
)
def test_what_is_no_answer_is_refused_in_words(form, text, known):
    with pytest.raises(UsageError) as refused:
        Question("how?", form).read(text)
    assert refused.value.known == known


def test_only_a_choice_answers_where_there_are_choices():
    question = Question("which?", choices=("red", "blue"))
    assert question.read("blue") == "blue"
    with pytest.raises(UsageError) as refused:
        question.read("green")
    assert refused.value.known == "an answer is one of: red, blue"


def test_a_value_of_another_kind_is_no_text():
    with pytest.raises(UsageError):
        Question("how?").checked(3)
