"""`ModelLoop`: ask a model, perform the calls that it chose, show it the outcomes, until it answers.

The loop is agent code over the public interface, about ten lines of it, so that you can own and replace it:

    chat = Chat(run, loop, text)
    while (reply := await chat.turn()).calls:
        await chat.perform(reply.calls)
    return reply.text

Each turn is one recorded decision, `turn/model#1`, `turn#2/model#1` and so on. The calls of one answer run at once,
each in a branch that has the model's id of the call. A replay asks no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import msgspec

from beforehand.agent.run import Decide, Run
from beforehand.agent.run_context import RunContext
from beforehand.errors import ArgumentError, LoopStopped, UsageError
from beforehand.loop.compaction import ChatHistory, Compaction, summary_request
from beforehand.loop.model import (
    NOT_ASKED,
    ChatMessage,
    Model,
    ModelCall,
    ModelReply,
    ModelRequest,
    answer_of,
    check_model,
    steps_of,
    user,
)
from beforehand.loop.route import Route
from beforehand.model.outcome import Outcome
from beforehand.model.parameters import parameters_schema, read_object
from beforehand.model.shell import to_type
from beforehand.model.values import codec_for
from beforehand.policies import Retry

T = TypeVar("T")
_VALUE = "value"


class LoopLimits(msgspec.Struct, frozen=True):
    """The limits of one conversation: its turns, the tokens of all turns, and the tokens of one answer.

    `corrections` is how often a model is asked again after an answer that was cut or does not fit. Then the loop stops.
    """

    turns: int = 50
    tokens: int = 0
    answer_tokens: int = 4096
    corrections: int = 3

    def __post_init__(self) -> None:
        if self.turns < 1 or self.answer_tokens < 1 or min(self.tokens, self.corrections) < 0:
            raise UsageError(
                f"the limits of a loop are turns={self.turns}, tokens={self.tokens}, "
                f"answer_tokens={self.answer_tokens}, corrections={self.corrections}",
                next_step="give at least one turn and one token of an answer; tokens=0 sets no limit",
            )


class ModelLoop(msgspec.Struct, frozen=True):
    """A model with instructions that runs in a loop: `await loop(run, text)` inside any agent.

    The model can be a `Route` of several. `tools` names the tools that the model can call; None means all tools of the
    agent. `retry` and `timeout` apply to one call of a model. `compaction` is the rule that replaces a long history by
    a summary and the receipts. `lessons` shows the model the lessons that people approved for the agent, behind the
    instructions.
    """

    model: Model
    instructions: str = ""
    tools: tuple[str, ...] | None = None
    limits: LoopLimits = LoopLimits()
    retry: Retry | None = None
    timeout: timedelta | None = None
    compaction: Compaction | None = Compaction()
    lessons: bool = True

    def __post_init__(self) -> None:
        check_model(self.model)
        if isinstance(self.model, Route):
            self.model.check_models()
        tools: object = self.tools
        if tools is not None and (isinstance(tools, str) or not _all_are(tools, str)):
            raise UsageError(
                f"ModelLoop(tools={tools!r}) is not a tuple of the names of tools",
                known=NOT_ASKED,
                next_step="give names, such as tools=('refund',); tools=None offers all tools of the agent",
            )

    async def __call__(self, run: Run, prompt: str | Sequence[ChatMessage]) -> str:
        """Return the model's last text. Raises `LoopStopped` at a limit, a refusal, or an unusable answer."""
        return await self._ended(Chat(run, self, prompt))

    async def ask(self, run: Run, prompt: str | Sequence[ChatMessage], returns: type[T]) -> T:
        """Run the loop for an answer of that type. The model receives the errors of an answer that does not fit."""
        if isinstance(cast("object", returns), (str, int, float, list, tuple, dict, type(None))):
            raise UsageError(
                f"ask(..., {returns!r}) names no type of the answer",
                known=NOT_ASKED,
                next_step="give a type, such as a dataclass or list[int]; for text: await loop(run, text)",
            )
        chat = Chat(run, self, prompt, returns)
        text = await self._ended(chat)
        return cast("T", chat.value(text))

    async def _ended(self, chat: Chat) -> str:
        while True:
            while (reply := await chat.turn()).calls:
                await chat.perform(reply.calls)
            if not await chat.tell_claims(reply.text):
                return reply.text


