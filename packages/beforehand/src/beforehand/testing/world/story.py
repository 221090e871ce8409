"""The findings of an exploration, as text for a person: boundary, tool, what went wrong, what would prevent it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final
from unicodedata import east_asian_width

import msgspec

WIDTH: Final = 72
"""The longest line of a story, in columns: pytest puts eight more before each, and a terminal has eighty."""

TITLE: Final = 16
"""The width of the text before the first line: the name of the error."""

_FILLER: Final = "\0"

_ALIKE: Final = 8
"""The maximum number of named boundaries of the same kind."""


class Crash(msgspec.Struct, frozen=True):
    """A boundary at which a process died. The boundaries of a second crash are counted from the resumption."""

    boundary: int
    where: str

    def __str__(self) -> str:
        """Number and place."""
        return f"{self.boundary} ({self.where})"


class Finding(msgspec.Struct, frozen=True):
    """A crash, or a pair of crashes, that changes the effects in the world."""

    crashes: Sequence[Crash]
    what: str
    why: str = ""

    @property
    def boundary(self) -> int:
        """The boundary of the first crash, counted from 1."""
        return self.crashes[0].boundary

    @property
    def where(self) -> str:
        """The name of that boundary."""
        return self.crashes[0].where

    @property
    def place(self) -> str:
        """The boundaries, as a short text."""
        return " and then ".join(map(str, self.crashes))

    def __str__(self) -> str:
        """The finding as text for a person."""
        first, *others = self.crashes
        again = "".join(f", and again at boundary {other} of the resumed run" for other in others)
        lines = [wrapped(f"a crash at boundary {first}{again}:", "  ")]
        return "\n".join(lines + [wrapped(line, "    ") for line in (self.what, self.why) if line])


class Exploration(msgspec.Struct, frozen=True):
    """All boundaries of one run. `undisturbed` are the effects of the run without a crash.

    `reworded` lists effects whose wording, but not meaning, a crash changed. `pairs` is the number of pairs of crashes
    that were tried, of `pairs_in_all`. `sigkill` is true if the crashes were real, each in a process of its own.
    `unmet` lists the requested faults that no call triggered in the last run.
    """

    boundaries: int
    undisturbed: Sequence[str]
    findings: Sequence[Finding] = ()
    reworded: Sequence[str] = ()
    pairs: int = 0
    pairs_in_all: int = 0
    sigkill: bool = False
    unmet: Sequence[str] = ()

    def __str__(self) -> str:
        """The trials and findings, grouped if a crash does the same at several boundaries."""
        return self.report()

    def report(self, of: str = "") -> str:
        """The report as text, beginning with the name of what was explored."""
        first, *others = self._lines()
        return "\n".join([wrapped(f"{of}: {first}", title=TITLE) if of else wrapped(first), *others])

    def _lines(self) -> Iterator[str]:
        crash, count = "SIGKILL" if self.sigkill else "crash", len(self.findings)
        if not self.findings:
            always = f"the effects are always {_listed(self.undisturbed)}"
            yield f"{self.boundaries} boundaries, a {crash} at each: {always}"
        elif self.pairs:
            yield f"{count} of {self.pairs} pairs of crashes change what the world sees; no single crash does."
        else:
            yield f"{count} of {self.boundaries} boundaries change what the world sees."
        if self.findings:
            if self.sigkill:
                yield "Each crash was real: each process killed with SIGKILL."
            yield wrapped(f"Undisturbed, the effects are {_listed(self.undisturbed)}.")
        yield from (wrapped(f"In other words: {line}.") for line in self.reworded)
        yield from (wrapped(f"Requested, and no call ran into it: {fault}.") for fault in self.unmet)
        yield from self._pair_lines()
        yield from self._groups()

    def _pair_lines(self) -> Iterator[str]:
        if self.pairs_in_all and not self.pairs:
            yield f"No pair of crashes was tried: mend these first, {self.pairs_in_all} pairs are left."
        elif self.pairs < self.pairs_in_all:
            yield f"{self.pairs} of {self.pairs_in_all} pairs of crashes were tried, evenly spread."
        elif self.pairs:
            yield f"All {self.pairs} pairs of crashes were tried."

    def _groups(self) -> Iterator[str]:
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.what, finding.why), []).append(finding)
        for same in groups.values():
            yield ""
            yield str(same[0])
            if len(same) > 1:
                others = ", ".join(one.place for one in same[1 : 1 + _ALIKE])
                yield wrapped(f"the same at {others}{' and more' if len(same) > 1 + _ALIKE else ''}", "    ")


def wrapped(text: str, indent: str = "", *, title: int = 0) -> str:
    """In lines of at most `WIDTH` columns, the first shorter by `title`; a word that is longer is broken."""
    filled = [
        textwrap.fill(
            _two_columns(line), WIDTH, initial_indent=indent + " " * (0 if number else title),
            subsequent_indent=indent, break_on_hyphens=False,
        )
        for number, line in enumerate(text.splitlines() or [""])
    ]  # fmt: skip
    return "\n".join(filled)[title:].replace(_FILLER, "")


def _two_columns(text: str) -> str:
    """With a filler behind each character that is as wide as two."""
    return "".join(sign + _FILLER if east_asian_width(sign) in "WF" else sign for sign in text)


def _listed(effects: Sequence[str]) -> str:
    return ", ".join(effects) if effects else "none"
