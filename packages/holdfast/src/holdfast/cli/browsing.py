"""`holdfast inbox -i`: the inbox with keys, on any terminal of 80 columns. One key, one deed; no answer without a yes.

It draws plain lines and clears the screen between them, so it works in tmux, over a slow line, and in a log.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

from holdfast.cli.common import CommandCall
from holdfast.cli.dossier import show_dossier
from holdfast.cli.inputs import any_json, any_object, read_moment
from holdfast.cli.keys import Keys, typed_keys
from holdfast.cli.screen import Screen
from holdfast.control.service import Service
from holdfast.engine.environment import SystemClock
from holdfast.errors import HoldfastError, UsageError
from holdfast.inspect.text import safe, short
from holdfast.model.waits import Item as Kind
from holdfast.people import answers as a
from holdfast.people.dossier import Dossier, read_dossier
from holdfast.people.items import InboxItem, ItemFilter, items
from holdfast.people.loaded_item import refresh_item

PAGE: Final = 15
_WIDTH: Final = 78
_UP, _DOWN, _ENTER, _LEAVE = ("k", "\x1b[A"), ("j", "\x1b[B"), ("\r", "\n", "o"), ("q", "\x1b", "\x03", "\x04", "")
_KEYS: Final[Mapping[Kind, str]] = {
    "approval": "y yes  n no  e edit  t answer as the tool  a ask back",
    "question": "r reply",
    "handoff": "r reply  t take over",
    "shadow": "y it was right  n it was wrong",
    "unreadable": "",
    "review": "h happened  x did not  s send once more  c compensate  b abandon",
}
_KEYS_CONTRADICTED: Final = "h happened  x did not  c compensate"
_KEYS_HALTED: Final = "g go on  t take over  b call off"
_ALWAYS: Final = "d delegate  z snooze  u urgent  q back"


async def browse(call: CommandCall, wanted: ItemFilter, by: str) -> None:
    """Show the list, go up and down in it, open one and answer it, until somebody leaves. Raises `UsageError`."""
    if not sys.stdin.isatty():
        raise UsageError("-i needs a terminal", next_step="leave it out, or answer with holdfast answer")
    async with call.serving() as service:
        with typed_keys() as keys:
            await _Browser(call.screen, service, keys, by).go(wanted)


class _Browser:
    """One person at one terminal."""

    def __init__(self, screen: Screen, service: Service, keys: Keys, by: str) -> None:
        self._screen = screen
        self._service = service
        self._keys = keys
        self._by = by

    async def go(self, wanted: ItemFilter) -> None:
        """The list, until somebody leaves it."""
        at, said = 0, ""
        while True:
            found = await items(self._service.looking, wanted, now_ms=SystemClock().wall_ms())
            at = max(0, min(at, len(found) - 1))
            _draw(self._screen, found, at, said)
            said, key = "", await self._keys.next()
            if key in _LEAVE:
                return
            if key in _UP + _DOWN:
                at += -1 if key in _UP else 1
            elif key in _ENTER and found:
                said = await self._open(found[at].item)

    async def _open(self, item: str) -> str:
        """One item in full, and a key for each answer. What became of it, in a line."""
        about, now = await read_dossier(self._service, item)
        click.clear()
        show_dossier(self._screen, about)
        keys = _KEYS_HALTED if a.is_stopped_run(about.kind, item) else _KEYS[about.kind]
        keys = _KEYS_CONTRADICTED if about.contradicted else keys
        self._screen.line((f"{keys}  {_ALWAYS}", "bold"))
        key = await self._keys.next()
        try:
            with self._keys.lines():
                given = _meant(about, key)
                if given is None or not click.confirm(f"{_named(given)}, in the name of {self._by}?"):
                    return "Nothing was said."
            now = await refresh_item(self._service.looking, now)
            applied = await a.answer(self._service, now, given, by=self._by, shown=about.digest)
        except click.Abort:
            return "Nothing was said."
        except HoldfastError as error:
            return str(error)
        return f"{item}: {_named(given)}." + (f" {applied.note}." if applied.note else "")


def _draw(screen: Screen, found: Sequence[InboxItem], at: int, said: str) -> None:
    click.clear()
    first = max(0, min(at - PAGE // 2, len(found) - PAGE))
    for place, one in enumerate(found[first : first + PAGE], start=first):
        mark, style = (">", "bold") if place == at else (" ", "")
        line = f"{mark} {one.kind + ' ':<9}{short(safe(one.item), 30):<31}{safe(one.asks)}"
        screen.line((short_line(line), style))
    screen.line((f"{len(found)} items" if found else "Nothing needs you.", "dim"))
    if said:
        screen.line((said, "yellow"))
    screen.line(("j down  k up  enter open  q leave", "dim"))


def short_line(line: str) -> str:
    """Cut to the width of the list; its columns stay where they are."""
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def _named(given: a.Answer) -> str:
    return str(type(given).__struct_config__.tag).replace("_", " ")


def _meant(about: Dossier, key: str) -> a.Answer | None:
    """The answer that a key stands for, with what else has to be said; None for any other key."""
    match key:
        case "d":
            return a.Delegate(to=_text("To whom"))
        case "z":
            return a.Snooze(read_moment(_text("Until (2h, 1d)"), SystemClock().wall_ms()))
        case "u":
            return a.Escalate(why=_text("Why"))
        case _ if about.kind == "approval":
            return _verdict(key)
        case _ if about.kind == "question":
            return a.ReplyAnswer(_text(f"Reply ({about.expected})")) if key == "r" else None
        case _ if a.is_stopped_run(about.kind, about.item):
            return _halted(key)
        case _ if about.kind == "handoff":
            return _handed_over(about, key)
        case _ if about.kind == "shadow":
            return _afterwards(key)
        case _:
            return _review(key)


def _handed_over(about: Dossier, key: str) -> a.Answer | None:
    match key:
        case "r":
            return a.ReplyAnswer(_text(f"Reply ({about.expected})"))
        case "t":
            return a.TakeOver(_text("Note"))
        case _:
            return None


def _halted(key: str) -> a.Answer | None:
    match key:
        case "g":
            return a.Resume(_text("What was mended"))
        case "t":
            return a.TakeOver(_text("Note"))
        case "b":
            return a.Abandon(_text("Why"))
        case _:
            return None


def _afterwards(key: str) -> a.Answer | None:
    match key:
        case "y":
            return a.Right(_text("Note"))
        case "n":
            return a.Wrong(_text("Note"))
        case _:
            return None


def _verdict(key: str) -> a.Answer | None:
    match key:
        case "y":
            return a.Approve(_text("Note"))
        case "n":
            return a.Decline(_text("Why"))
        case "e":
            return a.Edit(any_object(_text("What is different, as JSON")))
        case "t":
            return a.StandIn(any_json(_text("What it would have returned, as JSON")))
        case "a":
            return a.AskBack(_text("What do you ask"))
        case _:
            return None


def _review(key: str) -> a.Answer | None:
    match key:
        case "h":
            return a.HappenedAnswer(_text("How do you know"))
        case "x":
            return a.DidNotHappenAnswer("give_up", _text("How do you know"))
        case "s":
            return a.DidNotHappenAnswer("retry", _text("How do you know that it did not happen"))
        case "c":
            return a.CompensateAnswer(_text("Why"))
        case "b":
            return a.Abandon(_text("Why"))
        case _:
            return None


def _text(what: str) -> str:
    answer: str = click.prompt(what, default="", show_default=False)
    return answer
