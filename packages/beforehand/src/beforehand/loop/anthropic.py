"""`AnthropicMessages`: Anthropic's messages protocol."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from beforehand.errors import ModelError
from beforehand.loop.http import (
    SHOWN,
    ProviderAddress,
    ProviderClient,
    StreamedAnswer,
    arguments_of,
    malformed,
    turns_of,
)
from beforehand.loop.model import ChatMessage, ModelCall, ModelReply, ModelRequest, OnText, Stop

VERSION: Final = "2023-06-01"
_NATIVE: Final = "anthropic"
_TEXTS: Final = ("type", "text", "thinking", "signature")  # the fields of a block that are text
_ARGUMENTS: Final = "input_json"
"""The parts of a block that are the arguments of its call; other parts have the name of their field."""
_STOPS: Final[dict[str, Stop]] = {
    "end_turn": "end", "stop_sequence": "end", "tool_use": "calls", "max_tokens": "length",
    "model_context_window_exceeded": "length", "refusal": "refusal",
}  # fmt: skip


class _Counted(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Started(msgspec.Struct):
    id: str = ""
    model: str = ""
    usage: _Counted = msgspec.field(default_factory=_Counted)


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _Problem(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    message: _Started | None = None
    content_block: dict[str, Any] | None = None
    delta: _Delta | None = None
    usage: _Counted | None = None
    error: _Problem | None = None


class _Answer(StreamedAnswer[_Event]):
    def __init__(self, provider: ProviderAddress, service: str, on_text: OnText) -> None:
        super().__init__(provider, service, on_text)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._parts: dict[tuple[int, str], list[str]] = {}  # of each block's text, thoughts, signature and arguments
        self._stop = ""
        self._counted = _Counted()

    def add(self, event: _Event) -> None:
        match event.type:
            case "error":
                problem = event.error or _Problem()
                code = "rate_limited" if problem.type == "rate_limit_error" else "unavailable"
                text = f"{self._provider.url} broke off: {problem.type} {problem.message}"
                raise ModelError(text, code=code, next_step="it is asked again")
            case "message_start" if event.message is not None:
                self._model = event.message.model
                self._id = event.message.id
                self._count(event.message.usage)
            case "content_block_start" if event.content_block is not None:
                self._begin(event.index, event.content_block)
            case "content_block_delta" if event.delta is not None:
                self._take(event.index, event.delta)
            case "message_delta" if event.delta is not None:
                self._stop = event.delta.stop_reason or self._stop
                self._count(event.usage or _Counted())
            case "message_stop":
                self.over = True
            case _:
                pass  # a ping, the end of a block, or an event of a later version

    def _begin(self, index: int, block: dict[str, Any]) -> None:
        if "type" not in block or not all(isinstance(block.get(one, ""), str) for one in _TEXTS):
            raise malformed(self._provider, f"block {index} begins as {str(block)[:SHOWN]}")
        self._blocks[index] = block

    def _count(self, given: _Counted) -> None:
        """Take a count. Each one is of the whole answer so far."""
        before, now = asdict(self._counted), asdict(given)
        highest = {
            name: max((one for one in (before[name], now[name]) if one is not None), default=None) for name in now
        }
        self._counted = _Counted(**highest)

    def _take(self, index: int, delta: _Delta) -> None:
        if index not in self._blocks:
            raise malformed(self._provider, f"a delta of block {index}, which was not begun")
        fields = {
            "text_delta": ("text", delta.text),
            "input_json_delta": (_ARGUMENTS, delta.partial_json),
            "thinking_delta": ("thinking", delta.thinking),
            "signature_delta": ("signature", delta.signature),
        }
        if delta.type in fields:  # others are of a later version
            field, text = fields[delta.type]
            self._parts.setdefault((index, field), []).append(text)
            if field == "text":
                self._on_text(text)

    def _joined(self) -> list[dict[str, Any]]:
        """The blocks with all their parts, in their order."""
        for (index, field), parts in self._parts.items():
            if field != _ARGUMENTS:
                block = self._blocks[index]
                block[field] = "".join((block.get(field, ""), *parts))
        return [self._blocks[index] for index in sorted(self._blocks)]

    def reply(self) -> ModelReply:
        stop = self._stopped(self._stop if self.over else "", "stop_reason", _STOPS)
        blocks = self._joined()
        text = "".join(block.get("text", "") for block in blocks if block.get("type") == "text")
        calls = tuple(self._call(index) for index in sorted(self._blocks) if self._blocks[index]["type"] == "tool_use")
        return ModelReply(text, calls, stop, self._used(), self._model, native=self._native(blocks))

    def _call(self, index: int) -> ModelCall:
        block = self._blocks[index]
        given = self._arguments(index) or msgspec.json.encode(block.get("input", {})).decode()
        return ModelCall(str(block.get("id", "")), str(block.get("name", "")), given)

    def _arguments(self, index: int) -> str:
        return "".join(self._parts.get((index, _ARGUMENTS), ()))

    def _native(self, blocks: list[dict[str, Any]]) -> dict[str, Any]:
        """The blocks, where the provider signed what it thought: it wants them back unchanged."""
        if not any(block.get("type") in {"thinking", "redacted_thinking"} for block in blocks):
            return {}
        for index, field in self._parts:
            if field == _ARGUMENTS:
                self._blocks[index]["input"] = arguments_of(self._arguments(index))
        return {_NATIVE: blocks}


class AnthropicMessages(ProviderClient):
    """A model behind Anthropic's messages API, or at another server with `base_url`."""

    URL = "https://api.anthropic.com"
    SERVICE = "anthropic"
    KEY = "ANTHROPIC_API_KEY"
    PATH = "/v1/messages"
    EVENT = _Event
    ANSWER = _Answer

    @staticmethod
    def _headers(key: str) -> dict[str, str]:
        """The key, and the version of the protocol."""
        return {"x-api-key": key, "anthropic-version": VERSION}

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "max_tokens": request.max_tokens,
            "messages": turns_of(request.messages, "assistant", "content", _blocks),
            "stream": True,
        }
        if request.instructions:
            body["system"] = request.instructions
        if request.tools:
            body["tools"] = [
                {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
                for tool in request.tools
            ]
        if request.returns:
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.returns}}
        return {**body, **self._settings}


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.answers, "content": message.text}
        return [{**result, "is_error": True} if message.failed else result]
    if _NATIVE in message.native:
        return list(message.native[_NATIVE])
    text = [{"type": "text", "text": message.text}] if message.text else list[dict[str, Any]]()
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.tool, "input": arguments_of(call.arguments)}
        for call in message.calls
    ]
    return [*text, *calls]
