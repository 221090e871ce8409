"""Output of a command: one JSON document, or text that is easy to read at 80 columns."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.cli.config import located, located_report
from beforehand.cli.ink import Ink
from beforehand.inspect.text import marked, safe, safe_json, short, split_report

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.measure import Measurement
    from rich.text import Text

MARKS: Final = {"ok": "✓", "failed": "✗", "unknown": "?", "open": "…", "asks": "?", "off": "-", "info": "·"}
PLAIN_MARKS: Final = {"ok": "+", "failed": "x", "unknown": "?", "open": ".", "asks": "?", "off": "-", "info": "."}
STYLES: Final = {
    "ok": "green", "failed": "red", "unknown": "bold yellow", "open": "cyan", "asks": "bold yellow", "off": "dim",
    "info": "dim",
}  # fmt: skip


class Screen:
    """Standard output for the result, standard error for all remarks."""

    def __init__(self, *, as_json: bool, journal: str = "") -> None:
        self.as_json: Final = as_json
        self._journal: Final = journal
        self.document_written = False
        self._ink: Final = Ink(sys.stdout)

    @cached_property
    def out(self) -> Console:
        """The console of standard output."""
        return console()

    @cached_property
    def err(self) -> Console:
        """The console of standard error."""
        return console(stderr=True)

    def document(self, value: object) -> None:
        """The one JSON document of this command."""
        self.document_written = True
        text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
        sys.stdout.write(safe_json(text) + "\n")

    def wrote_json(self, value: object) -> bool:
        """Print `value` as the document where JSON was asked for; False where a person reads."""
        if self.as_json:
            self.document(value)
        return self.as_json

    def line(self, *parts: str | tuple[str, str]) -> None:
        """One line, made of texts and (text, style) pairs, never cut; a terminal that is narrower gets it folded."""
        texts = [(safe(part), "") if isinstance(part, str) else (safe(part[0]), part[1]) for part in parts]
        if sys.stdout.isatty() and 2 * sum(len(text) for text, _ in texts) > shutil.get_terminal_size().columns:
            folded(self.out, phrase(*texts))
        else:
            self._ink.line(texts)

    def columns(self, rows: Sequence[tuple[str, ...]]) -> None:
        """A line per row: the sign that its first cell names, then the others in columns.

        The last cell is cut at the width of a terminal, and whole in a pipe.
        """
        if not rows:
            return
        from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 - only what is laid out needs it

        signs = MARKS if "utf" in sys.stdout.encoding.lower() else PLAIN_MARKS
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None
        cells = [[safe(cell) for cell in row[1:]] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)][:-1]
        room = None if width is None else max(8, width - sum(widths) - 2 * len(widths) - 3)
        for row, (*first, last) in zip(rows, cells, strict=True):
            name, *rest = (set_cell_size(cell, size) for cell, size in zip(first, widths, strict=True))
            text = last if room is None else short(last, room)
            self.line((signs[row[0]], STYLES[row[0]]), "  ", (name, "bold"), "  ", "  ".join([*rest, text]).rstrip())

    def folded(self, rows: Sequence[Sequence[tuple[str, str]]]) -> None:
        """A line per row of (text, style) pairs, in columns; the last one is folded at the width of the terminal."""
        from rich.cells import cell_len  # noqa: PLC0415 - as above; its tables take longer to import than this to show

        cells = [[(safe(text), style) for text, style in row] for row in rows]
        widths = [max(cell_len(text) for text, _ in column) for column in list(zip(*cells, strict=True))[:-1]]
        room = max(8, shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths))
        for row in cells:
            *first, (last, style) = row
            for number, line in enumerate(folds(last, _room(cell_len(last), room))):
                padded = [
                    (text + " " * (size - cell_len(text)) + "  ", ink)
                    for (text, ink), size in zip(first, widths, strict=True)
                ]
                whole = "".join(text for text, _ in padded)
                shown = _FOLD + line if number else line
                self._ink.line([*padded, (shown, style)] if shown else [(whole.rstrip(), "")])
                first = [("", "")] * len(first)

    def show(self, what: RenderableType) -> None:
        """Something laid out. In a pipe no line ends in the spaces that fill a column."""
        if self.out.is_terminal:
            self.out.print(what)
            return
        with self.out.capture() as laid_out:
            self.out.print(what)
        for line in laid_out.get().splitlines():
            self.out.print(line.rstrip(), soft_wrap=True)

    def commands(self, *lines: str, indent: str = "  ") -> None:
        """Commands to type next, each on a line, with the option that names this journal where they need it."""
        for line in lines:
            self._ink.line([(safe(indent + self.located(line)), "dim")])

    def located(self, text: str) -> str:
        """`text` with the option that names this journal added to each command in it, where they need one."""
        return located(text, self._journal)

    def located_report(self, text: str) -> str:
        """A recorded reason of a run, with the commands located that the runtime wrote into it."""
        return located_report(text, self._journal)

    def next(self, step: str) -> None:
        """The next step, on one line."""
        self._ink.line([("Next: ", "dim"), (safe(self.located(step)), "")])

    def block(self, text: str) -> None:
        """Several lines, never cut; each is folded as in `line`."""
        for line in prose(text).split(allow_blank=True):
            folded(self.out, line)

    def report(self, text: str, *before: str | tuple[str, str]) -> None:
        """A recorded reason of a run. The commands that the runtime wrote behind it are located, and never folded."""
        facts, commands = split_report(text)
        if commands and sys.stdout.isatty():
            self.line(*before, marked(safe(facts)).rstrip())
            self.commands(commands)
        else:
            self.line(*before, marked(safe(self.located_report(text))))

    def note(self, *parts: str | tuple[str, str]) -> None:
        """A remark for the person at the terminal, on standard error; silent where a program reads."""
        if not self.as_json:
            texts = [self.located(p) if isinstance(p, str) else (self.located(p[0]), p[1]) for p in parts]
            self.err.print(phrase(*texts), soft_wrap=True)

    @contextmanager
    def progress(self, total: int | None) -> Generator[Callable[[str], None]]:
        """A bar on standard error if it is a terminal. What it gives advances the bar by one, with a text beside it."""
        if self.as_json or not self.err.is_terminal:
            yield lambda _: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - only on a terminal

        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=self.err, transient=True) as progress:
            bar = progress.add_task("", total=total)
            yield lambda text: progress.update(bar, advance=1, description=text)

    def mark(self, name: str) -> Text:
        """The sign of a state, in signs that this terminal can show."""
        signs = MARKS if "utf" in self.out.encoding.lower() else PLAIN_MARKS
        return phrase((signs[name], STYLES[name]))


_FOLD: Final = "| "
"""Begins each further line of a folded text, as in `marked`: a text of others has no line to itself."""


def _room(length: int, room: int) -> int:
    """The width at which a text of this length is folded: the mark takes a part of the room."""
    return room if length <= room else max(1, room - len(_FOLD))


def folds(text: str, room: int) -> list[str]:
    """The lines of a text that is folded between words, or within a word that is longer than a line."""
    from rich.cells import cell_len, chop_cells  # noqa: PLC0415 - as above

    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(longer) <= room:
            lines[-1] = longer
        else:
            parts = chop_cells(word, room) if cell_len(word) > room else [word]
            lines = [*lines, *parts] if lines[-1] else parts
    return lines


def folded(out: Console, line: Text, style: str = "") -> None:
    """A line in full. On a terminal that is narrower it is folded, and each further line is marked."""
    if not out.file.isatty() or line.cell_len <= out.width:
        out.print(line, style=style, soft_wrap=True)
        return
    for number, part in enumerate(line.wrap(out, _room(line.cell_len, out.width), overflow="fold")):
        out.print(phrase((_FOLD, "dim")) + part if number else part, style=style, soft_wrap=True)


def console(*, stderr: bool = False) -> Console:
    """A console that takes texts as they are: no markup, no guessing at colours."""
    from rich.console import Console  # noqa: PLC0415 - rich is slow to import, and --help does not need it

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def phrase(*parts: str | tuple[str, str]) -> Text:
    """Texts and (text, style) pairs in one; characters that a terminal would obey are spelled out."""
    from rich.text import Text  # noqa: PLC0415 - as above

    whole = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        whole.append(safe(text), style)
    return whole


def prose(text: str) -> Text:
    """Several lines as they are."""
    from rich.text import Text  # noqa: PLC0415 - as above

    return Text(safe(text, lines=True))


class _Cell:
    """A text in a table. Where it is folded, each further line is marked."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement  # noqa: PLC0415 - as above

        return Measurement.get(console, options, self._text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        lines = self._text.wrap(console, _room(self._text.cell_len, options.max_width), overflow="fold")
        yield lines[0]
        for line in lines[1:]:
            yield phrase((_FOLD, "dim")) + line


def grid(rows: Iterable[tuple[Text, ...]], widths: tuple[int | None, ...] = ()) -> RenderableType:
    """Columns without lines. A width fixes a column; the last one takes what is left and folds."""
    from rich.table import Table  # noqa: PLC0415 - as above

    listed = list(rows)
    table = Table.grid(padding=(0, 2, 0, 0))
    for index in range(len(listed[0]) if listed else 0):
        width = widths[index] if index < len(widths) else None
        table.add_column(width=width, overflow="fold")
    for row in listed:
        table.add_row(*map(_Cell, row))
    return table
