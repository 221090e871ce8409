"""Input of commands: JSON text, files, standard input, JSONL and CSV with line numbers, dates and durations."""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, cast, get_type_hints

import click
import msgspec

from beforehand.control.input_checks import decode_json
from beforehand.errors import UsageError
from beforehand.policies import milliseconds, written_duration

if TYPE_CHECKING:  # `ps` reads a date with this module: it must not import the engine for that
    from beforehand.agent.agent import Agent

    AnyAgent = Agent[Any, Any]

_ODD_BYTES: Final = "surrogateescape"  # bytes that are not UTF-8 are reported line by line, and the rest still runs
_LINES: Final = (".jsonl", ".csv")
_NO_TEXT: Final = "it is not UTF-8 text"
_TIMES: Final = "write 12h, 7d, 2027-01-31 or 2027-01-31T12:00"
_YEARS_MS: Final = range(-62_135_596_800_000, 253_402_300_800_000)  # those of `datetime`
_TEXTUAL: Final[tuple[Any, ...]] = (str, Any, object)


class InputLine(msgspec.Struct, frozen=True):
    """One line of a file of inputs: JSON text, or the fault in it."""

    number: int
    text: bytes = b""
    problem: str = ""


def one_input(agent: AnyAgent, given: str | None) -> object:
    """The input of one run. Raises `UsageError` where it does not fit the agent."""
    if given is None:
        raise UsageError(
            f"{agent.name} needs an input",
            next_step="give JSON text, @file.json, - for standard input, or --inputs FILE",
        )
    try:
        return agent.parse_input(_bytes(given))
    except UsageError as error:
        if not _names_a_file(given):
            if agent.input_type is not str or given == "-" or given.startswith("@"):
                raise
            quoted = shlex.quote(msgspec.json.encode(given).decode())
            how = f"it takes text, quoted for JSON and for the shell: {quoted}"
            raise UsageError(error.message, next_step=how) from error
        how = f"--inputs {given}" if given.endswith(_LINES) else f"@{given}"
        raise UsageError(error.message, known=f"there is a file of that name: {given}", next_step=how) from error


def any_json(given: str) -> object:
    """JSON text, @file or -, as plain values. Raises `UsageError`."""
    try:
        return decode_json(_bytes(given))
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{given!r} is not JSON: {error}", next_step="""quote text for JSON and for the shell: '"like this"'"""
        ) from error


def any_object(given: str) -> dict[str, Any]:
    """The same, where it has to be an object. Raises `UsageError`."""
    value = any_json(given)
    if not isinstance(value, dict):
        raise UsageError(f"{given!r} is not a JSON object", next_step="""name what is different: '{"cents": 4000}'""")
    return cast("dict[str, Any]", value)


def lines_of(agent: AnyAgent, name: str) -> Iterator[InputLine]:
    """The lines of a file of inputs, read as they are needed. Raises `UsageError` if it cannot be read."""
    try:
        with (
            click.open_file(name, encoding="utf-8-sig", errors=_ODD_BYTES)
            if name == "-"
            else Path(name).open(encoding="utf-8-sig", errors=_ODD_BYTES) as file
        ):
            yield from _csv(agent, cast("TextIO", file)) if name.endswith(".csv") else _jsonl(cast("TextIO", file))
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}", next_step="name a .jsonl or .csv file") from error


def lines_in(name: str) -> int | None:
    """How many lines a file has, for the progress display; None for standard input."""
    if name == "-":
        return None
    with Path(name).open("rb") as file:
        found = sum(1 for line in file if line.strip())
    return max(0, found - 1) if name.endswith(".csv") else found


def _names_a_file(given: str) -> bool:
    try:
        return Path(given).is_file()
    except (OSError, ValueError):
        return False  # JSON text is often too long for a name


def _bytes(given: str) -> bytes:
    if given == "-":
        return sys.stdin.buffer.read()
    if given.startswith("@"):
        try:
            return Path(given[1:]).read_bytes()
        except OSError as error:
            raise UsageError(
                f"{given[1:]} cannot be read: {error.strerror}", next_step="name a file with JSON in it"
            ) from error
    return given.encode("utf-8", "surrogateescape")


def _jsonl(file: TextIO) -> Iterator[InputLine]:
    for number, text in enumerate(file, start=1):
        if text.strip():
            try:
                yield InputLine(number, text.encode())
            except UnicodeEncodeError:
                yield InputLine(number, problem=_NO_TEXT)


def _csv(agent: AnyAgent, file: TextIO) -> Iterator[InputLine]:
    """Each row as an object. Cells stay text where the input's field is text, else they are read as JSON."""
    reader = csv.DictReader(file)
    kinds = _fields(agent.input_type)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield InputLine(reader.line_num, problem=f"this is not CSV: {error}")
            continue
        if row is None:
            return
        if None in row or None in row.values():
            yield InputLine(
                reader.line_num,
                problem=f"it has another number of cells than the header ({len(reader.fieldnames or ())})",
            )
            continue
        cells = {name: _cell(text, kinds.get(name, str)) for name, text in row.items()}
        try:
            yield InputLine(reader.line_num, msgspec.json.encode(cells))
        except UnicodeEncodeError:
            yield InputLine(reader.line_num, problem=_NO_TEXT)


def _cell(text: str, kind: object) -> object:
    if kind in _TEXTUAL:
        return text
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _fields(kind: Any) -> dict[str, object]:
    try:
        return dict(get_type_hints(kind))
    except (NameError, TypeError):
        return {}


def read_moment(text: str, now_ms: int) -> int:
    """A moment to come, on the wall clock, in milliseconds. Raises `UsageError`."""
    return _moment(text, now_ms, 1)


def read_past(text: str, now_ms: int) -> int:
    """A moment that is over, likewise: `2h` is two hours ago. Raises `UsageError`."""
    return _moment(text, now_ms, -1)


def _moment(text: str, now_ms: int, direction: int) -> int:
    """From now, or a date or time, in UTC where no zone is given."""
    if (span := written_duration(text)) is not None:
        found = now_ms + direction * milliseconds(span)
    else:
        try:
            then = datetime.fromisoformat(text)
        except ValueError as error:
            raise UsageError(f"{text!r} is not a time", next_step=_TIMES) from error
        found = int((then if then.tzinfo is not None else then.replace(tzinfo=UTC)).timestamp() * 1000)
    if found not in _YEARS_MS:
        raise UsageError(f"the time {text!r} is not within the years 1 to 9999", next_step=_TIMES)
    return found
