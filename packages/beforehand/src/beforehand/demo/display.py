"""The display for the viewer: the two sides while they run, and the table at the end. Fits 80 columns."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from beforehand.demo.contest import Counts, News, Progress
from beforehand.demo.scenario import REQUESTS, SERVICES, FaultSchedule, Spot, lane_of
from beforehand.demo.witness import KillNow, WitnessedEffect

TITLES: Final = {"without": "without Beforehand", "beforehand": "with Beforehand"}
DONE: Final[dict[str, str]] = {
    "payments": "a refund",
    "mail": "a mail",
    "tracker": "a ticket",
    "warehouse": "a restock",
}
LAST_EVENTS: Final = 8


class Scoreboard:
    """Counts the news of each side and draws them."""

    def __init__(self, seed: int, schedule: FaultSchedule, prices: Mapping[int, int]) -> None:
        self._seed = seed
        self._prices = prices
        self._kill_points = {kill.event: kill for kill in schedule.kills}
        self._handled: dict[str, set[int]] = {side: set() for side in TITLES}
        self._effects: dict[str, Counter[Spot]] = {side: Counter() for side in TITLES}
        self._kills: Counter[str] = Counter()
        self._events: deque[Text] = deque(maxlen=LAST_EVENTS)

    def show(self, news: News) -> None:
        match news:
            case Progress():
                self._handled[news.side].add(news.request)
            case KillNow():
                self._kills[news.side] += 1
                point = self._kill_points[news.event]
                when, order = ("has it", "after") if point.moment == "commit" else ("acts", "before")
                lane = lane_of(news.request) + 1
                what = f"worker {lane} dies {order} {point.service} {when}, request-{news.request}"
                self._tell(news.side, "SIGKILL", what, "red")
            case WitnessedEffect():
                effects = self._effects[news.side]
                effects[news.service, news.request] += 1
                if effects[news.service, news.request] > 1:
                    what = f"{DONE[news.service]} for request-{news.request} happened again"
                    what += f": {dollars(self._prices[news.request])}" if news.service == "payments" else ""
                    self._tell(news.side, "twice", what, "yellow")

    def __rich__(self) -> RenderableType:
        effects = REQUESTS * len(SERVICES)
        headline = Text(f"A refund desk: {REQUESTS} customers, {effects} effects, seed {self._seed}", "bold")
        table = Table(box=None, padding=(0, 2, 0, 0))
        for number, heading in enumerate(("", "customers", "", "effects", "twice", "kills")):
            table.add_column(heading, justify="right" if number > 1 else "left", no_wrap=True)
        for side, title in TITLES.items():
            table.add_row(title, *self._row(side))
        return Group(headline, Text(), table, Text(), *self._events)

    def _row(self, side: str) -> tuple[RenderableType, ...]:
        handled, effects = len(self._handled[side]), self._effects[side]
        twice = sum(times > 1 for times in effects.values())
        return (
            ProgressBar(total=REQUESTS, completed=handled, width=18),
            f"{handled}/{REQUESTS}",
            str(effects.total()),
            Text(str(twice), "bold yellow" if twice else ""),
            str(self._kills[side]),
        )

    def _tell(self, side: str, label: str, what: str, colour: str) -> None:
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{label:<8}", colour).append(f"{TITLES[side]:<18}  ", "dim").append(what)
        self._events.append(line)


def dollars(cents: int) -> str:
    """An amount of money, formatted for a person."""
    return f"${cents / 100:,.2f}"


def money_line(lost: Mapping[str, int]) -> Text:
    """The double refunds of each side, in one sentence."""
    line = Text()
    for number, (side, cents) in enumerate(lost.items()):
        line.append(", " if number else "").append(dollars(cents), "bold red" if cents else "bold green")
        line.append(f" refunded twice {TITLES[side]}" if not number else f" {TITLES[side]}")
    return line.append(".")


def final_table(rows: Mapping[str, Counts], kills: Mapping[str, int]) -> Table:
    """One row per side; each requested effect is in one of the columns that `LEGEND` adds up."""
    table = Table(title="What happened at the services", title_justify="left", padding=(0, 1, 0, 0), box=None)
    table.add_column("", no_wrap=True)
    for name in (*Counts.__struct_fields__, "kills"):
        table.add_column(name, justify="right", no_wrap=True)
    for side, counts in rows.items():
        cells = [_cell(name, getattr(counts, name)) for name in Counts.__struct_fields__]
        table.add_row(TITLES[side], *cells, Text(str(kills[side])))
    return table


def _cell(name: str, number: int) -> Text:
    colours = {"twice": "bold red", "never": "bold red", "misreported": "bold red", "waiting": "yellow"}
    return Text(str(number), colours.get(name, "") if number else "")


LEGEND: Final = (
    "requested = once + twice + never + waiting + refused\n"
    "waiting: a person is asked. never: not done, and not reported.\n"
    "misreported: the side's own report differs from the service."
)
