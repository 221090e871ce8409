"""A server of models on loopback that speaks three published protocols, with the faults that they have in the field.

It has a script of answers, and counts the requests it got and the answers that it gave to their end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

from beforehand.loop import ModelCall


@dataclass
class Says:
    """An answer. `cut_after` ends the stream after that many events, `garble` spoils that one, `pause` is before each."""

    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    stop: str = ""
    cut_after: int | None = None
    garble: int | None = None
    first_byte: float = 0.0
    pause: float = 0.0
    thinks: bool = False


@dataclass
class Status:
    """An answer that is an error."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"error": {"message": "out of order", "type": "server_error", "code": "broken"}}'


Answer = Says | Status


OPENAI_USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 1},
    "completion_tokens_details": {"reasoning_tokens": 3, "audio_tokens": None},
}


def openai_events(says: Says) -> list[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        body = {
            "id": "x",
            "object": "chat.completion.chunk",
            "model": "gpt-test",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()

    stop = {"": "tool_calls" if says.calls else "stop", "length": "length", "refusal": "content_filter"}[says.stop]
    calls = [
        chunk({"tool_calls": [{"index": place, **part}]})
        for place, call in enumerate(says.calls)
        for part in (
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": ""}},
            *({"function": {"arguments": piece}} for piece in halves(call.arguments)),
        )
    ]
    usage = {"id": "x", "choices": [], "usage": OPENAI_USAGE}
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in words(says.text)),
        *calls,
        chunk({}, stop),
        f"data: {json.dumps(usage)}\n\n".encode(),
        b"data: [DONE]\n\n",
    ]


def anthropic_events(says: Says) -> list[bytes]:
    def event(kind: str, **more: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more}, ensure_ascii=False)}\n\n".encode()

    blocks: list[list[bytes]] = []

    def block(start: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
        index = len(blocks)
        blocks.append([
            event("content_block_start", index=index, content_block=start),
            *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
            event("content_block_stop", index=index),
        ])  # fmt: skip

    if says.thinks:
        block({"type": "thinking", "thinking": "", "signature": ""}, [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "c2ln"}])  # fmt: skip
    if says.text:
        block({"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in words(says.text)])
    for call in says.calls:
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *halves(call.arguments))]
        block({"type": "tool_use", "id": call.id, "name": call.tool, "input": {}}, pieces)
    stop = {"": "tool_use" if says.calls else "end_turn", "length": "max_tokens", "refusal": "refusal"}[says.stop]
    start = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [],
        "usage": {
            "input_tokens": 8,
            "cache_read_input_tokens": 2,
            "cache_creation_input_tokens": 1,
            "output_tokens": 1,
        },
    }
    return [
        event("message_start", message=start),
        event("ping"),
        *(one for events in blocks for one in events),
        event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 7}),
        event("message_stop"),
    ]


def google_events(says: Says) -> list[bytes]:
    def chunk(parts: list[dict[str, Any]], **more: Any) -> bytes:
        audio = [{"modality": "TEXT", "tokenCount": 10}, {"modality": "AUDIO", "tokenCount": 1}]
        usage = {
            "promptTokenCount": 11,
            "candidatesTokenCount": 4,
            "thoughtsTokenCount": 3,
            "cachedContentTokenCount": 2,
            "promptTokensDetails": audio,
        }
        body = {
            "candidates": [{"content": {"role": "model", "parts": parts}, **more}],
            "usageMetadata": usage,
            "modelVersion": "gemini-test",
            "responseId": "x",
        }
        return f"data: {json.dumps(body, ensure_ascii=False)}\r\n\r\n".encode()

    stop = {"": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}[says.stop]
    calls = [
        {
            "functionCall": {"id": call.id, "name": call.tool, "args": json.loads(call.arguments)},
            **({"thoughtSignature": "c2ln"} if says.thinks else {}),
        }
        for call in says.calls
    ]
    return [
        *(chunk([{"text": word}]) for word in words(says.text)),
        *(chunk([call]) for call in calls),
        chunk([], finishReason=stop),
    ]


def words(text: str) -> list[str]:
    return [f" {word}" if place else word for place, word in enumerate(text.split(" "))] if text else []


def halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


PROTOCOLS: dict[str, Callable[[Says], list[bytes]]] = {
    "/chat/completions": openai_events, "/v1/messages": anthropic_events, "/v1beta/models": google_events,
}  # fmt: skip


class ModelServer:
    """The server. `script` answers by the number of assistant messages in the request, or in order if it is a list."""

    def __init__(self, script: list[Answer] | Callable[[dict[str, Any]], Answer]) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.finished: list[int] = []
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_event: Callable[[int, int], None] = lambda _request, _event: None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[ModelServer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        path = head[0].split(" ")[1]
        number = len(self.requests)
        self.requests.append({**body, "path": path})
        self.headers.append(headers)
        answer = self.script(body) if callable(self.script) else self.script[min(number, len(self.script) - 1)]
        if isinstance(answer, Status):
            more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
            writer.write(
                f"HTTP/1.1 {answer.status} Error\r\n{more}content-length: {len(answer.body)}\r\nconnection: close\r\n\r\n".encode()
                + answer.body
            )
            await writer.drain()
            return
        await asyncio.sleep(answer.first_byte)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        )
        speak = next(events for start, events in PROTOCOLS.items() if start in path)
        for place, event in enumerate(speak(answer)):
            if place == answer.cut_after:
                return
            sent = b"data: {not json\n\n" if place == answer.garble else event
            writer.write(f"{len(sent):x}\r\n".encode() + sent + b"\r\n")
            await writer.drain()
            self.on_event(number, place)
            await asyncio.sleep(answer.pause)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        self.finished.append(number)
