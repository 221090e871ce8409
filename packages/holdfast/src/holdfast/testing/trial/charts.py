"""Charts as inline SVG: no script, no network, colours from the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from holdfast.testing.trial.figures import InputFigures

_WIDTH: Final = 640
_HEIGHT: Final = 260
_LEFT: Final = 48
_RIGHT: Final = 16
_TOP: Final = 14
_BOTTOM: Final = 36
_TICKS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


def curves(arms: Mapping[str, Sequence[float]], names: Mapping[str, str]) -> str:
    """pass^k over k, a line for each arm."""
    most = max((len(points) for points in arms.values()), default=1)
    said = "; ".join(
        f"{names[arm]}: {', '.join(f'{100 * share:.0f}%' for share in points)}" for arm, points in arms.items()
    )
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="pass^k for k from 1 to {most}. {escape(said)}">'
    ]
    for tick in _TICKS:
        y = _y(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * tick:.0f}%</text>')
    step = max(1, -(-most // 12))
    parts += [
        f'<text class="tick" x="{_x(k, most):.1f}" y="{_HEIGHT - 16}" text-anchor="middle">{k}</text>'
        for k in range(1, most + 1, step)
    ]
    parts.append(
        f'<text class="tick" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 2}" text-anchor="end">k repeats, all passed</text>'
    )
    parts += [_line(arm, points, most, names[arm]) for arm, points in arms.items()]
    return "".join([*parts, "</svg>"])


def bars(one: InputFigures, names: Mapping[str, str]) -> str:
    """The repeats of one input: a square each, filled if it passed."""
    rows: list[str] = []
    for number, (arm, passed) in enumerate(one.passed.items()):
        squares = "".join(
            f'<rect class="{arm if index < passed else "missed"}" x="{index * 14}" y="{number * 14}" width="11" '
            'height="11" rx="2"/>'
            for index in range(one.repeats)
        )
        rows.append(f"<g><title>{names[arm]}: {passed} of {one.repeats} passed</title>{squares}</g>")
    label = ", ".join(f"{names[arm]} {passed} of {one.repeats}" for arm, passed in one.passed.items())
    width, height = one.repeats * 14, len(one.passed) * 14
    return (
        f'<svg class="bars" style="width:{width}px" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}">{"".join(rows)}</svg>'
    )


def _line(arm: str, points: Sequence[float], most: int, name: str) -> str:
    placed = [(_x(k, most), _y(share)) for k, share in enumerate(points, start=1)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dots = "".join(
        f'<circle class="{arm}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(name)}, pass^{k}: {100 * share:.1f}%'
        "</title></circle>"
        for k, ((x, y), share) in enumerate(zip(placed, points, strict=True), start=1)
    )
    return f'<polyline class="{arm}" points="{path}"/>{dots}'


def _x(k: int, most: int) -> float:
    span = _WIDTH - _LEFT - _RIGHT - 24
    return _LEFT + 12 + (span * (k - 1) / (most - 1) if most > 1 else span / 2)


def _y(share: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - share)