class Chat:
    """One conversation of a loop: its messages so far, and the next turn."""

    def __init__(
        self, run: Run, loop: ModelLoop, prompt: str | Sequence[ChatMessage], returns: type[Any] | None = None
    ) -> None:
        self._run = run
        self._loop = loop
        self._returns = returns
        if not isinstance(prompt, str) and not _all_are(prompt, ChatMessage):
            raise UsageError(
                f"a conversation begins with text or a list of ChatMessage, not with {prompt!r}",
                known=NOT_ASKED,
                next_step="give text, or messages such as [user('hello')]: from beforehand.loop import user",
            )
        self._schema()  # raises for a type that has no schema, before anything is asked
        self._history = ChatHistory([user(prompt)] if isinstance(prompt, str) else prompt)
        self.turns = 0
        self.tokens = 0
        self._corrections = 0
        self._told = ""
        self._section: RunContext | None = None
        self._instructions = loop.instructions

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation so far, in the form for the next request."""
        return self._history.messages

    async def turn(self) -> ModelReply:
        """Ask the model until it returns a usable answer: calls, or its last text. Raises `LoopStopped`."""
        while True:
            reply = await self._next_reply()
            problem = self._problem(reply)
            if problem is None:
                return reply
            self._corrections += 1
            if self._corrections > self._loop.limits.corrections:
                raise self._stopped("unusable", f"the model's answer is unusable: {problem}")
            self.messages.append(user(f"{problem} Answer again."))

    async def perform(self, calls: Sequence[ModelCall]) -> list[Outcome[Any]]:
        """Perform the calls of one answer at once, and append their outcomes to the conversation."""
        if self._section is None:
            raise UsageError(
                "perform() was called before turn()",
                known="no call was performed",
                next_step="perform the calls of a turn: reply = await chat.turn(); await chat.perform(reply.calls)",
            )
        named = list(zip(steps_of(calls), calls, strict=True))
        with self._section.inside():
            outcomes = await self._run.map(self._performed, named, id=lambda one: one[0])
        for call, outcome in zip(calls, outcomes, strict=True):
            failed = outcome.status != "succeeded"
            self.messages.append(ChatMessage("tool", outcome.as_text(), (), call.id, call.tool, failed))
        return outcomes

    async def tell_claims(self, text: str) -> bool:
        """Tell the model which effects the run claims with this last text and nothing proves; False if there are none.

        It is told once, and again after each reopening of the run. What it then answers is its answer.
        """
        assert self._section is not None, "a text is the answer of a turn"
        with self._section.inside():
            result = None if self._returns is None else self.value(text)
            missing = await RunContext.current().claims_to_tell(self._loop.tools, result, self._told)
        if missing:
            self._told = self._section.path
            self.messages.append(user(f"Not proven: {'; '.join(missing)}. Do it now, or say why it cannot be done."))
        return bool(missing)

    def value(self, text: str) -> Any:
        """The value of an answer as structured output. Raises `ArgumentError`, a `ValueError`, if it does not fit."""
        decoded: dict[str, Any] = read_object(text)
        if self._wrapped() and _VALUE not in decoded:
            raise ArgumentError(f"the object has no property {_VALUE!r}")
        try:
            return codec_for(self._returns).decode(msgspec.json.encode(decoded[_VALUE] if self._wrapped() else decoded))
        except (ValueError, RecursionError) as misfit:
            raise ArgumentError(str(misfit.__cause__ or misfit)) from misfit

    # --- inside ----------------------------------------------------------------------------------------------------

    async def _performed(self, named: tuple[str, ModelCall]) -> Outcome[Any]:
        _, call = named
        if self._loop.tools is None or call.tool in self._loop.tools:
            return await self._run.call(call.tool, call.arguments)
        # The agent may have the tool; this model may not use it. Recorded, as `run.call` records its refusals.
        refusal = {"reason": f"there is no tool {call.tool!r}; the tools are: {', '.join(self._loop.tools)}"}
        context = RunContext.current()
        found: dict[str, Any] = await context.value("refused", lambda: refusal)
        name = f"{context.run}/{context.path}{call.tool}"
        return Outcome("failed", name, call.tool, reason=found["reason"], code="unknown_tool")

    async def _next_reply(self) -> ModelReply:
        limits = self._loop.limits
        if self.turns >= limits.turns:
            raise self._stopped("turns", f"the limit of {_turns(limits.turns)} is reached")
        if limits.tokens and self.tokens >= limits.tokens:
            raise self._stopped("tokens", f"the conversation used {self.tokens} tokens of {limits.tokens}")
        self.turns += 1
        self._section = RunContext.current().section("turn")
        with self._section.inside():
            if self.turns == 1 and self._loop.lessons and (advice := await self._run.lessons().as_text()):
                self._instructions = f"{self._instructions}\n\n{advice}".lstrip()
            for message in await self._run.messages():
                self.messages.append(user(f"{message.sender or 'A person'} says: {message.text}"))
            reply = await self._asked()
        self.tokens += reply.usage.input_tokens + reply.usage.output_tokens
        cut = ChatMessage("assistant", reply.text or "(cut)")  # no calls: nothing answers them
        self.messages.append(cut if reply.stop == "length" else reply.as_message())
        if reply.stop == "refusal":
            raise self._stopped("refusal", f"the model refused: {reply.text or 'it gave no reason'}")
        return reply

    async def _asked(self) -> ModelReply:
        """The reply to the conversation, which is compacted first where the rule applies."""
        if self._loop.compaction is not None:
            await self._history.compact(self._run, self._loop.compaction, self._summary)
        context, model = RunContext.current(), self._loop.model
        step = context.next_step("model")

        async def asked(request: ModelRequest) -> ModelReply:
            with context.speaker(step) as on_text:
                return await answer_of(model, request, on_text)

        asked.__name__ = "model"
        tools, limit = self._run.tools.schemas("json", self._loop.tools), self._loop.limits.answer_tokens
        request = ModelRequest(self._instructions, tuple(tools), self._schema(), limit, tuple(self.messages))
        return await self._settings().decide(asked, request)

    def _settings(self) -> Decide:
        """The settings of one call of a model, for a turn and for a summary."""
        loop = self._loop
        asked = loop.model.models if isinstance(loop.model, Route) else (loop.model,)
        return self._run.options(retry=loop.retry, timeout=loop.timeout, model=asked)

    async def _summary(self, messages: tuple[ChatMessage, ...]) -> ModelReply:
        model = self._loop.model

        async def summary(messages: tuple[ChatMessage, ...]) -> ModelReply:
            return await answer_of(model, summary_request(messages), lambda _text: None)

        reply = await self._settings().decide(summary, messages)
        self.tokens += reply.usage.input_tokens + reply.usage.output_tokens
        return reply

    def _schema(self) -> dict[str, Any]:
        if self._returns is None:
            return {}
        try:
            schema = parameters_schema({_VALUE: self._returns}, {_VALUE})
        except ArgumentError as error:
            error.known = NOT_ASKED
            raise
        if self._wrapped():
            return schema
        return {**schema["$defs"][self._returns.__name__], "$defs": schema["$defs"]}

    def _wrapped(self) -> bool:
        """True if the value is a property of the answer: providers want an object on the outside."""
        assert self._returns is not None
        whole = parameters_schema({_VALUE: self._returns}, {_VALUE})
        definition = whole.get("$defs", {}).get(getattr(self._returns, "__name__", ""), {})
        return bool(definition.get("type") != "object")

    def _problem(self, reply: ModelReply) -> str | None:
        """The reason why the reply cannot be used; None where it can."""
        if reply.stop == "length":
            return f"Your answer was cut at {self._loop.limits.answer_tokens} tokens, and nothing of it was done."
        if reply.calls or self._returns is None:
            return None
        try:
            self.value(reply.text)
        except ArgumentError as misfit:
            return f"Your answer does not fit the schema: {misfit.message.removeprefix('(arguments): ')}."
        return None

    def _stopped(self, code: str, message: str) -> LoopStopped:
        return LoopStopped(
            f"run {self._run.id}: {message}",
            code=code,
            known=f"on record: {_turns(self.turns)}, and the outcome of every call",
            next_step=f"{_AFTER[code]}; {to_type('show', self._run.id)}",
        )


_CHANGED = "changed settings hold for new runs, since a resume of this one with them can raise ReplayDiverged"
_AFTER = {
    "turns": "raise LoopLimits(turns=) and resume the run, or catch LoopStopped",
    "tokens": "raise LoopLimits(tokens=) and resume the run, or catch LoopStopped",
    "refusal": f"catch LoopStopped, or ask another way or another model: {_CHANGED}",
    "unusable": f"catch LoopStopped, or raise answer_tokens= or simplify the type: {_CHANGED}",
}


def _turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"


def _all_are(values: object, kind: type) -> bool:
    return isinstance(values, Sequence) and all(isinstance(one, kind) for one in cast("Sequence[object]", values))
