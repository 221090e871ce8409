"""The usage of a call of a model, in the forms in which services and frameworks write it."""

from types import SimpleNamespace
from typing import Any

import pytest

from beforehand.model.usage import Usage, own_name, usage_of

FORMS: dict[str, tuple[Any, Usage]] = {
    "openai chat": (
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "m-1",
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 5},
                "completion_tokens_details": {"reasoning_tokens": 8, "audio_tokens": 2},
            },
        },
        Usage(100, 20, 0.0, 60, 0, 8, 5, 2, "m-1", "", "chatcmpl-1"),
    ),
    "openai responses": (
        {
            "response_id": "resp_1",
            "usage": {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 60},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 8},
            },
        },
        Usage(100, 20, 0.0, 60, 0, 8, request="resp_1"),
    ),
    "anthropic counts what is cached beside the input": (
        {
            "id": "msg_1",
            "type": "message",
            "model": "m-2",
            "usage": {
                "input_tokens": 30,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 10,
                "output_tokens": 20,
            },
        },
        Usage(100, 20, 0.0, 60, 10, model="m-2", request="msg_1"),
    ),
    "gemini counts thoughts beside the output": (
        [
            {"content": {}},
            {
                "model_version": "m-3",
                "usage_metadata": {
                    "prompt_token_count": 100,
                    "candidates_token_count": 12,
                    "thoughts_token_count": 8,
                    "cached_content_token_count": 60,
                },
            },
        ],
        Usage(100, 20, 0.0, 60, 0, 8, model="m-3"),
    ),
    "pydantic ai": (
        {
            "model_name": "m-4",
            "provider_name": "openai",
            "provider_response_id": "r-1",
            "usage": {
                "input_tokens": 100,
                "cache_read_tokens": 60,
                "cache_write_tokens": 10,
                "output_tokens": 20,
                "input_audio_tokens": 5,
                "output_audio_tokens": 2,
                "details": {"reasoning_tokens": 8},
            },
        },
        Usage(100, 20, 0.0, 60, 10, 8, 5, 2, "m-4", "openai", "r-1"),
    ),
    "langchain": (
        {
            "model": "m-5",
            "usage": {
                "input_tokens": 100,
                "output_tokens": 20,
                "input_token_details": {"cache_read": 60, "cache_creation": 10, "audio": 5},
                "output_token_details": {"reasoning": 8, "audio": 2},
            },
        },
        Usage(100, 20, 0.0, 60, 10, 8, 5, 2, "m-5"),
    ),
    "an object with a cost": (
        SimpleNamespace(usage=SimpleNamespace(input_tokens=11, output_tokens=3, cost=0.02)),
        Usage(11, 3, 0.02),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_read(form: str):
    answer, usage = FORMS[form]
    assert usage_of(answer) == usage


def test_of_the_parts_of_an_answer_the_last_one_that_states_its_usage_counts():
    """A stream states its usage so far, and all of it at its end."""
    parts = [
        {"model": "m-1", "usage": {"input_tokens": 100, "output_tokens": 1}},
        {"model": "m-1", "usage": {"input_tokens": 100, "output_tokens": 20}},
        {"text": "the end"},
    ]
    assert usage_of(parts) == Usage(100, 20, model="m-1")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "text",
        {"usage": None},
        {"usage": 5},
        {"usage": {"input_tokens": -1, "output_tokens": 2**53}},
        {"usage": {"input_tokens": 1.5, "output_tokens": True, "cost": float("nan")}},
        {"usage": {"input_tokens": "9", "output_tokens_details": [1]}},
        {"usage": {"cost": 10**400}},
        {"usage": {"output_tokens": 500}},
        {"usage": {"input_tokens": 500}},
        {"usage": {"total_tokens": 500}},
        {"usage": {"input_tokens": 9, "total_tokens": 8}},
        {"usage": {"input_tokens": 9, "output_tokens": 5, "cached_tokens": "many"}},
        {"usage": {"input_tokens": 9, "output_tokens": 5, "thoughts_token_count": -1}},
        {"model": "a car", "id": 7, "type": {}},
        [],
        [3],
    ],
)
def test_what_is_no_count_is_unknown(answer: object):
    used = usage_of(answer)
    assert not used.known
    assert used == Usage()


@pytest.mark.parametrize("count", [10**30, -5, "many", 1.5, None, True])
def test_a_count_that_cannot_be_read_makes_the_usage_unknown_and_leaves_the_names(count: object):
    for stated in ({"input_tokens": count, "output_tokens": 5}, {"input_tokens": 5, "output_tokens": count}):
        used = usage_of({"usage": {**stated, "model": "full"}})
        assert used == Usage(model="full")
        assert not used.known


@pytest.mark.parametrize(
    ("stated", "used"),
    [
        ({"prompt_tokens": 8, "total_tokens": 8}, Usage(8)),  # of an embedding
        ({"completion_tokens": 5, "total_tokens": 12}, Usage(7, 5)),
        (
            {"prompt_token_count": 8, "thoughts_token_count": 4, "total_token_count": 12},
            Usage(8, 4, reasoning_tokens=4),
        ),
        ({"input_tokens": 8, "output_tokens": 0}, Usage(8)),
        ({"input_tokens": 8.0, "output_tokens": 2.0}, Usage(8, 2)),
    ],
)
def test_a_count_that_follows_from_the_others_is_known(stated: object, used: Usage):
    assert usage_of({"usage": stated}) == used
    assert used.known


def test_a_model_that_answered_has_read_something():
    assert not Usage(output_tokens=5).known


def test_a_name_is_kept_short_and_storable():
    used = usage_of({"usage": {"input_tokens": 1, "output_tokens": 0}, "model": "m\0" + "\ud800" + "x" * 300})
    assert used.model == "m?" + "x" * 197


def test_a_request_that_was_refused_has_a_known_usage():
    assert Usage(refused=True).known
    assert not Usage(model="m").known


@pytest.mark.parametrize(
    "model",
    [
        "m-1",
        SimpleNamespace(name="m-1"),  # our clients
        SimpleNamespace(name="m-1", model=object()),  # one of your own around another
        SimpleNamespace(name="desk", model_name="m-1", model=None),  # LangChain: `name` is that of a step
        SimpleNamespace(name="desk", model="m-1"),
        SimpleNamespace(name=None, model="m-1"),  # OpenAI Agents, Google ADK, CrewAI
        SimpleNamespace(model_name="m-1"),  # Pydantic AI
    ],
)
def test_a_model_is_named_as_lists_of_prices_name_it(model: object):
    assert own_name(model) == "m-1"


def test_an_object_without_a_name_names_nothing():
    assert own_name(SimpleNamespace(name="", model=3)) == ""
