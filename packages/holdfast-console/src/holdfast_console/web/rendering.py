"""The templates, and what they can say: times in words, marked text, values in full."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from holdfast.model.waits import after_deadline
from holdfast_console.web.assets import Assets
from holdfast_console.web.text import visible
from holdfast_console.web.values import arguments, pretty, written

_FURTHEST_MS: Final = 253_402_300_799_000  # the last second of the year 9999: no calendar of ours goes further
_SOON_MS: Final = 3_600_000
_UNITS: Final = ((86_400_000, "d", 3_600_000, "h"), (3_600_000, "h", 60_000, "min"), (60_000, "min", 60_000, ""))


class Templates:
    """Templates over one set of assets."""

    def __init__(self, assets: Assets) -> None:
        self._environment: Final = Environment(
            loader=PackageLoader("holdfast_console.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Callable[..., Any]] = {
            "visible": visible, "pretty": pretty, "iso": iso, "clock": clock, "ago": ago, "span": span,
            "urgency": urgency, "written": written, "after_deadline": after_deadline,
        }  # fmt: skip
        known: dict[str, Any] = {"asset": assets.address, "arguments": arguments}
        for name, function in filters.items():
            self._environment.filters[name] = function
        for name, function in known.items():
            self._environment.globals[name] = function

    def page(self, name: str, values: dict[str, Any], status: int = 200) -> HTMLResponse:
        """A page. Nobody keeps a copy of it."""
        text = self._environment.get_template(name).render(values)
        return HTMLResponse(text, status, {"cache-control": "no-store"})


def clock(ms: int) -> str:
    """A wall clock for people, in UTC."""
    return _moment(ms).strftime("%Y-%m-%d %H:%M UTC")


def iso(ms: int) -> str:
    """The same for the `datetime` of a `<time>`."""
    return _moment(ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(ms: int) -> str:
    """A length of time in its two largest units, which is as exact as somebody who plans a day wants it."""
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
