"""What a model answers, and the tools that its host is given, in the same form for every host.

Each host's module (`tests/hosts/langchain.py`, ...) has `talk(script, offered, task)`, which holds the conversation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A call that the model chooses."""

    id: str
    tool: str
    arguments: Mapping[str, Any]


class Offered(NamedTuple):
    """A tool as the host is given it: a function, or a tool of Beforehand. Without a name it has its own."""

    function: Callable[..., Any]
    name: str | None
    asks: bool = False  # the host asks a person
    clauses: Mapping[str, Any] = {}
    schema: Mapping[str, Any] | None = None


class Script:
    """The answers of a model, one turn after the other; then it says what the tools returned.

    A turn is a list of calls, an exception, or anything that is no answer at all.
    """

    def __init__(self, *turns: Any) -> None:
        self.turns = turns
        self.asked = 0

    def answer(self, turn: int, ended: Sequence[str]) -> Any:
        """The calls of this turn, counted from 0, or the last text."""
        self.asked += 1
        if turn >= len(self.turns):
            return "; ".join(ended) or "nothing to do"
        if isinstance(self.turns[turn], Exception):
            raise self.turns[turn]
        return self.turns[turn]
