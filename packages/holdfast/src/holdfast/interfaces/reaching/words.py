"""What a notice says, before any channel puts it in its own form; and texts of others, made harmless.

A model or a tool may have written anything into a question. In a notice nothing of it can be clicked, hides anything,
or is obeyed by a mail program or a chat: what looks like an address is broken up, and says so.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import msgspec

from holdfast.inspect.text import safe, short
from holdfast.model.notices import Word
from holdfast.model.waits import Item as Kind

BROKEN_UP: Final = "Addresses in these texts are broken up with [.] and [:], so that nothing in them can be clicked."
LONGEST: Final = 1500
_DOTS: Final = "[.\u3002\uff0e\uff61]"
_DOT_IN_NAME: Final = re.compile(rf"(?<=[\w\])-]){_DOTS}(?=[^\W\d_]|xn--|\d+{_DOTS}\d+)|(?<=\d){_DOTS}(?=\d+{_DOTS}\d)")
_SCHEME: Final = re.compile(
    r"\b(mailto|tel|sms|callto|skype|xmpp|magnet|file|data|javascript|slack|msteams):", re.IGNORECASE
)
_WORDS: Final[dict[Word, str]] = {
    "new": "",
    "reminder": "Reminder: ",
    "escalated": "Nobody answered: ",
    "again": "Perhaps once more: ",
}
_ASKED: Final[dict[Kind, str]] = {
    "approval": "approval",
    "question": "question",
    "review": "review",
    "handoff": "run to take over",
}


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is asked. `facts` are names and values; `answer` is the command that answers it.

    `digest` is of exactly what is asked: the link in the notice is bound to it. `waits_on`: also after its deadline.
    """

    item: str
    kind: Kind
    word: Word
    asks: str
    digest: str
    facts: tuple[tuple[str, str], ...] = ()
    asked_ms: int = 0
    due_ms: int | None = None
    answer: str = ""
    waits_on: bool = False


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One notice for one channel. `more`: so many wait beside those that are listed. `test`: who asked for a trial."""

    at_ms: int
    lines: tuple[Line, ...] = ()
    more: int = 0
    test: str = ""


def title(letter: Letter) -> str:
    """What it is about, on one line; nothing of a model's text is in it."""
    if letter.test:
        return f"Holdfast: a test notice, asked for by {harmless(letter.test, 60)}"
    if len(letter.lines) + letter.more != 1:
        return f"Holdfast: {len(letter.lines) + letter.more} things wait for an answer"
    line = letter.lines[0]
    return f"Holdfast: {_WORDS[line.word]}{_ASKED[line.kind]} {harmless(line.item, 150)}"


def harmless(text: str, limit: int = LONGEST) -> str:
    """A text of somebody else on one line: without control or invisible signs, or what programs make links of."""
    line = safe(short(text, limit))
    line = _SCHEME.sub(r"\1[:]", line.replace("://", "[:]//"))
    return _DOT_IN_NAME.sub("[.]", line)


def when(line: Line) -> tuple[tuple[str, str], ...]:
    """Since when it waits, and until when."""
    since = (("Asked", moment(line.asked_ms)),) if line.asked_ms else ()
    return (*since, ("Deadline", moment(line.due_ms) if line.due_ms is not None else "none"))


def moment(ms: int) -> str:
    """A wall clock in milliseconds, in UTC, to the minute."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
