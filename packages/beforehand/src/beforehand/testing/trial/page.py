"""The report of a trial as one HTML file: no script, nothing fetched, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from beforehand.testing.trial.figures import Group, InputFigures
from beforehand.testing.trial.report import Report

NAMES: Final = {"plain": "without faults", "faults": "with faults"}
MOST_ROWS: Final = 500
"""The maximum number of inputs on the page; those that failed most come first, and the JSON has the rest."""

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d6dbe1; --card: #f6f8fa;
  --plain: #0b62c4; --faults: #c2410c; --missed: #dfe3e8; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --ink: #e8eaed; --soft: #9aa4af; --line: #343b44; --card: #1c2127; --plain: #6cb2ff;
    --faults: #ff9b5e; --missed: #343b44; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
p { margin: .25rem 0; max-width: 46rem; }
.soft { color: var(--soft); }
.bad { color: var(--bad); font-weight: 600; }
.cards { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.5rem 0; }
.card { flex: 1 1 15rem; background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1rem 1.25rem; }
.card b { display: block; font-size: 2rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.plain b { color: var(--plain); }
.faults b { color: var(--faults); }
svg { display: block; width: 100%; height: auto; }
svg.bars { max-width: 100%; }
.grid { stroke: var(--line); stroke-width: 1; }
.tick { fill: var(--soft); font: 12px system-ui, sans-serif; }
polyline { fill: none; stroke-width: 2.5; }
polyline.plain { stroke: var(--plain); }
polyline.faults { stroke: var(--faults); stroke-dasharray: 7 4; }
circle.plain, rect.plain { fill: var(--plain); }
circle.faults, rect.faults { fill: var(--faults); }
rect.missed { fill: var(--missed); }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem; margin: 0 .35rem 0 0; }
.key:not(:first-child) { margin-left: 1.25rem; }
.key.plain { background: var(--plain); }
.key.faults { background: var(--faults); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; min-width: 38rem; }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem .5rem 0; border-top: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; border-top: 0; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: .85rem/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { margin: .35rem 0 0; white-space: pre-wrap; background: var(--card); border-radius: .35rem;
  padding: .5rem .75rem; }
"""


def page(found: Report) -> str:
    """The whole page."""
    title, faults = f"Trial of {found.agent}", ", ".join(found.faults) or "none"
    cases = f"Cases: {found.inputs}. Repeats of each: {found.repeat}, from seed {found.seed}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{escape(f"{cases}. Faults: {faults}. Check: {found.check}.")}</p>',
        f'<p class="bad">{cut_short(found)}</p>' if found.interrupted else "",
        _cards(found),
        _chart(found),
        _refused(found),
        _failures(found.failures),
        _inputs(found.figures),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def cut_short(found: Report) -> str:
    """The missing part of an interrupted trial's report."""
    return f"Interrupted: {len(found.runs)} of {found.planned} runs were finished, and this report is about those."


def _cards(found: Report) -> str:
    cards = [
        f'<div class="card {arm}">{NAMES[arm]}<b>{percent(figures.curve[0])}</b>'
        f'<span class="soft">of {figures.repeats} runs passed; all {found.repeat} of a case: '
        f"{percent(figures.curve[-1])}</span></div>"
        for arm, figures in found.arms.items()
    ]
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _chart(found: Report) -> str:
    if not found.arms:
        return ""
    keys = "".join(f'<span class="key {arm}"></span>{NAMES[arm]}' for arm in found.arms)
    return (
        "<h2>pass^k</h2><p>How likely it is that k repeats of a case all pass: what a user who uses it "
        f"k times experiences.</p><p>{keys}</p>{curves({arm: one.curve for arm, one in found.arms.items()})}"
    )


def _failures(groups: list[Group]) -> str:
    if not groups:
        return "<h2>What failed</h2><p>Nothing.</p>"
    rows = "".join(
        f'<tr><td class="number bad">{group.count}</td><td>{NAMES[group.arm]}</td><td>{escape(group.reason)}'
        + (f'<br><span class="soft">after {escape("; ".join(group.faults))}</span>' if group.faults else "")
        + f'<pre><code>{escape(group.command)}</code></pre></td><td class="number">{_lines(group.lines)}</td></tr>'
        for group in groups
    )
    return (
        "<h2>What failed</h2><p>By reason, the commonest first. The command repeats the first failure of its kind.</p>"
        f'<div class="wide"><table><tr><th>runs</th><th></th><th>reason</th><th>lines</th></tr>{rows}</table></div>'
    )


def _inputs(figures: list[InputFigures]) -> str:
    worst = sorted(figures, key=lambda one: (min(one.passed.values()), one.line))
    rows = "".join(
        f'<tr><td class="number">{one.line}</td><td><code>{escape(_short(one.input))}</code></td>'
        f"<td>{bars(one)}</td></tr>"
        for one in worst[:MOST_ROWS]
    )
    rest = f"<p>{len(worst) - MOST_ROWS} more are in the JSON.</p>" if len(worst) > MOST_ROWS else ""
    if not rows:
        return ""
    return (
        "<h2>Cases</h2><p>A square for each repeat, filled where it passed; the cases that failed most come first.</p>"
        f'<div class="wide"><table><tr><th>line</th><th>input</th><th>repeats</th></tr>{rows}</table></div>{rest}'
    )


def _refused(found: Report) -> str:
    if not found.refused:
        return ""
    rows = "".join(f"<li>line {one.line}: {escape(one.problem)}</li>" for one in found.refused)
    return f'<h2>Lines that do not fit</h2><ul class="bad">{rows}</ul>'


def percent(share: float) -> str:
    """A share as a person reads it."""
    return f"{100 * share:.1f}%" if 0 < share < 1 else f"{100 * share:.0f}%"


def _lines(lines: list[int]) -> str:
    return ", ".join(map(str, lines[:8])) + (", …" if len(lines) > 8 else "")


def _short(text: str) -> str:
    return text if len(text) <= 160 else text[:159] + "…"


# --- charts, as inline SVG with the colours of the page --------------------------------------------------------------


_WIDTH: Final = 640
_HEIGHT: Final = 260
_LEFT: Final = 48
_RIGHT: Final = 16
_TOP: Final = 14
_BOTTOM: Final = 36
_TICKS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


def curves(arms: Mapping[str, Sequence[float]]) -> str:
    """pass^k over k, a line for each arm."""
    most = max((len(points) for points in arms.values()), default=1)
    label = "; ".join(
        f"{NAMES[arm]}: {', '.join(f'{100 * share:.0f}%' for share in points)}" for arm, points in arms.items()
    )
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="pass^k for k from 1 to {most}. {escape(label)}">'
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
    parts += [_line(arm, points, most, NAMES[arm]) for arm, points in arms.items()]
    return "".join([*parts, "</svg>"])


def bars(one: InputFigures) -> str:
    """The repeats of one input: a square each, filled if it passed."""
    rows: list[str] = []
    for number, (arm, passed) in enumerate(one.passed.items()):
        squares = "".join(
            f'<rect class="{arm if index < passed else "missed"}" x="{index * 14}" y="{number * 14}" width="11" '
            'height="11" rx="2"/>'
            for index in range(one.repeats)
        )
        rows.append(f"<g><title>{NAMES[arm]}: {passed} of {one.repeats} passed</title>{squares}</g>")
    label = ", ".join(f"{NAMES[arm]} {passed} of {one.repeats}" for arm, passed in one.passed.items())
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
