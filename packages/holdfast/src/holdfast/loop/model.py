"""`Model`: the interface of a language model, and the values that it takes and returns. They know no provider.

A client translates a `ModelRequest` to its provider's protocol, and the answer to a `ModelReply`. Write one of your own
as any object with `answer`; `holdfast.testing.services.ScriptedModel` is one without a network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from holdfast.errors import ModelError
from holdfast.knowledge.production_loop import Usage
from holdfast.model.ids import can_name

Stop: TypeAlias = Literal["end", "calls", "length", "refusal"]
"""Why a model ended its answer. `length`: its limit of tokens cut it. `refusal`: it, or its provider, declined."""
OnText: TypeAlias = Callable[[str], None]
"""Receives the text of an answer piece by piece while it is made. The pieces are provisional until the answer is."""


class ModelCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that a model chose: the provider's id of it, the tool, and the arguments as JSON text."""

    id: str
    tool: str
    arguments: str = "{}"


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation. Those of `tool` answer the call of the assistant's that has the id `answers`.

    `native` is the message in the form of the provider that made it: providers want back what they signed. A client
    ignores that of another provider.
    """

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    answers: str = ""
    tool: str = ""
    failed: bool = False
    native: dict[str, Any] = {}


class ModelRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The question to a model. `tools` are as `run.tools.schemas("json")` describes them.

    `returns` is the JSON schema that the text of the answer has to fit; empty for free text. `messages` come last, so
    that the record of a conversation that grows holds the new ones only.
    """

    instructions: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    returns: dict[str, Any] = {}
    max_tokens: int = 4096
    messages: tuple[ChatMessage, ...] = ()


class ModelReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of a model: text, calls, or both. `model` gave it; `why` says why a fallback was asked."""

    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    stop: Stop = "end"
    usage: Usage = Usage()
    model: str = ""
    why: str = ""
    native: dict[str, Any] = {}

    def as_message(self) -> ChatMessage:
        """The answer as a message of the conversation."""
        return ChatMessage("assistant", self.text, self.calls, native=self.native)


class Model(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """The name on record, such as the provider's name of the model."""
        ...

    async def answer(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """The answer to the request. Raises `ModelError`; it does not try again by itself."""
        ...


def user(text: str) -> ChatMessage:
    """A message of the user."""
    return ChatMessage("user", text)


def checked_reply(reply: ModelReply) -> ModelReply:
    """The reply, if its calls can be performed. Raises `ModelError` for one without a tool, or an id given twice."""
    seen: set[str] = set()
    for call in reply.calls:
        if not call.tool:
            raise _malformed("a call without the name of a tool")
        if call.id in seen:
            raise _malformed(f"two calls with the id {call.id!r}")
        seen.add(call.id)
    if reply.stop == "end" and not reply.text and not reply.calls:
        raise _malformed("no text and no call")
    return reply


def step_of(call: ModelCall, place: int) -> str:
    """The name of the branch that performs the call: its id, or its place in the answer where that names no step."""
    return call.id if can_name(call.id) else f"call-{place}"


def _malformed(found: str) -> ModelError:
    return ModelError(
        f"the model's answer has {found}",
        code="malformed",
        known="no call of it was performed",
        next_step="ask the model again, or another one: ModelLoop(fallbacks=(...,))",
    )
