"""One year under one strategy: cases come, people look when they can, and every outcome has its cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from studies.year.people import Reviewer, Word
from studies.year.strategies import Desk, Route, Strategy
from studies.year.world import DAY, Case, Year

WEEK: Final = 5


class Costs(msgspec.Struct):
    """What the year cost, in euros: errors that went through, reviews, waiting, and right cases that were refused."""

    errors: float = 0.0
    reviews: float = 0.0
    waiting: float = 0.0
    refused: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.errors + self.reviews + self.waiting + self.refused


class Week(msgspec.Struct):
    """What one week was like. Attention is summed over looks."""

    cases: int = 0
    wrong: int = 0
    passed: int = 0
    looks: int = 0
    attention: float = 0.0
    threshold: float = 0.0
    queue: int = 0
    cost: float = 0.0


class Lived(msgspec.Struct):
    """A year that is over. `passed` counts errors that went through and were not undone."""

    strategy: str
    seed: int
    costs: Costs
    weeks: list[Week]
    cases: int = 0
    wrong: int = 0
    passed: int = 0
    looks: int = 0
    expired: int = 0
    planted: int = 0
    planted_caught: int = 0
    moves: int = 0

    @property
    def cost(self) -> float:
        """Euros for each case."""
        return self.costs.total / max(1, self.cases)


class _Item(msgspec.Struct, gc=False):
    case: Case
    route: Route
    planted: bool = False


class _Life:
    def __init__(self, year: Year, strategy: Strategy, seed: int) -> None:
        self.year: Final = year
        self.desk: Final = Desk(year, strategy)
        self.reviewers: Final = [Reviewer(year) for _ in range(year.reviewers)]
        self.queue: deque[_Item] = deque()
        self.lived: Final = Lived(strategy.name, seed, Costs(), [])
        self.week = Week()

    def day(self, number: int, cases: Sequence[Case]) -> None:
        """A working day: the reviewer who is free first takes what has waited longest."""
        coming = deque(cases)
        for one in self.reviewers:
            one.morning(number * DAY)
        while at_work := [one for one in self.reviewers if not one.spent and one.free < (number + 1) * DAY]:
            reviewer = min(at_work, key=lambda one: one.free)
            while coming and coming[0].at <= reviewer.free:
                self.arrive(coming.popleft())
            if self.queue:
                self.review(reviewer, self.queue.popleft())
            elif coming:
                reviewer.free = coming[0].at
            else:
                break
        for case in coming:
            self.arrive(case)

    def arrive(self, case: Case) -> None:
        """A case comes: it goes by itself, or into the queue, with a planted one behind it at times."""
        route = self.desk.route(case)
        self.week.cases += 1
        self.week.wrong += case.wrong
        if route in {"auto", "shadow"} and case.wrong:
            self.went_wrong(case)
        if route == "auto":
            return
        self.queue.append(_Item(case, route))
        if self.desk.strategy.plants and case.luck_plant < self.year.planted:
            known_bad = msgspec.structs.replace(case, wrong=True, luck_catch=case.luck_plant / self.year.planted)
            self.queue.append(_Item(known_bad, route, planted=True))

    def review(self, reviewer: Reviewer, item: _Item) -> None:
        """A person takes one thing from the queue, unless its time was over."""
        case, year, costs = item.case, self.year, self.lived.costs
        waited = reviewer.free - case.at
        if not item.planted and item.route != "shadow":
            costs.waiting += year.wait * min(waited, year.expiry_days * DAY) / 60
        if waited > year.expiry_days * DAY:
            self.expire(item)
            return
        attention = reviewer.attention(len(self.queue))
        word, minutes = reviewer.look(case, attention)
        costs.reviews += minutes * year.minute
        self.week.looks += 1
        self.week.attention += attention
        if item.planted:
            self.answer_planted(reviewer, word)
        elif item.route == "shadow":
            self.answer_shadow(case, word)
        else:
            self.answer(item, word)

    def answer(self, item: _Item, word: Word) -> None:
        """A yes lets it go, a no ends it; either is what the desk learns from."""
        if word == "no" and not item.case.wrong:
            self.lived.costs.refused += self.year.wrong_no
        if word == "yes" and item.case.wrong:
            self.went_wrong(item.case)
        self.desk.learn(item.case, item.route, wrong=word == "no")

    def answer_shadow(self, case: Case, word: Word) -> None:
        """It is done already: what is found wrong is undone, at a part of what it costs."""
        if word == "no" and case.wrong:
            self.lived.costs.errors -= self.year.undone * cost_of(self.year, case)
            self.week.passed -= 1

    def answer_planted(self, reviewer: Reviewer, word: Word) -> None:
        """Nothing happens, whatever is said; the reviewer is told."""
        self.desk.planted.append(word == "no")
        if self.year.told:
            reviewer.streak = 0.0

    def expire(self, item: _Item) -> None:
        """No reviewer came to it: it is refused, right or wrong, without a look. What was done already stays done."""
        if not item.planted and item.route != "shadow":
            self.lived.expired += 1
            self.lived.costs.refused += 0.0 if item.case.wrong else self.year.expired

    def went_wrong(self, case: Case) -> None:
        """An error reached the world."""
        self.lived.costs.errors += cost_of(self.year, case)
        self.week.passed += 1

    def close_week(self, now: float) -> None:
        """Calibrate, and begin the next week."""
        lived, week = self.lived, self.week
        week.threshold, week.queue = self.desk.at, len(self.queue)
        week.cost = lived.costs.total - sum(one.cost for one in lived.weeks)
        lived.weeks.append(week)
        self.desk.calibrate(now)
        self.week = Week()


def live(year: Year, strategy: Strategy, seed: int, cases: Sequence[Sequence[Case]]) -> Lived:
    """The year of these `cases` (see `world.days`) under a strategy. The same arguments give the same year."""
    life = _Life(year, strategy, seed)
    for number, today in enumerate(cases):
        life.day(number, today)
        if (number + 1) % WEEK == 0:
            life.close_week((number + 1) * DAY)
    lived, desk = life.lived, life.desk
    if len(cases) % WEEK:
        life.close_week(len(cases) * DAY)
    for week in lived.weeks:
        lived.cases += week.cases
        lived.wrong += week.wrong
        lived.passed += week.passed
        lived.looks += week.looks
    lived.moves, lived.planted, lived.planted_caught = len(desk.moves), len(desk.planted), sum(desk.planted)
    return lived


def cost_of(year: Year, case: Case) -> float:
    """What an error costs that went through."""
    return year.error + year.error_part * case.amount
