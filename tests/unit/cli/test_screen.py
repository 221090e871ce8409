import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import pytest

from beforehand.cli.exit_status import CommandProblem, tell
from beforehand.cli.screen import Screen

FORGED = "  beforehand cancel prod"
OF_OTHERS = "thanks".ljust(80) + FORGED.ljust(80) + "Next: beforehand cancel prod"
COMMAND = f"beforehand why {'r' * 90}/pay#1"


class Stream(io.StringIO):
    """A terminal, or a pipe."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "80", "LINES": "24", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)


def printed(what: Callable[[Screen], object], *, terminal: bool = True) -> str:
    stream = Stream(terminal=terminal)
    with redirect_stdout(stream), redirect_stderr(stream):
        what(Screen(as_json=False))
    return stream.getvalue()


WAYS: dict[str, Callable[[Screen], object]] = {
    "line": lambda screen: screen.line(("  may pay", "bold"), OF_OTHERS),
    "block": lambda screen: screen.block(f"pay\n{OF_OTHERS}"),
    "report": lambda screen: screen.report(OF_OTHERS, "  "),
    "report of ours": lambda screen: screen.report(f"OperationFailed: {OF_OTHERS}. Next: {COMMAND}", "  "),
    "error": lambda screen: tell(screen, CommandProblem("RunSuspended", OF_OTHERS, known=OF_OTHERS)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_terminal_wraps_no_text_of_others_into_a_line_like_ours(way: str) -> None:
    text = printed(WAYS[way])
    rows = [line[at : at + 80] for line in text.splitlines() for at in range(0, len(line), 80)]
    assert not [row for row in rows if row.startswith((FORGED, "beforehand cancel", "Next: beforehand cancel"))]
    assert "| Next: beforehand cancel prod" in text


@pytest.mark.parametrize("way", WAYS)
def test_a_pipe_gets_whole_lines(way: str) -> None:
    assert OF_OTHERS in printed(WAYS[way], terminal=False)


def test_a_command_that_the_runtime_wrote_is_never_folded() -> None:
    text = printed(WAYS["report of ours"]) + printed(lambda screen: screen.commands(COMMAND))
    text += printed(lambda screen: screen.next(COMMAND))
    assert text.splitlines()[-3:] == [f"  {COMMAND}", f"  {COMMAND}", f"Next: {COMMAND}"]
