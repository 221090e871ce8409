"""Lines in colour look as they did when a library made them, wherever they go."""

import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from beforehand.cli.ink import Ink
from beforehand.cli.screen import folds, phrase
from beforehand.inspect.text import safe

SIGNS = ("TERM", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM", "TTY_INTERACTIVE")
SURROUNDINGS = [
    {"TERM": "xterm"},
    {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
    {"TERM": "dumb"},
    {"TERM": "xterm", "NO_COLOR": "1"},
    {"TERM": "xterm", "NO_COLOR": ""},
    {"TERM": "xterm", "FORCE_COLOR": "1"},
    {"TERM": "xterm", "FORCE_COLOR": ""},
    {"TERM": "dumb", "FORCE_COLOR": "1"},
    {"TERM": "xterm", "TTY_COMPATIBLE": "0", "FORCE_COLOR": "1"},
    {"TERM": "xterm", "TTY_COMPATIBLE": "1", "FORCE_COLOR": ""},
]
STYLES = ["", "bold", "dim", "red", "green", "yellow", "cyan", "bold red", "bold yellow"]
PARTS = st.lists(st.tuples(st.text(max_size=90), st.sampled_from(STYLES)), max_size=4)


class Stream(io.StringIO):
    """A terminal, or something else."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("surroundings", SURROUNDINGS, ids=str)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=PARTS)
def test_a_line_is_what_rich_would_print(
    monkeypatch: pytest.MonkeyPatch, surroundings: dict[str, str], parts: list[tuple[str, str]], terminal: bool
):
    from rich.console import Console

    for sign in SIGNS:
        monkeypatch.delenv(sign, raising=False)
    for sign, value in surroundings.items():
        monkeypatch.setenv(sign, value)
    ours, theirs = Stream(terminal=terminal), Stream(terminal=terminal)
    Console(file=theirs, markup=False, highlight=False, emoji=False).print(phrase(*parts), soft_wrap=True)
    Ink(ours).line((safe(text), style) for text, style in parts)
    assert ours.getvalue() == theirs.getvalue()


def test_a_style_that_nobody_knows_is_an_error():
    with pytest.raises(KeyError):
        Ink(Stream(terminal=False)).line([("text", "pink")])


@pytest.mark.parametrize("room", [8, 13, 40])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "it happened: another one would be a second effect",
        "a-word-that-is-longer-than-a-line ok",
        "漢字 漢字漢字漢字漢字",
    ],
)
def test_a_text_is_folded_as_a_table_folds_it(text: str, room: int):
    table = Text(text).wrap(Console(width=room), room, overflow="fold")
    assert folds(text, room) == [line.plain.rstrip() for line in table]
