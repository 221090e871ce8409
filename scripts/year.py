"""Write docs/explanation/people-at-scale.md: live many simulated years, sweep what they depend on, draw the charts.

    python scripts/year.py --write-docs            all of it, in some minutes
    python scripts/year.py --years 3 --sweep 2     a quick look, on standard output

No figure on that page is typed in: the same seeds give the same page.
"""

import argparse
import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from reference_source import definitions, fields
from year_charts import NAMES, SWEEPS, Swept, charts
from year_texts import ASSUMED, HEAD, LABELS, LIMITS, MOVES, READING, SWEPT

from studies.year.comparing import ALL, CALIBRATED, FIXED, NONE, Compared, compare
from studies.year.strategies import break_even
from studies.year.world import Year

PAGES: Final = Path(__file__).resolve().parents[1] / "docs" / "explanation"
PAGE: Final = PAGES / "people-at-scale.md"
CHARTS: Final = PAGES / "people-at-scale"
SIMPLER: Final = (ALL, NONE, FIXED)
YEAR: Final = "studies.year.world"


def main() -> int:
    """Live the years; print the page or write it with its charts."""
    parser = argparse.ArgumentParser(description="Live simulated years, and write the page about them.")
    parser.add_argument("--years", type=int, default=20, help="years for the table")
    parser.add_argument("--sweep", type=int, default=8, help="years for each point of the sweeps")
    parser.add_argument("--write-docs", action="store_true", help="write the page and its charts")
    given = parser.parse_args()
    year = compare(Year(), range(given.years))
    swept: Swept = {}
    for name, values in SWEEPS.items():
        print(f"sweeping {name}", file=sys.stderr)
        swept[name] = [compare(varied(name, value), range(given.sweep)) for value in values]
    text = page(year, swept, compare(Year(told=False), range(given.sweep)))
    if not given.write_docs:
        print(text)
        return 0
    CHARTS.mkdir(exist_ok=True)
    for name, chart in charts(year, swept).items():
        (CHARTS / f"{name}.svg").write_text(chart, encoding="utf-8")
    PAGE.write_text(text, encoding="utf-8")
    return 0


def varied(name: str, value: float) -> Year:
    """The default year with one number changed."""
    return msgspec.convert({name: value}, Year)


def page(year: Compared, swept: Swept, deaf: Compared) -> str:
    """The whole page. In the years of `deaf` no reviewer is notified of planted cases."""
    parts = [
        HEAD,
        results(year),
        READING.format(goal=f"{break_even(year.year):.1%}"),
        "![What a case costs under each strategy](people-at-scale/cost.svg)",
        "![Attention, errors caught and the threshold over the year](people-at-scale/weeks.svg)",
        "## Where sampling loses",
        losses(swept, deaf),
        "## Where it pays",
        wins(swept),
        "## With other numbers",
        SWEPT.format(years=len(swept["rate"][0].lived[ALL])),
        "![Cost under each strategy while one number changes](people-at-scale/sweeps.svg)",
        *(sweep_table(name, swept[name]) for name in SWEEPS),
        "## The model",
        ASSUMED,
        parameters(),
        MOVES,
        LIMITS,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def results(year: Compared) -> str:
    """The table of the default year."""
    rows = [
        ("strategy", "cost of a case, €", "95 % interval", "reviewed", "errors caught", "attention", "moves a year"),
        ("---", "---:", "---", "---:", "---:", "---:", "---:"),
    ]
    for name, years in year.lived.items():
        cost = year.cost(name)
        looks, wrong = sum(one.looks for one in years), sum(one.wrong for one in years)
        attention = sum(week.attention for one in years for week in one.weeks) / looks if looks else None
        rows.append((
            f"**{name}**" if year.as_cheap(name) else name,
            f"{cost.mean:.2f}", f"{cost.low:.2f} to {cost.high:.2f}",
            f"{looks / sum(one.cases for one in years):.0%}",
            f"{1 - sum(one.passed for one in years) / wrong:.0%}",
            "" if attention is None else f"{attention:.0%}",
            f"{sum(one.moves for one in years) / len(years):.1f}",
        ))  # fmt: skip
    return f"{len(year.lived[ALL])} years:\n\n{table(rows)}"


def sweep_table(name: str, points: Sequence[Compared]) -> str:
    """What a case costs under each strategy, for each value of one number; the cheapest ones bold."""
    rows = [(LABELS[name], *NAMES), ("---:", *("---:" for _ in NAMES))]
    for value, point in zip(SWEEPS[name], points, strict=True):
        costs = ((one, f"{point.cost(one).mean:.2f}") for one in NAMES)
        rows.append((f"{value:g}", *(f"**{cost}**" if point.as_cheap(one) else cost for one, cost in costs)))
    return table(rows)


def losses(swept: Swept, deaf: Compared) -> str:
    """Every point at which sampling with calibration is proven dearer than something simpler."""
    found = [f"- {place}: {gaps}" for place, point in places(swept) if (gaps := dearer(point))]
    planted, without = deaf.cost(NAMES[-1]), deaf.cost(CALIBRATED)
    told = (
        "Planted cases cost reviews. If the notices about them had no effect on attention (`told=False`), they would "
        f"make a case cost {planted.mean:.2f} instead of {without.mean:.2f} €: then they only measure."
    )
    return "\n".join(["Here *sampling, calibrated* cost provably more than something simpler:", "", *found, "", told])


def wins(swept: Swept) -> str:
    """Every point at which sampling with calibration is proven cheaper than everything simpler."""
    found = [
        f"- {place}: by {least:.2f} € a case or more"
        for place, point in places(swept)
        if (least := min(-(point.dearer(CALIBRATED, than).high or 0.0) for than in SIMPLER)) > 0
    ]
    return "\n".join(
        ["Here it cost provably less than all of them (*always*, *never*, *fixed threshold*):", "", *found]
    )


def places(swept: Swept) -> Iterator[tuple[str, Compared]]:
    """The default, once, and every point that differs from it."""
    default = Year()
    yield "with the default numbers", swept["rate"][SWEEPS["rate"].index(default.rate)]
    for name, points in swept.items():
        for value, point in zip(SWEEPS[name], points, strict=True):
            if point.year != default:
                yield f"{LABELS[name]} = {value:g}", point


def dearer(point: Compared) -> str:
    """By how much sampling with calibration is dearer than simpler ways, where that is proven."""
    said: list[str] = []
    for than in SIMPLER:
        gap = point.dearer(CALIBRATED, than)
        if gap.mean is not None and gap.low is not None and gap.high is not None and gap.low > 0:
            base = point.cost(than).mean or 1.0
            part = f"{gap.mean / base:+.0%}"
            said.append(f"than *{than}* by {gap.mean:.2f} € a case ({gap.low:.2f} to {gap.high:.2f}, {part})")
    return "; ".join(said)


def parameters() -> str:
    """Every number of the model with its meaning, as the source has them."""
    [node] = definitions("Year", YEAR)
    assert isinstance(node, ast.ClassDef)
    rows = [("name", "value", "meaning"), ("---", "---:", "---")]
    return table([*rows, *((f"`{one.name}`", one.default, one.remark) for one in fields(node, YEAR))])


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose second row is the rule."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
