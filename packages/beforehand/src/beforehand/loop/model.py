"""`Model`: the interface of a language model, and the values that it takes and returns. They know no provider.

A client translates a `ModelRequest` to its provider's protocol, and the answer to a `ModelReply`. Write one of your own
as any object with `answer`; `beforehand.testing.services.ScriptedModel` is one without a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from beforehand.errors import ModelError, UsageError
from beforehand.model.ids import can_name
from beforehand.model.usage import Usage

Stop: TypeAlias = Literal["end", "calls", "length", "refusal"]
"""Why a model ended its answer. `length`: its limit of tokens cut it. `refusal`: it, or its provider, declined."""
NOT_ASKED: Final = "the model was not asked"
OnText: TypeAlias = Callable[[str], None]
"""Receives the text of an answer piece by piece while it is made. The pieces are provisional until the answer is."""


class ModelCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that a model chose: the provider's id of it, the tool, and the arguments as JSON text."""

    id: str
    tool: str
    arguments: str = "{}"


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation. A message of `tool` answers the assistant's call with the id `answers`.

    `native` is the message in the form of the provider that made it, because providers require the parts that they
    signed. A client ignores the form of another provider.
    """

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    answers: str = ""
    tool: str = ""
    failed: bool = False
    native: dict[str, Any] = {}


class ModelRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to a model. `tools` are in the form of `run.tools.schemas("json")`.

    `returns` is the JSON schema that the text of the answer has to fit; it is empty for free text. `messages` come
    last, so that each record of a growing conversation holds only the new messages.
    """

    instructions: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    returns: dict[str, Any] = {}
    max_tokens: int = 4096
    messages: tuple[ChatMessage, ...] = ()


class ModelReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of a model: text, calls, or both. `model` names the model, and `why` the reason of a `Route`."""

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
        """The name in records, such as the provider's name of the model."""
        ...

    async def answer(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Return the answer to the request. Raises `ModelError`. A model does not retry by itself."""
        ...


async def answer_of(model: Model, request: ModelRequest, on_text: OnText) -> ModelReply:
    """The reply of the model, under its name. A reply that cannot be used has the name, too: its usage is recorded."""
    try:
        reply = checked_reply(await model.answer(request, on_text))
    except ModelError as error:
        if isinstance(error.reply, ModelReply):
            error.reply = msgspec.structs.replace(error.reply, model=error.reply.model or model.name)
        raise
    return msgspec.structs.replace(reply, model=reply.model or model.name)


def check_model(model: object) -> None:
    """Raise `UsageError` for a value that is not a `Model`."""
    if isinstance(model, type) or not callable(getattr(model, "answer", None)) or not hasattr(model, "name"):
        client = f"OpenAIChat({model!r})" if isinstance(model, str) else "OpenAIChat('MODEL')"
        raise UsageError(
            f"{model!r} is not a model: it has no name, or no answer()",
            known=NOT_ASKED,
            next_step=f"give a client, such as ModelLoop({client}), or an object of your own with both",
        )


def user(text: str) -> ChatMessage:
    """A message of the user."""
    return ChatMessage("user", text)


def unusable(message: str, reply: ModelReply, code: str, next_step: str) -> ModelError:
    """The error for an answer that cannot be used, with its usage."""
    error = ModelError(message, code=code, known="no call of it was performed", next_step=next_step)
    error.reply = reply
    return error


def checked_reply(reply: object) -> ModelReply:
    """The reply, if it can be used; a call without an id is named by its place. Raises `ModelError` otherwise."""
    if not isinstance(reply, ModelReply):
        raise ModelError(
            f"answer() must return a ModelReply, and it returned {type(reply).__name__}",
            code="malformed",
            known="no call was performed",
            next_step="correct the model's client",
        )
    try:
        msgspec.json.decode(msgspec.json.encode(reply), type=ModelReply)
    except (msgspec.MsgspecError, TypeError, ValueError) as misfit:  # a part of another type, text that is not Unicode
        raise _malformed(ModelReply(), f"a part that cannot be recorded: {misfit}") from misfit
    seen: set[str] = set()
    for call in reply.calls:
        if not call.tool:
            raise _malformed(reply, "a call without the name of a tool")
        if call.id and call.id in seen:
            raise _malformed(reply, f"two calls with the id {call.id!r}")
        seen.add(call.id)
    if reply.stop not in {"length", "refusal"} and not reply.text.strip() and not reply.calls:
        raise _malformed(reply, "no text and no call")
    if "" not in seen:
        return reply
    # The outcomes are matched to their calls by id, so each call needs one of its own.
    named = zip(reply.calls, steps_of(reply.calls), strict=True)
    calls = tuple(call if call.id else msgspec.structs.replace(call, id=step) for call, step in named)
    return msgspec.structs.replace(reply, calls=calls)


def steps_of(calls: Sequence[ModelCall]) -> list[str]:
    """The names of the branches that perform the calls of one answer: each call's id, where that can name a step.

    Another id is replaced by the call's place, with a number behind it where another call has that name. The names
    depend on the recorded answer alone, so that a replay gives the same.
    """
    ids = {call.id for call in calls}
    names: list[str] = []
    for place, call in enumerate(calls, 1):
        if can_name(call.id) and call.id not in names:
            names.append(call.id)
        else:
            numbered = (f"call-{place}" if number == 1 else f"call-{place}-{number}" for number in count(1))
            names.append(next(name for name in numbered if name not in ids and name not in names))
    return names


def _malformed(reply: ModelReply, found: str) -> ModelError:
    next_step = "ask the model again, or another one: ModelLoop(Route([...]))"
    return unusable(f"the model's answer has {found}", reply, "malformed", next_step)
