"""The clients against a server of our own on loopback, which speaks the published protocols and has their faults."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from beforehand.errors import ModelError, UsageError
from beforehand.loop import (
    AnthropicMessages,
    ChatMessage,
    GoogleGemini,
    Model,
    ModelCall,
    ModelReply,
    ModelRequest,
    OpenAIChat,
    anthropic,
    http,
    openai,
    user,
)
from beforehand.model.usage import Usage, usage_of
from tests.loop.model_server import Answer, ModelServer, Says, Status

CLIENTS: dict[str, Callable[..., Model]] = {
    "openai": OpenAIChat,
    "anthropic": AnthropicMessages,
    "google": GoogleGemini,
}
TOOL = {
    "name": "refund",
    "description": "Give money back.",
    "parameters": {
        "type": "object",
        "properties": {"cents": {"type": "integer"}},
        "required": ["cents"],
        "additionalProperties": False,
    },
}
CALL = ModelCall("call_1", "refund", '{"cents": 5}')
SCHEMA = {
    "type": "object",
    "properties": {"cents": {"type": "integer"}},
    "required": ["cents"],
    "additionalProperties": False,
}
CONVERSATION = ModelRequest(
    "Be kind.",
    (TOOL,),
    SCHEMA,
    100,
    (
        user("hi"),
        ChatMessage("assistant", "One moment", (CALL, ModelCall("call_2", "refund", "not JSON"))),
        ChatMessage("tool", "refunded", (), "call_1", "refund"),
        ChatMessage("tool", "Failed", (), "call_2", "refund", failed=True),
        user("and?"),
    ),
)


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Callable[..., Model]:
    return CLIENTS[request.param]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def asked(
    client: Callable[..., Model], *script: Answer, request: ModelRequest = CONVERSATION, **settings: Any
) -> tuple[ModelReply | Exception, list[str], ModelServer]:
    """The reply or the error of one call, the pieces of text, and the server."""
    server, pieces = ModelServer(list(script)), list[str]()

    async def call() -> ModelReply | Exception:
        async with server.running():
            model = client("test-model", key="k" * 8, base_url=server.url, **settings)
            try:
                return await model.answer(request, pieces.append)
            except (ModelError, UsageError) as error:
                return error

    return asyncio.run(call()), pieces, server


# --- answers ----------------------------------------------------------------------------------------------------------


def test_text_arrives_piece_by_piece(client: Callable[..., Model]):
    reply, pieces, _ = asked(client, Says("It is done."))
    assert isinstance(reply, ModelReply)
    assert (reply.text, reply.stop, reply.calls) == ("It is done.", "end", ())
    assert pieces == ["It", " is", " done."]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (11, 7)
    assert reply.model in {"gpt-test", "claude-test", "gemini-test"}


@pytest.mark.parametrize("name", CLIENTS)
def test_the_usage_in_full(name: str):
    reply, _, server = asked(CLIENTS[name], Says("It is done."))
    assert isinstance(reply, ModelReply)
    parts = {
        "openai": Usage(cached_tokens=2, audio_input_tokens=1, reasoning_tokens=3, request="x"),
        "anthropic": Usage(cached_tokens=2, cache_write_tokens=1, request="m"),
        "google": Usage(cached_tokens=2, audio_input_tokens=1, reasoning_tokens=3, request="x"),
    }
    assert reply.usage == replace(parts[name], input_tokens=11, output_tokens=7, service=server.url)


def test_the_usage_of_an_answer_that_cannot_be_used():
    """Anthropic counts the input before the answer, so an answer that is cut has a part of its usage."""
    reply, _, _ = asked(CLIENTS["anthropic"], Says("It is done.", cut_after=3))
    assert isinstance(reply, ModelError)
    used = usage_of(reply.reply)
    assert (used.input_tokens, used.output_tokens, used.model) == (11, 1, "claude-test")


def test_parallel_calls(client: Callable[..., Model]):
    reply, _, _ = asked(client, Says("Now:", (CALL, ModelCall("call_2", "refund", '{"cents": 6}'))))
    assert isinstance(reply, ModelReply)
    assert (reply.text, reply.stop) == ("Now:", "calls")
    assert [(one.id, one.tool, json.loads(one.arguments)) for one in reply.calls] == [
        ("call_1", "refund", {"cents": 5}),
        ("call_2", "refund", {"cents": 6}),
    ]


@pytest.mark.parametrize("indexes", [(0, 0), (0, 1), (3, 1)])
def test_calls_are_told_apart_whatever_a_server_numbers_them(indexes: tuple[int, int]):
    def part(index: int, **more: Any) -> Any:
        return msgspec.convert({"choices": [{"delta": {"tool_calls": [{"index": index, **more}]}}]}, openai._Chunk)

    answer = openai._Answer(http.ProviderAddress("", {}), "x", lambda _: None)
    for index, one in zip(indexes, ("a", "b"), strict=True):
        answer.add(part(index, id=one, function={"name": "refund", "arguments": '{"cents"'}))
        answer.add(part(index, function={"arguments": ": 5}"}))
        answer.add(part(index, id=one))
    answer.add(msgspec.convert({"choices": [{"finish_reason": "tool_calls"}]}, openai._Chunk))
    calls = [ModelCall(one, "refund", '{"cents": 5}') for one in ("a", "b")]
    assert list(answer.reply().calls) == (calls[::-1] if indexes == (3, 1) else calls)


@pytest.mark.parametrize("stop", ["length", "refusal"])
def test_why_it_stopped(client: Callable[..., Model], stop: str):
    reply, _, _ = asked(client, Says("so", stop=stop))
    assert isinstance(reply, ModelReply)
    assert reply.stop == stop


def test_what_a_provider_signed_goes_back_unchanged():
    for name in ("anthropic", "google"):
        reply, _, _ = asked(CLIENTS[name], Says("", (CALL,), thinks=True))
        assert isinstance(reply, ModelReply)
        again = ModelRequest(
            messages=(user("hi"), reply.as_message(), ChatMessage("tool", "ok", (), "call_1", "refund"))
        )
        _, _, server = asked(CLIENTS[name], Says("done"), request=again)
        assert "c2ln" in json.dumps(server.requests[0])


# --- requests ---------------------------------------------------------------------------------------------------------


def test_the_request_of_openai():
    _, _, server = asked(OpenAIChat, Says("x"))
    (body,) = server.requests
    assert body["path"] == "/chat/completions"
    assert server.headers[0]["authorization"] == f"Bearer {'k' * 8}"
    assert (body["model"], body["stream"], body["max_tokens"]) == ("test-model", True, 100)
    assert [one["role"] for one in body["messages"]] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert body["messages"][2]["tool_calls"][0] == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "refund", "arguments": '{"cents": 5}'},
    }
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "call_1", "content": "refunded"}
    assert body["tools"] == [{"type": "function", "function": TOOL}]
    assert body["response_format"]["json_schema"]["strict"] is True


def test_the_request_of_anthropic():
    _, _, server = asked(AnthropicMessages, Says("x"))
    (body,) = server.requests
    assert body["path"] == "/v1/messages"
    assert (server.headers[0]["x-api-key"], server.headers[0]["anthropic-version"]) == ("k" * 8, "2023-06-01")
    assert (body["system"], body["max_tokens"]) == ("Be kind.", 100)
    assert [one["role"] for one in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"][1] == {
        "type": "tool_use",
        "id": "call_1",
        "name": "refund",
        "input": {"cents": 5},
    }
    kinds = [(one["type"], one.get("is_error", False)) for one in body["messages"][2]["content"]]
    assert kinds == [("tool_result", False), ("tool_result", True), ("text", False)]
    assert body["tools"][0]["input_schema"] == TOOL["parameters"]
    assert body["output_config"]["format"]["schema"] == SCHEMA


def test_the_request_of_google():
    _, _, server = asked(GoogleGemini, Says("x"))
    (body,) = server.requests
    assert body["path"] == "/v1beta/models/test-model:streamGenerateContent?alt=sse"
    assert server.headers[0]["x-goog-api-key"] == "k" * 8
    assert [one["role"] for one in body["contents"]] == ["user", "model", "user"]
    assert body["contents"][1]["parts"][1]["functionCall"] == {"id": "call_1", "name": "refund", "args": {"cents": 5}}
    assert body["contents"][2]["parts"][1]["functionResponse"]["response"] == {"error": "Failed"}
    assert body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == TOOL["parameters"]
    assert body["generationConfig"]["responseJsonSchema"] == SCHEMA
    assert body["systemInstruction"] == {"parts": [{"text": "Be kind."}]}


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code", "wait"),
    [
        (Status(429, {"Retry-After": "7"}), "rate_limited", 7.0),
        (
            Status(429, {"Retry-After": "Wed, 21 Oct 2026 07:28:10 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}),
            "rate_limited",
            10.0,
        ),
        (Status(429, {"Retry-After": "soon"}), "rate_limited", None),
        (Status(500), "unavailable", None),
        (Status(529, {}, b"overloaded"), "unavailable", None),
        (Status(401), "unauthorized", None),
        (Status(404, {}, b""), "refused", None),
        (Status(400, {}, b'{"error": {"message": "prompt is too long: 300000 tokens"}}'), "too_long", None),
        (Status(400, {}, b'{"error": "a text"}'), "refused", None),
        (Says("It is done.", cut_after=2), "unavailable", None),
        (Says("It is done.", garble=1), "malformed", None),
    ],
)
def test_a_fault_has_its_class(client: Callable[..., Model], answer: Answer, code: str, wait: float | None):
    error, _, server = asked(client, answer)
    assert isinstance(error, ModelError)
    assert (error.code, error.retry_after) == (code, wait)
    assert len(server.requests) == 1, "a client does not try again: the run counts the tries"
    assert error.next_step
    assert "kkkk" not in str(error)


def test_a_stream_that_ends_in_order_without_its_last_event_was_cut(client: Callable[..., Model]):
    for events in range(1, 4):
        error, _, _ = asked(client, Says("a b c d", cut_after=events))
        assert isinstance(error, ModelError)
        assert error.code == "unavailable"


def test_only_cr_and_lf_end_a_line_of_a_stream(client: Callable[..., Model]):
    text = "one\u2028two\u2029three\x85four\x1cfive\x0bsix"
    reply, pieces, _ = asked(client, Says(text))
    assert isinstance(reply, ModelReply)
    assert (reply.text, "".join(pieces)) == (text, text)


@pytest.mark.parametrize("ends", [b"\n", b"\r", b"\r\n"])
def test_a_stream_is_read_alike_wherever_the_network_cuts_it(seed: int, ends: bytes):
    sent = ends.join([b"event: x", b"data: 1\xe2\x80\xa8", b"data:2", b"", b": ping", b"", b"data: 3", b"", b"data: 4"])
    rng, provider = random.Random(seed), http.ProviderAddress("", {})

    async def read(cuts: list[int]) -> list[bytes]:
        async def chunks() -> AsyncGenerator[bytes]:
            for start, end in pairwise([0, *cuts, len(sent)]):
                yield sent[start:end]

        return [data async for data in http._data(provider, httpx2.Response(200, content=chunks()))]

    for cuts in [list(range(1, len(sent))), *(sorted(rng.sample(range(1, len(sent)), 5)) for _ in range(50))]:
        assert asyncio.run(read(cuts)) == [b"1\xe2\x80\xa8\n2", b"3"], cuts


def test_an_answer_that_does_not_end_is_given_up(client: Callable[..., Model], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "MOST_BYTES", 10_000)
    error, pieces, _ = asked(client, Says("word " * 10_000))
    assert isinstance(error, ModelError)
    assert (error.code, "longer than 10,000 bytes" in str(error)) == ("malformed", True)
    assert 0 < len("".join(pieces)) < 10_000


def test_of_an_error_only_the_beginning_is_read(client: Callable[..., Model]):
    error, _, _ = asked(client, Status(500, {}, b"x" * 5_000_000))
    assert isinstance(error, ModelError)
    assert (error.code, len(str(error)) < 1_000) == ("unavailable", True)


def test_a_block_that_is_not_as_the_protocol_says():
    for block in ({}, {"type": "text", "text": 5}, {"type": ["tool_use"]}):
        event = anthropic._Event("content_block_start", content_block=block)
        with pytest.raises(ModelError, match="block 0 begins as"):
            anthropic._Answer(http.ProviderAddress("", {}), "x", lambda _: None).add(event)


def test_a_first_byte_that_is_too_late(client: Callable[..., Model]):
    error, _, _ = asked(client, Says("late", first_byte=5), silence=timedelta(milliseconds=100))
    assert isinstance(error, ModelError)
    assert error.code == "unavailable"
    assert "0.1 s" in str(error) or "Timeout" in str(error)


def test_nobody_listens(client: Callable[..., Model]):
    async def call() -> None:
        await client("m", key="k", base_url="http://127.0.0.1:1").answer(ModelRequest(), lambda _: None)

    with pytest.raises(ModelError, match="did not answer"):
        asyncio.run(call())


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variable"),
    [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY"), ("google", "GEMINI_API_KEY")],
)
def test_a_key_that_is_missing(name: str, variable: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UsageError, match=variable) as missing:
        CLIENTS[name]("m")
    assert f"export {variable}=" in missing.value.next_step
    monkeypatch.setenv(variable, "from-the-environment")
    CLIENTS[name]("m")
    with pytest.raises(UsageError, match="characters that keys never have"):
        CLIENTS[name]("m", key="two\nlines")


def test_a_local_server_needs_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = ModelServer([Says("hello")])

    async def call() -> ModelReply:
        async with server.running():
            return await OpenAIChat("local", base_url=server.url).answer(ModelRequest(), lambda _: None)

    assert asyncio.run(call()).text == "hello"
    assert "authorization" not in server.headers[0]


def test_an_address_that_is_none(client: Callable[..., Model]):
    async def call() -> None:
        await client("m", key="k", base_url="no address").answer(ModelRequest(), lambda _: None)

    with pytest.raises((UsageError, ModelError)):
        asyncio.run(call())
