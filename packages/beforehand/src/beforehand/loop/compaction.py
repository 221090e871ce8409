"""Compaction: a long history is replaced by a summary and by the receipts of what was done.

The rule is part of the code, and each use of it is on record: which messages went, and what replaced them. The
receipts come from the records of the run, not from the model, so a call that is done or pending is never forgotten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from beforehand.agent.run import Run
from beforehand.agent.run_context import RunContext
from beforehand.errors import DecisionFailed, UsageError
from beforehand.loop.model import ChatMessage, ModelReply, ModelRequest, user

_SUMMARIZE: Final = (
    "Summarize the conversation for the one who continues it: the goal, what was decided and why, what is still to do. "
    "Leave out what was done: that is listed from the records."
)
_CHARACTERS_OF_A_TOKEN: Final = 4
Summarize: TypeAlias = Callable[[tuple[ChatMessage, ...]], Awaitable[ModelReply]]
"""Asks a model for a summary of the messages. Raises `DecisionFailed` where none gives one."""


class Compaction(msgspec.Struct, frozen=True):
    """The rule of compaction: above about `above` tokens, all messages except the last `keep` are summarized.

    A call and its outcome stay together, so slightly more than `keep` messages may stay.
    """

    above: int = 100_000
    keep: int = 10

    def __post_init__(self) -> None:
        if self.above < 1 or self.keep < 1:
            raise UsageError(
                f"Compaction(above={self.above}, keep={self.keep}) keeps nothing",
                next_step="give at least 1 of each, or compaction=None",
            )


class ChatHistory:
    """The messages of a conversation. After a compaction the first is its summary, which the rule does not count."""

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        self.messages = list(messages)
        self._summaries = 0

    async def compact(self, run: Run, rule: Compaction, summarize: Summarize) -> None:
        """Replace the first messages by a summary and the receipts, where the rule applies."""
        size = estimated_tokens(self.messages[self._summaries :])
        cut = _cut(self.messages, rule.keep)
        if size <= rule.above or cut <= self._summaries:
            return
        try:
            reply = await summarize(tuple(self.messages[:cut]))
            summary = "" if reply.stop == "refusal" else reply.text
        except DecisionFailed:
            summary = ""
        receipts = await run.digest()
        await RunContext.current().value(
            "compacted", lambda: {"above": rule.above, "keep": rule.keep, "tokens": size, "messages": cut}
        )
        first = user(f"{receipts}\n\nThe conversation until here, in short:\n{summary or '(no summary could be made)'}")
        self.messages, self._summaries = [first, *self.messages[cut:]], 1


def summary_request(messages: tuple[ChatMessage, ...]) -> ModelRequest:
    """The question for a summary of the messages."""
    return ModelRequest(messages=(*messages, user(_SUMMARIZE)))


def estimated_tokens(messages: Sequence[ChatMessage]) -> int:
    """The tokens of the messages, estimated by their characters: an estimate is the same on every replay."""
    characters = sum(
        len(message.text) + sum(len(call.tool) + len(call.arguments) for call in message.calls) for message in messages
    )
    return characters // _CHARACTERS_OF_A_TOKEN


def _cut(messages: list[ChatMessage], keep: int) -> int:
    """The number of messages to summarize: the first kept one answers no call."""
    at = max(0, len(messages) - keep)
    while at > 0 and messages[at].role == "tool":
        at -= 1
    return at
