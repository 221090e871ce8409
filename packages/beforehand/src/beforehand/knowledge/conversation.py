"""`run.conversation()`: a conversation whose messages are appended once, and shown unchanged on replay.

A message is stored once, in the ledger. The run records which entry it became, and of each reading only what other
runs appended in between and what is proven by then: showing a model a history of a hundred messages adds none of them
to the journal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Final

import msgspec

from beforehand.agent.run_context import RunContext
from beforehand.errors import UsageError
from beforehand.model.ids import NAME_LIMIT, can_name
from beforehand.model.memory import Spoken, conversation_stream, view_of
from beforehand.model.values import json_form


class ConversationState:
    """The run's knowledge of one conversation: its entries by their numbers, and how far it has read."""

    def __init__(self) -> None:
        self.entries: Final[dict[int, Spoken]] = {}
        self.through = 0
        self.proven: list[str] = []


class History:
    """A conversation at one point of a run. Pass it to `run.decide`, which stores only its position.

    `messages` are those since the last compaction, oldest first, in the form in which they were appended. `summary`
    replaces earlier messages, and `proven` lists completed and pending effects from the records. Both are empty if no
    message was compacted. Together they are the `preface`.
    """

    def __init__(self, name: str, messages: list[tuple[int, Any]], through: int, summary: str, proven: str) -> None:
        self.name = name
        self.messages = [message for _, message in messages]
        self.summary = summary
        self.proven = proven
        self.through = through
        self.entries = tuple(number for number, _ in messages)

    @property
    def preface(self) -> str:
        """The text for a model before the messages; empty if the messages are the whole conversation."""
        return f"{self.proven}\n\nWhat was said before, in short:\n{self.summary}" if self.summary else ""

    def to_dict(self) -> dict[str, Any]:
        """The form in which a decision records this history: its position and a digest."""
        text = msgspec.json.encode([self.summary, self.messages], order="deterministic")
        return {"conversation": self.name, "through": self.through, "digest": hashlib.sha256(text).hexdigest()[:16]}


class Conversation:
    """One conversation. Several runs can share it; each keeps its own records."""

    def __init__(self, context: Callable[[], RunContext], name: str, state: ConversationState) -> None:
        own = name == context().run
        if not own and not can_name(name):
            raise UsageError(
                f"{name[:NAME_LIMIT]!r} cannot name a conversation",
                next_step=f"use 1 to {NAME_LIMIT} printable characters without / ~ and #",
            )
        self._context = context
        self._state = state
        self._of = "" if own else f":{name}"
        self.name = name

    async def append(self, message: Any, *, id: str = "") -> bool:  # noqa: A002 - the spelling users write
        """Append a message: any value with a JSON form, such as a mapping of role and content. True if it is new.

        The message is appended once, even if this code runs again after a crash. `id` is its id at the source (of a
        tool call, of a webhook). A second message with that id is not appended, whichever run appends it.
        """
        plain = msgspec.json.decode(msgspec.json.encode(message, enc_hook=json_form))
        if plain is None:
            raise UsageError("a message of a conversation cannot be None", next_step="append what was said")
        return await self._say(Spoken(self._context().run, "", plain), id)

    async def history(self) -> History:
        """The messages so far, of this run and of others. A replay returns the same messages."""
        state, context = self._state, self._context()
        answer: dict[str, Any] = await context.value(f"history{self._of}", lambda: self._read(context))
        state.entries.update({number: msgspec.convert(entry, Spoken) for number, entry in answer.get("new", [])})
        state.through = answer["through"]
        now = view_of(state.entries, state.through)
        if now.summary:
            state.proven = [*state.proven[: answer.get("as_before", 0)], *answer.get("then", [])]
        return History(
            self.name, list(now.messages), state.through, now.summary, "\n".join(state.proven) if now.summary else ""
        )

    async def compact(self, summary: str, history: History, *, keep: int = 0) -> None:
        """Replace the messages in `history` by `summary`, except the last `keep` of them.

        Messages that were appended after `history` was read are kept. Nothing is deleted. Every later history lists
        completed and pending effects in its `preface`, from the records, whatever the summary says. Keep a call of a
        tool together with its answer. Raises `UsageError` for an empty summary.
        """
        if not summary.strip() or keep < 0:
            raise UsageError("a compaction needs a summary", next_step="say in short what was said")
        covered = history.entries[: max(0, len(history.entries) - keep)]
        before = view_of(self._state.entries, self._state.through).covers
        await self._say(Spoken(self._context().run, "", None, summary, max((before, *covered))), "")

    # --- inside ------------------------------------------------------------------------------------------------

    async def _say(self, spoken: Spoken, key: str) -> bool:
        """Post it once: a process that resumes after a crash posts under the same name and finds the existing entry."""
        context = self._context()
        what = f"said{self._of}"
        step = context.next_step(what)
        spoken = msgspec.structs.replace(spoken, step=step)

        async def fresh() -> dict[str, Any]:
            entry = await context.post(conversation_stream(self.name), key or f"{spoken.run}/{step}", spoken)
            first = context.read(entry, Spoken)
            ours = (first.run, first.step) == (spoken.run, step)
            said = {} if first == spoken else {"said": msgspec.to_builtins(first)}
            return {"entry": entry.id, "ours": ours, **said}

        answer: dict[str, Any] = await context.value(what, fresh)
        entry = msgspec.convert(answer["said"], Spoken) if "said" in answer else spoken
        self._state.entries[answer["entry"]] = entry
        self._state.through = max(self._state.through, answer["entry"])
        return bool(answer["ours"])

    async def _read(self, context: RunContext) -> dict[str, Any]:
        """The messages of others since the last reading, and the change in what is proven."""
        state = self._state
        spoken = dict(await context.entries(conversation_stream(self.name), Spoken))
        new = {number: one for number, one in spoken.items() if number not in state.entries and one.run != context.run}
        through = max(spoken, default=0)
        answer: dict[str, Any] = {"through": max(through, state.through)}
        if new:
            answer["new"] = [[number, msgspec.to_builtins(one)] for number, one in new.items()]
        now = view_of({**spoken, **state.entries}, answer["through"])
        if now.summary:
            lines = (await context.receipts(*now.runs)).split("\n")
            same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(state.proven, lines, strict=False))))
            answer |= {"as_before": same, "then": lines[same:]}
        return answer
