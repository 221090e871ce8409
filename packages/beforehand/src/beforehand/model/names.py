"""Normalizes the names of people: names that look alike compare equal, however they were typed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final


def plain_name(name: str) -> str:
    """One form for what can be typed in several: case, width and outer spaces do not distinguish people."""
    return unicodedata.normalize("NFKC", name).strip().casefold()


def same_person(one: str, other: str) -> bool:
    """True if two names are equal or look equal: with letters of another script, or signs that are not drawn."""
    return _as_read(one) == _as_read(other)


def _as_read(name: str) -> str:
    if name.isascii() and name.isprintable():
        return plain_name(name)
    drawn = "".join(sign for sign in _BLANK.sub("", name) if unicodedata.category(sign) not in {"Cf", "Cc"})
    return plain_name(read_as(plain_name(drawn)))


def shows_something(text: str) -> bool:
    """True if a reader sees a letter, digit or symbol: not only spaces, marks and signs that are not drawn."""
    return any(unicodedata.category(sign)[0] in "LNPS" for sign in _BLANK.sub("", text))


_BLANK: Final = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
"""Letters and marks that are not drawn (Unicode's Default_Ignorable_Code_Point), an empty Braille cell, no notehead."""


def is_among(name: str, names: Iterable[str]) -> bool:
    """True if a person of that name is among these."""
    return any(same_person(name, other) for other in names)


# --- letters that look like others ----------------------------------------------------------------------------------
# The table is that of Unicode (UTS #39, confusables), from the package `confusable-homoglyphs`. It is read the first
# time that a text is not plain ASCII.


SEARCHED: Final = 100_000
"""How many characters of a text are searched; a remark says how many were not."""
TOLD: Final = 3
"""How many words are named; a remark counts the others."""
_WORD: Final = re.compile(r"\w+")
_LETTER: Final = re.compile(r"[^\W\d_]")
_LONG: Final = 40
# Scripts that are written beside Latin letters in one word (UTS #39, highly restrictive).
_BESIDE_LATIN: Final = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO"})
_MIXED: Final = frozenset({"GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "DESERET", "LISU", "GEORGIAN"})


@cache
def _table() -> Mapping[str, str]:
    """The ASCII letter or digit that each other sign looks like."""
    from confusable_homoglyphs import confusables  # type: ignore[import-untyped]  # noqa: PLC0415 - it has no types, and reading its table takes long

    data: Mapping[str, list[dict[str, str]]] = confusables.confusables_data
    found: dict[str, str] = {}
    for sign, others in data.items():
        plain = [one["c"] for one in others if len(one["c"]) == 1 and one["c"].isascii() and one["c"].isalnum()]
        if plain and len(sign) == 1 and not sign.isascii():
            found[sign] = max(plain)  # a small letter, where there is one: they come last
    return found


def read_as(text: str) -> str:
    """The text as it is read: every sign that looks like a plain letter or digit is that one."""
    if text.isascii():
        return text
    return "".join(_table().get(sign, sign) for sign in text)


def foreign(text: str) -> Mapping[int, str]:
    """The places of letters that are not what they look like, each with what it is.

    That is a letter of another script in a word of Latin ones, a sign that looks like a Latin one among them, and each
    letter of a non-Latin word that reads as a Latin one, unless the text is written in that script.
    """
    if text.isascii():
        return {}
    words = [found for found in _WORD.finditer(text) if not found[0].isascii()]
    own = {script for word in words for script in _own_scripts(word[0])}
    return {place: why for word in words for place, why in _foreign_in(word[0], word.start(), own)}


def remarks(text: str) -> tuple[str, ...]:
    """Warnings for a reader of this text: one sentence for each word with such letters."""
    if text.isascii():
        return ()
    places = foreign(text[:SEARCHED])
    strange: dict[str, str] = {}
    for word in _WORD.finditer(text[:SEARCHED]):
        here = [place for place in range(word.start(), word.end()) if place in places] if places else []
        if here:
            strange.setdefault(word[0], places[here[0]])
    found = [f"{_shown(word)!r} contains {why}" for word, why in list(strange.items())[:TOLD]]
    if len(strange) > TOLD:
        found.append(f"{len(strange) - TOLD} more words contain letters that look like others")
    if hidden := _hidden(text[:SEARCHED]):
        found.append(hidden)
    if len(text) > SEARCHED:
        found.append(f"{len(text) - SEARCHED:,} more characters were not searched for letters that look like others")
    return tuple(found)


def _foreign_in(word: str, start: int, own: set[str]) -> Iterator[tuple[int, str]]:
    table = _table()
    scripts = [_script(sign) for sign in word]
    latin = any(script == "LATIN" and sign.isascii() for sign, script in zip(word, scripts, strict=True))
    letters = [sign for sign in word if sign.isalpha()]
    posing = not latin and bool(letters) and all(sign in table for sign in letters)
    usual = next((script for script in scripts if script in _MIXED), "")
    for place, (sign, script) in enumerate(zip(word, scripts, strict=True)):
        if sign.isascii() or not script:
            continue
        if latin and (script in _MIXED or sign.isdecimal() or (sign in table and script not in _BESIDE_LATIN)):
            yield start + place, f"{_named(sign, script)} among Latin letters"
        elif posing and script not in own:
            yield start + place, f"{_named(sign, script)} and reads as {_shown(read_as(word))!r}"
        elif not latin and script in _MIXED and script != usual:
            yield start + place, f"{_named(sign, script)} among {usual.title()} letters"


def _own_scripts(word: str) -> set[str]:
    """The scripts of a word that no reader takes for another word."""
    table = _table()
    scripts = {_script(sign) for sign in word if sign.isalpha()}
    return scripts if len(scripts) == 1 and any(sign.isalpha() and sign not in table for sign in word) else set()


def _hidden(text: str) -> str:
    """A sentence about signs that turn the direction of a text around."""
    turning = sum(unicodedata.bidirectional(sign) in _TURNING for sign in text if not sign.isascii())
    return f"signs in it that change the direction of writing: {turning:,}" if turning else ""


_TURNING: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def _named(sign: str, script: str) -> str:
    return f"{script.title()} {sign!r} (U+{ord(sign):04X})"


def _shown(word: str) -> str:
    return word if len(word) <= _LONG else f"{word[:_LONG]}…"


@cache
def _script(sign: str) -> str:
    """The script of a letter or digit, by its name; empty for all other signs."""
    if not (_LETTER.match(sign) or sign.isdigit()):
        return ""
    return unicodedata.name(sign, "").partition(" ")[0]
