"""The charts of the simulated year: what a case costs, how the year goes, and what changes when a number does."""

from collections.abc import Mapping, Sequence
from typing import Final

from charts import Bar, Line, Panel, bars, panels
from year_texts import LABELS

from studies.year.comparing import ALL, CALIBRATED, NONE, Compared
from studies.year.living import Lived, Week
from studies.year.strategies import STRATEGIES
from studies.year.world import Year

MONTH: Final = 4
"""Weeks that the charts put together."""

SWEEPS: Final[dict[str, tuple[float, ...]]] = {
    "arrivals": (40, 80, 150, 250, 400),
    "errors": (0.003, 0.01, 0.03, 0.06, 0.12),
    "signal": (0, 0.35, 0.7, 0.95),
    "error": (5, 15, 40, 150, 600),
    "reading": (1, 3, 6, 10),
    "streak": (15, 30, 60, 200, 10000),
    "patience": (0.5, 2, 8),
    "drift": (1, 2.5, 5, 10),
    "start": (0.6, 0.7, 0.8, 0.9, 0.96),
    "rate": (0.05, 0.1, 0.15, 0.2, 0.4),
}
Swept = dict[str, list[Compared]]

NAMES: Final = tuple(one.name for one in STRATEGIES)
COSTS: Final = ("errors that went through", "looks", "waiting", "right cases refused")


def charts(year: Compared, swept: Mapping[str, Sequence[Compared]]) -> dict[str, str]:
    """The charts by the names of their files."""
    return {"cost": cost_chart(year), "weeks": weeks_chart(year, swept["start"]), "sweeps": sweeps_chart(swept)}


def cost_chart(year: Compared) -> str:
    """What a case costs, by what it is spent on."""
    rows: list[Bar] = []
    for name, years in year.lived.items():
        cases = sum(one.cases for one in years)
        spent = [one.costs for one in years]
        parts = [
            sum(one.errors for one in spent), sum(one.reviews for one in spent),
            sum(one.waiting for one in spent), sum(one.refused for one in spent),
        ]  # fmt: skip
        cost = year.cost(name)
        rows.append(Bar(name, [one / cases for one in parts], f"{cost.mean:.2f} ({cost.low:.2f} to {cost.high:.2f})"))
    return bars("What a case costs, €", COSTS, rows, "euros")


def weeks_chart(year: Compared, starts: Sequence[Compared]) -> str:
    """How the year goes: attention, the share of errors caught, and where the threshold goes from several starts."""
    months = len(year.lived[ALL][0].weeks) // MONTH
    ticks = [str(number + 1) if number % 3 == 0 else "" for number in range(months)]
    drift = year.year.drift_day // 5 // MONTH
    asking = [(name, number) for number, name in enumerate(NAMES) if name != NONE]
    attention = [Line(name, number, [attended(one) for one in monthly(year.lived[name])]) for name, number in asking]
    caught = [Line(name, number, [found(one) for one in monthly(year.lived[name])]) for name, number in asking]
    stands = [
        Line(CALIBRATED, NAMES.index(CALIBRATED), [stood(one) for one in monthly(point.lived[CALIBRATED])])
        for point in starts
    ]
    return panels(
        "The year by month; at the dashed line the agent gets worse",
        [
            Panel("attention", ticks, attention, drift, 1.0),
            Panel("share of errors caught", ticks, caught, drift, 1.0),
            Panel("threshold, from five starts", ticks, stands, drift, 1.0, 0.5),
        ],
        columns=3,
    )


def monthly(years: Sequence[Lived]) -> list[list[Week]]:
    """The weeks of each month, of all years."""
    months = len(years[0].weeks) // MONTH
    return [[week for one in years for week in one.weeks[at * MONTH : (at + 1) * MONTH]] for at in range(months)]


def attended(weeks: Sequence[Week]) -> float | None:
    """The mean attention of a look."""
    looks = sum(one.looks for one in weeks)
    return sum(one.attention for one in weeks) / looks if looks else None


def found(weeks: Sequence[Week]) -> float | None:
    """The share of errors that did not go through."""
    wrong = sum(one.wrong for one in weeks)
    return 1 - sum(one.passed for one in weeks) / wrong if wrong else None


def stood(weeks: Sequence[Week]) -> float | None:
    """Where the threshold stood, on average."""
    return sum(one.threshold for one in weeks) / len(weeks) if weeks else None


def sweeps_chart(swept: Mapping[str, Sequence[Compared]]) -> str:
    """One small chart for each number that was swept; never asking may leave the picture."""
    shown: list[Panel] = []
    for name, points in swept.items():
        values = SWEEPS[name]
        lines = [Line(one, number, [point.cost(one).mean for point in points]) for number, one in enumerate(NAMES)]
        top = max(value or 0.0 for line in lines if line.name != NONE for value in line.values)
        default = values.index(float(getattr(Year(), name)))
        shown.append(Panel(LABELS[name], [f"{one:g}" for one in values], lines, default, ceiling(top)))
    return panels("Cost of a case, €; the default is at the dashed line", shown, columns=2)


def ceiling(value: float) -> float:
    """A round number that is not below the value."""
    size = 10.0 ** (len(str(int(value))) - 1)
    return next(size * step for step in (1, 2, 3, 4, 5, 6, 8, 10) if size * step >= value)
