"""The report page of a campaign: what was reached, how often, and what fell. One file, no network."""

from __future__ import annotations

from collections import Counter, defaultdict
from html import escape

from simulator.campaign import Campaign
from simulator.story import INVARIANTS

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #4a7dbd; --bad: #c0392b; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .15rem .6rem; border-bottom: 1px solid var(--line);
text-align: left; } td.n { text-align: right; font-variant-numeric: tabular-nums; } td.b { width: 45%; }
.bar { background: var(--bar); height: .7rem; border-radius: 2px; min-width: 2px; }
.bad { color: var(--bad); font-weight: 600; } code { font-size: .9em; }
.grid td { text-align: right; font-variant-numeric: tabular-nums; } .grid th { font-weight: 500; }
"""


def page(done: Campaign) -> str:
    """The page as HTML."""
    verdict = "every invariant held" if not done.fallen else f"{len(done.fallen)} seeds broke an invariant"
    bad = ' class="bad"' if done.fallen or done.holes else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Simulated: {done.seeds} seeds</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><h1{bad}>{done.seeds:,} seeds from '
        f"{done.first}: {verdict}</h1><p>{done.points:,} points reached, {sum(done.reach.faults.values()):,} faults, "
        f"{done.virtual_ms / 3_600_000:,.0f} hours of simulated time in {done.seconds:,.0f} s "
        f"({done.per_hour:,} seeds an hour).</p>"
        + _fallen(done)
        + _holes(done)
        + _bars("How operations ended", done.reach.endings)
        + _bars("Records written", done.reach.records)
        + _bars("Faults that struck", _by_kind(done.reach.faults))
        + _meetings(done)
        + _bars("Points reached", done.reach.points)
        + "</html>\n"
    )


def _fallen(done: Campaign) -> str:
    if not done.fallen:
        return ""
    rows = "".join(
        f"<tr><td>{one.invariant} {escape(INVARIANTS.get(one.invariant, ''))}</td><td>{escape(one.what)}</td>"
        f"<td><code>make sim SEED={one.seed}</code></td></tr>"
        for one in done.fallen
    )
    return f'<h2 class="bad">What fell</h2><table>{rows}</table>'


def _holes(done: Campaign) -> str:
    if not done.holes:
        return ""
    return f'<h2 class="bad">Never reached</h2><ul>{"".join(f"<li>{escape(hole)}" for hole in done.holes)}</ul>'


def _bars(title: str, counts: Counter[str]) -> str:
    most = max(counts.values(), default=1)
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{count:,}</td>'
        f'<td class="b"><div class="bar" style="width:{100 * count / most:.1f}%"></div></td></tr>'
        for name, count in counts.most_common()
    )
    return f"<h2>{escape(title)}</h2><table>{rows}</table>"


def _by_kind(faults: Counter[str]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for name, count in faults.items():
        kinds[name.partition(" @ ")[0]] += count
    return kinds


def _meetings(done: Campaign) -> str:
    """Which fault found which kind of write with an attempt open."""
    table: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for meeting, count in done.reach.meetings.items():
        fault, state, tool = meeting.split(" x ")
        if state == "running":
            table[fault][tool] += count
    tools = sorted({tool for row in table.values() for tool in row})
    head = "".join(f"<th>{escape(tool)}" for tool in tools)
    rows = "".join(
        f"<tr><th>{escape(fault)}" + "".join(f"<td>{row[tool]:,}" for tool in tools)
        for fault, row in sorted(table.items())
    )
    return f'<h2>Faults that found an attempt open</h2><table class="grid"><tr><th>{head}</tr>{rows}</table>'
