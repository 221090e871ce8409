"""`OpenAIChat`: the chat completions protocol, which most servers of models speak, local ones included."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from beforehand.errors import ModelError
from beforehand.loop.http import SHOWN, ProviderAddress, ProviderClient, StreamedAnswer
from beforehand.loop.model import ChatMessage, ModelCall, ModelReply, ModelRequest, OnText, Stop
from beforehand.model.parameters import strict

_STOPS: Final[dict[str, Stop]] = {
    "stop": "end", "length": "length", "content_filter": "refusal", "tool_calls": "calls", "function_call": "calls",
}  # fmt: skip


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Counted(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: Any = None  # servers differ in the parts
    completion_tokens_details: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Counted | None = None
    id: Any = None
    model: str | None = None
    error: Any = None


class _CallSoFar(msgspec.Struct):
    """A call as its parts arrive."""

    index: int
    id: str = ""
    tool: list[str] = []
    arguments: list[str] = []


class _Answer(StreamedAnswer[_Chunk]):
    def __init__(self, provider: ProviderAddress, service: str, on_text: OnText) -> None:
        super().__init__(provider, service, on_text)
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_CallSoFar] = []
        self._finished = ""
        self._counted = _Counted()

    def add(self, event: _Chunk) -> None:
        if event.error is not None:
            text = msgspec.json.encode(event.error).decode(errors="replace")[:SHOWN]
            raise ModelError(
                f"{self._provider.url} broke off: {text}", code="unavailable", next_step="it is asked again"
            )
        self._model = event.model or self._model
        self._id = event.id or self._id
        if event.usage is not None:
            self._counted = event.usage
        for choice in event.choices[:1]:
            self._finished = choice.finish_reason or self._finished
            self._take(choice.delta)

    def _take(self, delta: _Delta) -> None:
        if delta.content:
            self._text.append(delta.content)
            self._on_text(delta.content)
        if delta.refusal:
            self._refusal.append(delta.refusal)
        for part in delta.tool_calls or ():
            call = next((one for one in reversed(self._calls) if one.index == part.index), None)
            if call is None or (part.id and call.id not in {"", part.id}):  # some servers number all calls 0
                self._calls.append(call := _CallSoFar(part.index))
            call.id = part.id or call.id
            if part.function is not None:
                call.tool.append(part.function.name or "")
                call.arguments.append(part.function.arguments or "")

    def reply(self) -> ModelReply:
        stop = self._stopped(self._finished, "finish_reason", _STOPS)
        calls = tuple(
            ModelCall(call.id or f"call-{place}", "".join(call.tool), "".join(call.arguments) or "{}")
            for place, call in enumerate(sorted(self._calls, key=lambda one: one.index), 1)
        )
        stop = "refusal" if self._refusal else "calls" if calls and stop == "end" else stop
        stop = "end" if stop == "calls" and not calls else stop
        return ModelReply("".join(self._refusal or self._text), calls, stop, self._used(), self._model)


class OpenAIChat(ProviderClient):
    """A model behind the chat completions API. `base_url` names another server, which may need no key."""

    URL = "https://api.openai.com/v1"
    SERVICE = "openai"
    KEY = "OPENAI_API_KEY"
    NEEDS_KEY = False
    PATH = "/chat/completions"
    EVENT = _Chunk
    ANSWER = _Answer
    LAST = b"[DONE]"

    @staticmethod
    def _headers(key: str) -> dict[str, str]:
        """The key, where there is one."""
        return {"authorization": f"Bearer {key}"} if key else {}

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        limit = "max_completion_tokens" if self._provider.url == self.URL else "max_tokens"  # what other servers know
        first = [{"role": "system", "content": request.instructions}] if request.instructions else []
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [*first, *map(_message, request.messages)],
            "stream": True,
            "stream_options": {"include_usage": True},
            limit: request.max_tokens,
        }
        if request.tools:
            body["tools"] = [{"type": "function", "function": tool} for tool in request.tools]
        if request.returns:
            body["response_format"] = _format(request.returns)
        return {**body, **self._settings}


def _message(message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.answers, "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
        for call in message.calls
    ]
    return {"role": message.role, "content": message.text or None, "tool_calls": calls}


def _format(schema: dict[str, Any]) -> dict[str, Any]:
    """The form of the answer: strict where the schema has a strict form."""
    tight = strict({name: part for name, part in schema.items() if name != "$defs"}, schema.get("$defs", {}))
    if tight is None:
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    whole, needed = tight
    named = {**whole, "$defs": needed} if needed else whole
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": named, "strict": True}}
