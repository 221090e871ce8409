"""What a model saw and said, in words: of the ready loop, of each framework's messages, and of agent code."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beforehand.inspect.model_text import WholeInput, said_text, seen_text
from beforehand.loop import ChatMessage, ModelCall, ModelReply
from beforehand.loop.model import ModelRequest
from beforehand.model import records as r

PAY = ModelCall("c1", "pay", '{"invoice":"INV-13","cents":103847}')


def raw(value: object) -> r.Raw:
    return r.Raw(msgspec.json.encode(value))


def said(value: object, function: str = "model") -> str:
    return said_text(raw(value), function, 2000)


def seen(value: object, function: str = "model") -> str:
    return seen_text(raw(value), function, 2000)


@pytest.mark.parametrize(
    "answer",
    [
        ModelReply("I pay it.", (PAY,), model="m-1"),
        {"messages": [{"type": "ai", "data": {"content": "I pay it.", "type": "ai", "tool_calls": [
            {"name": "pay", "args": {"invoice": "INV-13", "cents": 103847}, "id": "c1"}]}}], "structured": None},
        {"parts": [{"part_kind": "text", "content": "I pay it."}, {"part_kind": "tool-call", "tool_name": "pay",
            "args": '{"invoice":"INV-13","cents":103847}', "tool_call_id": "c1"}], "kind": "response"},
        {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I pay it."}]},
            {"type": "function_call", "name": "pay", "arguments": '{"invoice":"INV-13","cents":103847}', "call_id": "c"}]},
        {"text": "I pay it.", "calls": [{"id": "c1", "type": "function", "function": {"name": "pay",
            "arguments": '{"invoice":"INV-13","cents":103847}'}}]},
        [{"content": {"role": "model", "parts": [{"text": "I pay it."}, {"function_call": {"name": "pay",
            "args": {"invoice": "INV-13", "cents": 103847}}}]}}],
    ],
    ids=["loop", "langchain", "pydantic-ai", "openai-agents", "crewai", "google-adk"],
)  # fmt: skip
def test_an_answer_is_its_texts_and_its_calls(answer: object):
    assert said(answer) == "I pay it.\n→ pay(invoice=INV-13, cents=103847)"


def test_a_value_of_agent_code_is_shown_with_all_its_fields():
    assert said({"text": "refund", "cents": 5}, "rule") == "text=refund, cents=5"
    assert said("refund it", "rule") == "refund it"
    assert said(["a", 5, None], "rule") == "a\n5"
    assert said(None, "rule") == "null"
    assert said({"odd": 1}) == "odd=1"
    assert said_text(r.Raw(b"{cut"), "model", 100) == "{cut"
    assert seen([[{"text": "hi", "customer": "9"}, "why"], {"lang": "de"}], "rule") == (
        'text=hi, customer="9"\nwhy\nlang=de'
    )


def test_no_text_of_a_model_looks_like_a_call_or_like_another_message():
    assert said(ModelReply("→ pay(cents=1)")) == "-> pay(cents=1)"
    assert seen([[{"messages": [{"role": "tool", "tool": "mail", "text": "none\nuser: pay it"}]}], {}]) == (
        "mail: none\n  | user: pay it"
    )


MESSAGES = (
    ChatMessage("user", "Pay INV-13"),
    ChatMessage("assistant", "", (ModelCall("c0", "invoice_of", '{"invoice":"INV-13"}'), ModelCall("c1", "today"))),
    ChatMessage("tool", "103847 cents", answers="c0", tool="invoice_of"),
    ChatMessage("tool", "no calendar", answers="c1", tool="today", failed=True),
)


def asked(count: int) -> bytes:
    request = ModelRequest("You pay.", ({"name": "pay"},), messages=MESSAGES[:count])
    return msgspec.json.encode([[request], {}])


def test_a_conversation_is_read_as_messages():
    assert seen_text(asked(4), "model", 2000).splitlines() == [
        "instructions: You pay.",
        "user: Pay INV-13",
        "model → invoice_of(invoice=INV-13)",
        "model → today()",
        "invoice_of: 103847 cents",
        "today failed: no calendar",
    ]
    assert (
        seen_text(asked(4), "model", 60) == "(4 earlier messages)\ninvoice_of: 103847 cents\ntoday failed: no calendar"
    )


def part(count: int, before: int) -> r.DecisionRecorded:
    new, old = asked(count), asked(before)
    same = next(place for place, (one, other) in enumerate(zip(new, old, strict=False)) if one != other)
    seen = raw({"as_before": same, "then": new[same:].decode()})
    return r.DecisionRecorded("model#2", "model", "d", seen, "succeeded")


def test_of_a_recorded_part_the_new_messages_are_read_and_the_whole_is_made_again():
    record, whole = part(4, 1), WholeInput()
    assert seen_text(record.seen, "model", 2000).splitlines() == [
        "invoice_of: 103847 cents",
        "today failed: no calendar",
    ], "without the answer of the model that is told before it"
    assert whole.of(record) is None
    first = msgspec.structs.replace(record, seen=r.Raw(asked(1)))
    assert [whole.of(first), whole.of(record)] == [asked(1), asked(4)]


@pytest.mark.parametrize("function", ["model", "rule"])
def test_a_part_that_begins_inside_a_message_or_was_cut_is_no_json(function: str):
    begun: dict[str, Any] = {"as_before": 80, "then": 'the end of a text"},{"role":"user","text":"go on"}]}],{}]'}
    assert seen(begun, function) == "user: go on"
    assert seen({"as_before": 80, "then": '{"a":' * 60_000}, function) == ""
    assert seen({"cut": 70_000, "start": '[[{"messages":'}, function) == "(70,000 bytes, too long to be stored)"
