"""Texts for a page. Text of models, tools and strangers is data: every sign in it that could hide something is shown.

A reviewer approves what they see. So what a screen would obey or not draw at all (controls, bidirectional and
zero-width signs, false blanks) is spelled out, and a letter of another alphabet inside a word is marked.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import Any, Final, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from beforehand.inspect.model_text import said_text, seen_text
from beforehand.inspect.text import collapsed, cut, without_commands
from beforehand.model import names
from beforehand.model.waits import after_deadline
from beforehand_console.web.values import arguments, pretty, written

# Not drawn, or not what they look like: other, separators but the plain blank, and letters without ink.
_OTHER: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_INKLESS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(
    map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
_MARKS_IN_A_ROW: Final = 2


def visible(text: str, *, lines: bool = True) -> Markup:
    """The text as HTML, with nothing hidden in it. With `lines`, line ends and tabs stay what they are.

    Of a very long text the beginning is shown, with a remark on how much is left out.
    """
    text = collapsed(cut(text))
    if text.isascii() and text.isprintable():
        return escape(text)
    foreign = names.foreign(text)
    parts: list[str] = []
    marks = 0
    for place, sign in enumerate(text):
        marks = marks + 1 if unicodedata.combining(sign) else 0
        if lines and sign in "\n\t":
            parts.append(sign)
        elif is_hidden(sign) or marks > _MARKS_IN_A_ROW:
            parts.append(_marked("hidden", spelled(sign), sign))
        elif place in foreign:
            parts.append(_marked("foreign", sign, sign, f"{foreign[place]}: "))
        else:
            parts.append(str(escape(sign)))
    return Markup("".join(parts))  # noqa: S704 - every part is escaped above


def visible_json(text: str) -> str:
    """The same JSON, with everything that would be hidden or marked as an escape: for a field in which it is edited."""
    if (text := text.replace("\x7f", "\\u007f")).isascii():  # JSON may hold it as it is
        return text
    foreign = names.foreign(text)
    return "".join(
        json.dumps(sign)[1:-1] if place in foreign or (sign != "\n" and is_hidden(sign)) else sign
        for place, sign in enumerate(text)
    )


@lru_cache(maxsize=4096)
def is_hidden(sign: str) -> bool:
    """True if a reader would not see this sign, or take it for another."""
    return sign in _INKLESS or (sign != " " and unicodedata.category(sign) in _OTHER)


def spelled(sign: str) -> str:
    """A sign in letters, as JSON and Python spell it."""
    code = ord(sign)
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(sign)
    return known or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")


def _marked(kind: str, shown: str, sign: str, why: str = "") -> str:
    name = unicodedata.name(sign, "no name")
    return f'<mark class="{kind}" title="{escape(why)}U+{ord(sign):04X} {escape(name)}">{escape(shown)}</mark>'


# The files that pages are made of: few, small, read once, named by what is in them, so that browsers may keep them.


ROOT: Final = "/static/"
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Assets:
    """All files below `static`."""

    def __init__(self) -> None:
        self._by_name: Final[dict[str, str]] = {}
        self._by_address: Final[dict[str, tuple[bytes, str]]] = {}
        for file in (resources.files("beforehand_console.web") / "static").iterdir():
            stem, dot, ending = file.name.rpartition(".")
            body = file.read_bytes()
            address = f"{ROOT}{stem}.{hashlib.sha256(body).hexdigest()[:16]}.{ending}"
            self._by_name[file.name] = address
            self._by_address[address] = body, _TYPES[dot + ending]

    def address(self, name: str) -> str:
        """Where a file is found."""
        return self._by_name[name]

    def routes(self) -> list[Route]:
        """The routes that serve them."""
        return [Route(ROOT + "{name}", self._serve)]

    async def _serve(self, request: Request) -> Response:
        found = self._by_address.get(request.scope["path"])
        if found is None:
            raise HTTPException(404)
        body, kind = found
        return Response(body, headers={"cache-control": "public, max-age=31536000, immutable"}, media_type=kind)


# The templates, and what they can say: times in words, marked text, values in full.


_FURTHEST_MS: Final = 253_402_300_799_000  # the last second of the year 9999: no calendar of ours goes further
_SOON_MS: Final = 3_600_000
_UNITS: Final = ((86_400_000, "d", 3_600_000, "h"), (3_600_000, "h", 60_000, "min"), (60_000, "min", 60_000, ""))


class Templates:
    """Templates over one set of assets."""

    def __init__(self, assets: Assets) -> None:
        self._environment: Final = Environment(
            loader=PackageLoader("beforehand_console.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Callable[..., Any]] = {
            "visible": visible, "pretty": pretty, "iso": iso, "clock": clock, "ago": ago, "span": span,
            "urgency": urgency, "written": written, "after_deadline": after_deadline, "reported": without_commands,
            "said": said_text, "seen": seen_text,
        }  # fmt: skip
        known: dict[str, Any] = {"asset": assets.address, "arguments": arguments}
        for name, function in filters.items():
            self._environment.filters[name] = function
        for name, function in known.items():
            self._environment.globals[name] = function

    def page(self, name: str, values: dict[str, Any], status: int = 200) -> HTMLResponse:
        """A page that is never cached."""
        text = self._environment.get_template(name).render(values)
        return HTMLResponse(text, status, {"cache-control": "no-store"})


def clock(ms: int) -> str:
    """A wall clock for people, in UTC."""
    return _moment(ms).strftime("%Y-%m-%d %H:%M UTC")


def iso(ms: int) -> str:
    """The same for the `datetime` of a `<time>`."""
    return _moment(ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(ms: int) -> str:
    """A length of time in its two largest units, which is exact enough to plan a day."""
    for unit, name, smaller, small in _UNITS:
        if ms >= unit:
            rest = ms % unit // smaller
            return f"{ms // unit} {name}" + (f" {rest} {small}" if rest else "")
    return "less than a minute"


def ago(ms: int, now_ms: int) -> str:
    """How long ago a moment was, or how far ahead it is."""
    if abs(now_ms - ms) < 60_000:
        return "just now"
    return f"{span(now_ms - ms)} ago" if ms < now_ms else f"in {span(ms - now_ms)}"


def urgency(due_ms: int | None, now_ms: int) -> Literal["none", "later", "soon", "over"]:
    """How near a deadline is."""
    if due_ms is None:
        return "none"
    if due_ms <= now_ms:
        return "over"
    return "soon" if due_ms - now_ms <= _SOON_MS else "later"


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(min(max(ms, 0), _FURTHEST_MS) / 1000, UTC)
