"""`GoogleGemini`: Google's protocol for generating content."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from beforehand.errors import ModelError
from beforehand.loop.http import ProviderAddress, ProviderClient, StreamedAnswer, arguments_of, malformed, turns_of
from beforehand.loop.model import ChatMessage, ModelCall, ModelReply, ModelRequest, OnText, Stop
from beforehand.model.usage import Usage, usage_of

_NATIVE: Final = "google"
_STOPS: Final[dict[str, Stop]] = {
    "STOP": "end", "MAX_TOKENS": "length", "SAFETY": "refusal", "RECITATION": "refusal", "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal", "SPII": "refusal", "LANGUAGE": "refusal",
}  # fmt: skip


class _Content(msgspec.Struct):
    parts: list[dict[str, Any]] = []


class _Candidate(msgspec.Struct):
    content: _Content = msgspec.field(default_factory=_Content)
    finish_reason: str | None = msgspec.field(default=None, name="finishReason")


class _Modality(msgspec.Struct, rename="camel"):
    modality: str = ""
    token_count: int = 0


class _Counted(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int = 0  # the API leaves out what is zero
    thoughts_token_count: int = 0
    cached_content_token_count: int = 0
    prompt_tokens_details: list[_Modality] = []
    candidates_tokens_details: list[_Modality] = []


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] = []
    usage_metadata: _Counted | None = None
    prompt_feedback: _Feedback | None = None
    model_version: str = ""
    response_id: str = ""
    error: dict[str, Any] | None = None


class _Answer(StreamedAnswer[_Chunk]):
    def __init__(self, provider: ProviderAddress, service: str, on_text: OnText) -> None:
        super().__init__(provider, service, on_text)
        self._parts: list[dict[str, Any]] = []
        self._finished = ""
        self._blocked = ""
        self._usage = Usage(service=service)

    def add(self, event: _Chunk) -> None:
        if event.error is not None:
            text = f"{self._provider.url} broke off: {event.error.get('message', event.error)}"
            raise ModelError(text, code="unavailable", next_step="it is asked again")
        self._model = event.model_version or self._model
        if (given := event.usage_metadata) is not None:
            audio = [_audio(given.prompt_tokens_details), _audio(given.candidates_tokens_details)]
            read_now = usage_of({"usage": given, "service": self._service})
            self._usage = replace(read_now, audio_input_tokens=audio[0], audio_output_tokens=audio[1])
        self._usage = replace(self._usage, request=event.response_id or self._usage.request)
        if event.prompt_feedback is not None and event.prompt_feedback.block_reason:
            self._blocked = event.prompt_feedback.block_reason
        for candidate in event.candidates[:1]:
            self._finished = candidate.finish_reason or self._finished
            for part in candidate.content.parts:
                self._parts.append(part)
                if text := _text(part, self._provider):
                    self._on_text(text)

    def _used(self) -> Usage:
        return self._usage

    def reply(self) -> ModelReply:
        if self._blocked:
            return ModelReply(f"the prompt was blocked: {self._blocked}", (), "refusal", self._usage, self._model)
        stop = self._stopped(self._finished, "finishReason", _STOPS)
        calls = tuple(
            _call(part["functionCall"], place, self._provider)
            for place, part in enumerate((part for part in self._parts if "functionCall" in part), 1)
        )
        text = "".join(_text(part, self._provider) for part in self._parts)
        stop = "calls" if calls and stop == "end" else stop
        return ModelReply(text, calls, stop, self._usage, self._model, native={_NATIVE: self._parts})


class GoogleGemini(ProviderClient):
    """A model behind Google's Gemini API, or at another server with `base_url`."""

    URL = "https://generativelanguage.googleapis.com"
    SERVICE = "google"
    KEY = "GEMINI_API_KEY"
    PATH = "/v1beta/models/{model}:streamGenerateContent?alt=sse"
    EVENT = _Chunk
    ANSWER = _Answer

    @staticmethod
    def _headers(key: str) -> dict[str, str]:
        """The key."""
        return {"x-goog-api-key": key}

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        config: dict[str, Any] = {"maxOutputTokens": request.max_tokens, **self._settings}
        if request.returns:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": request.returns}
        body: dict[str, Any] = {
            "contents": turns_of(request.messages, "model", "parts", _parts),
            "generationConfig": config,
        }
        if request.instructions:
            body["systemInstruction"] = {"parts": [{"text": request.instructions}]}
        if request.tools:
            declared = [
                {"name": tool["name"], "description": tool["description"], "parametersJsonSchema": tool["parameters"]}
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declared}]
        return body


def _audio(details: list[_Modality]) -> int:
    return sum(one.token_count for one in details if one.modality == "AUDIO")


def _text(part: dict[str, Any], provider: ProviderAddress) -> str:
    """The text of a part that is for the reader; a thought is not."""
    text = part.get("text", "")
    if not isinstance(text, str):
        raise malformed(provider, f"a text that is {type(text).__name__}")
    return "" if part.get("thought") else text


def _call(call: Any, place: int, provider: ProviderAddress) -> ModelCall:
    try:
        found = msgspec.convert(call, dict[str, Any])
    except msgspec.ValidationError as error:
        raise malformed(provider, "a call whose arguments are not an object") from error
    arguments = msgspec.json.encode(found.get("args") or {}).decode()
    return ModelCall(str(found.get("id") or f"call-{place}"), str(found.get("name", "")), arguments)


def _parts(message: ChatMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        response = {"error": message.text} if message.failed else {"result": message.text}
        return [{"functionResponse": {"id": message.answers, "name": message.tool, "response": response}}]
    if _NATIVE in message.native:
        return list(message.native[_NATIVE])
    text = [{"text": message.text}] if message.text else list[dict[str, Any]]()
    calls = [
        {"functionCall": {"id": call.id, "name": call.tool, "args": arguments_of(call.arguments)}}
        for call in message.calls
    ]
    return [*text, *calls]
