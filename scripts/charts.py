"""Charts as small SVG files, drawn by hand so that the same figures give the same bytes.

Each chart stands on a card of its own and follows the reader's light or dark scheme. The colours are those of M. Okabe
and K. Ito ("Color universal design", 2008), which people who see colours differently can tell apart; lines differ in
their dashes as well.
"""

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

COLOURS: Final = ("#0072B2", "#56B4E9", "#999999", "#E69F00", "#009E73", "#D55E00", "#CC79A7")
DASHES: Final = ("", "2 3", "1 4", "7 3", "", "4 2", "9 3 2 3")
WIDTH: Final = 760

STYLE: Final = """<style>
.card{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d8dee4}.edge{stroke:#8c959f}
@media (prefers-color-scheme: dark){
.card{fill:#1c2128;stroke:#444c56}.text{fill:#e6edf3}.faint{fill:#9da7b3}.grid{stroke:#373e47}.edge{stroke:#768390}}
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif}
.title{font-size:14px;font-weight:600}.small{font-size:11px}
</style>"""


class Line(NamedTuple):
    """One line of a panel: its name, its colour by number, and its points from left to right."""

    name: str
    colour: int
    values: Sequence[float | None]


class Panel(NamedTuple):
    """One small chart: a title, the marks below it from left to right, and its lines. `mark`: where the default is."""

    title: str
    ticks: Sequence[str]
    lines: Sequence[Line]
    mark: int | None = None
    top: float | None = None
    bottom: float = 0.0


class Bar(NamedTuple):
    """One bar of stacked parts, and what is said behind it."""

    name: str
    parts: Sequence[float]
    said: str


def bars(title: str, names: Sequence[str], rows: Sequence[Bar], unit: str) -> str:
    """Horizontal stacked bars, one below the other."""
    left, right, top, step = 150, 130, 70, 32
    height = top + step * len(rows) + 14
    most = max(sum(row.parts) for row in rows)
    scale = (WIDTH - left - right) / most
    drawn = [_text(20, 28, title, "title text"), *_legend(names, 20, 50)]
    for number, row in enumerate(rows):
        y, x = top + number * step, float(left)
        drawn.append(_text(left - 8, y + 16, row.name, "text", "end"))
        for colour, part in enumerate(row.parts):
            drawn.append(
                f'<rect x="{x:.1f}" y="{y}" width="{part * scale:.1f}" height="22" fill="{COLOURS[_PARTS[colour]]}"/>'
            )
            x += part * scale
        drawn.append(_text(x + 6, y + 16, row.said, "faint small"))
    return _card(height, drawn, f"{title}, in {unit}")


_PARTS: Final = (5, 0, 3, 2)


def panels(title: str, shown: Sequence[Panel], columns: int, height: int = 150) -> str:
    """Small charts beside and below each other, with one legend for all of them."""
    names = list(dict.fromkeys((line.name, line.colour) for panel in shown for line in panel.lines))
    width = (WIDTH - 20) / columns
    legend = _keys(names, 20, 52)
    top = 52 + 18 * (1 + (len(names) - 1) // 4) + 6
    drawn = [_text(20, 28, title, "title text"), *legend]
    for number, panel in enumerate(shown):
        x, y = 10 + width * (number % columns), top + (height + 62) * (number // columns)
        drawn.extend(_panel(panel, (x + 42, y + 24), (width - 62, height)))
    rows = (len(shown) + columns - 1) // columns
    return _card(top + (height + 62) * rows + 4, drawn, title)


def _panel(panel: Panel, corner: tuple[float, float], size: tuple[float, float]) -> list[str]:
    (x, y), (width, height) = corner, size
    values = [value for line in panel.lines for value in line.values if value is not None]
    top = panel.top if panel.top is not None else _round_up(max(values))
    span = top - panel.bottom
    drawn = [_text(x - 32, y - 8, panel.title, "text small")]
    for part in range(5):
        level = y + height - height * part / 4
        drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x + width:.1f}" y1="{level:.1f}" y2="{level:.1f}"/>')
        drawn.append(_text(x - 5, level + 4, f"{panel.bottom + span * part / 4:g}", "faint small", "end"))
    count = max(1, len(panel.ticks) - 1)
    places = [x + width * number / count for number in range(len(panel.ticks))]
    if panel.mark is not None:
        at = places[panel.mark]
        drawn.append(
            f'<line class="edge" stroke-dasharray="2 2" x1="{at:.1f}" x2="{at:.1f}" y1="{y}" y2="{y + height}"/>'
        )
    drawn.extend(
        _text(at, y + height + 16, tick, "faint small", "middle") for at, tick in zip(places, panel.ticks, strict=True)
    )
    scale = panel.bottom, span
    return [*drawn, *(_polyline(line, (x, y), (width, height), scale) for line in panel.lines)]


def _polyline(line: Line, corner: tuple[float, float], size: tuple[float, float], scale: tuple[float, float]) -> str:
    (x, y), (width, height), (bottom, span) = corner, size, scale
    count = max(1, len(line.values) - 1)
    points = " ".join(
        f"{x + width * number / count:.1f},{y + height - height * min(1.0, max(0.0, (value - bottom) / span)):.1f}"
        for number, value in enumerate(line.values)
        if value is not None
    )
    dash = f' stroke-dasharray="{DASHES[line.colour]}"' if DASHES[line.colour] else ""
    return f'<polyline fill="none" stroke="{COLOURS[line.colour]}" stroke-width="2"{dash} points="{points}"/>'


def _legend(names: Sequence[str], x: float, y: float) -> list[str]:
    drawn: list[str] = []
    for number, name in enumerate(names):
        at = x + number * 180
        drawn.append(f'<rect x="{at}" y="{y - 10}" width="12" height="12" fill="{COLOURS[_PARTS[number]]}"/>')
        drawn.append(_text(at + 18, y, name, "faint small"))
    return drawn


def _keys(names: Sequence[tuple[str, int]], x: float, y: float) -> list[str]:
    drawn: list[str] = []
    for number, (name, colour) in enumerate(names):
        at, level = x + (number % 4) * 182, y + 18 * (number // 4)
        dash = f' stroke-dasharray="{DASHES[colour]}"' if DASHES[colour] else ""
        place = f'x1="{at}" x2="{at + 24}" y1="{level - 4}" y2="{level - 4}"'
        drawn.append(f'<line {place} stroke="{COLOURS[colour]}" stroke-width="2"{dash}/>')
        drawn.append(_text(at + 30, level, name, "faint small"))
    return drawn


def _text(x: float, y: float, said: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'


def _card(height: float, drawn: Sequence[str], about: str) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(about, quote=True)}">'
    )
    card = f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8"/>'
    return "\n".join([head, STYLE, card, *drawn, "</svg>", ""])


def _round_up(value: float) -> float:
    """A round number above the value, so that four parts of it are round as well."""
    size = 1e-6
    while True:
        for step in (1, 2, 4, 6, 8):
            if size * step >= value:
                return size * step
        size *= 10
