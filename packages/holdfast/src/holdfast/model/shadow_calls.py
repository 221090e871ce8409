"""Shadow calls: a further model is asked the question of a decision, for comparison. Its answer is never used.

The ledger holds them, because no run waits for them: one entry when the model is asked, one with its answer. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias, cast

import msgspec

from holdfast.model.ids import operation_id
from holdfast.model.outcome import EXCEEDED, UNPRICED
from holdfast.model.records.common import NOTHING, Raw
from holdfast.model.usage import CallCost, Usage

CALLS: Final = "shadow-calls"
ANSWERS: Final = "shadow-answers"
"""The ledger streams of shadow calls: what was asked, and what was answered. A call has the same key in both."""
Agreement: TypeAlias = Literal["same", "arguments", "words", "differ"]
"""`same`: the same calls with the same arguments, or the same answer without a call. `arguments`: calls of the same
tools with other arguments. `words`: both answer without a call, in other words. `differ`: calls of other tools, or a
call where the other answers without one."""
ENDED: Final = "run_ended"
LIMITED: Final = "limit_reached"
NOT_ASKED: Final = (EXCEEDED, UNPRICED, ENDED, LIMITED)
"""The classes of shadow calls that were not made: no budget had room, the price was unknown, the run had ended, or a
limit of the model was reached."""
_NAMES: Final = ("tool", "tool_name", "name")
_ARGUMENTS: Final = ("arguments", "args")
_FORMS_OF_PROVIDERS: Final = frozenset({"native", "additional_kwargs", "response_metadata", "invalid_tool_calls"})
"""Parts of an answer that repeat its calls in another form."""


class ShadowAsked(msgspec.Struct, frozen=True):
    """A model that is asked beside a decision, and the process that asks it."""

    run: str
    step: str
    agent: str
    model: str
    worker: str

    @property
    def call(self) -> str:
        """The name of the call in records of its run, which reserve and settle what it may use of budgets."""
        return f"{self.step} {self.model}"

    @property
    def key(self) -> str:
        """The key of both entries: no model is asked a second time beside the same decision."""
        return operation_id(self.run, self.call)


class ShadowAnswered(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a shadow call: the answer as JSON, or the reason why there is none, with its class.

    `price` is what it cost, and the basis, under a budget in a currency.
    """

    run: str
    step: str
    agent: str
    model: str
    ms: int
    usage: Usage
    answer: Raw = NOTHING
    reason: str = ""
    code: str = ""
    price: CallCost | None = None


def agreement(used: object, shadow: object) -> Agreement:
    """How far two answers agree. Both are plain JSON."""
    ours, theirs = sorted(_calls_in(used)), sorted(_calls_in(shadow))
    if not ours and not theirs:
        return "same" if _said(used) == _said(shadow) else "words"
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        return "differ"
    return "same" if ours == theirs else "arguments"


def _calls_in(answer: object) -> Iterator[tuple[str, str]]:
    """The calls in an answer of the ready loop or of an agent framework: the tool, and its arguments as sorted JSON."""
    if not isinstance(answer, dict):
        for one in cast("list[object]", answer) if isinstance(answer, list) else ():
            yield from _calls_in(one)
        return
    parts = cast("dict[str, object]", answer)
    name = next((named for one in _NAMES if isinstance(named := parts.get(one), str)), None)
    arguments = next((parts[one] for one in _ARGUMENTS if one in parts), "{}" if "tool" in parts else None)
    if name is not None and arguments is not None:
        yield name, _sorted_json(arguments)
        return
    for key, part in parts.items():
        if key not in _FORMS_OF_PROVIDERS:
            yield from _calls_in(part)


def _sorted_json(arguments: object) -> str:
    """Arguments in one form; providers state them as text or as an object."""
    plain = arguments
    if isinstance(arguments, str):
        try:
            plain = msgspec.json.decode(arguments or "{}")
        except msgspec.DecodeError:
            return arguments
    return msgspec.json.encode(plain, order="sorted").decode()


def _said(answer: object) -> object:
    """The part of an answer that is compared: its words, where it has a text."""
    text: object = None
    if isinstance(answer, dict):
        text = cast("dict[str, object]", answer).get("text")
    if isinstance(text, str):
        return text.split()
    return cast("object", answer)  # type: ignore[redundant-cast]  # pyright needs it
