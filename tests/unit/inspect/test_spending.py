"""Spending as it happens: a window over the newest records, which agrees with the sums over all runs."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.errors import BudgetExceeded, DecisionFailed, ModelError
from beforehand.inspect import spending as module
from beforehand.inspect.costs import CostLine, costs
from beforehand.inspect.prices import DeclaredPrices, ModelPrice, Prices
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.spending import WINDOW_MS, Spending
from beforehand.journal.backends import address_of
from beforehand.journal.host import wall_ms
from beforehand.journal.port import Reader
from beforehand.policies import Retry, RunBudget

PRICES = Prices(DeclaredPrices("mine", "USD", {"m-1": ModelPrice(input=1, output=2)}))


@dataclass
class Ruling:
    usage: dict[str, int]
    model: str


async def rule(tokens: int, model: str) -> Ruling:
    """A model: some services count the tokens."""
    return Ruling({"input_tokens": tokens, "output_tokens": 2} if tokens else {}, model)


@agent(run_id="ask-{number}")
async def desk(run: Run, number: int) -> None:
    for tokens, model in ((100 + number, "m-1"), (7, "unlisted"), (0, "m-1")):
        await run.decide(rule, tokens, model)


async def filled(path: Path, numbers: range) -> None:
    async with Beforehand(path, agents=[desk], recover=False) as app:
        for number in numbers:
            await app.run(desk, number)


async def reading(path: Path, look: Callable[[JournalReader, Reader], Awaitable[None]]) -> None:
    journal = address_of(str(path)).reader()
    identity = await journal.open()
    try:
        await look(JournalReader(journal, identity), journal)
    finally:
        await journal.close()


def same(one: CostLine, other: CostLine) -> bool:
    fields = "calls", "uncounted", "unpriced", "input_tokens", "output_tokens", "cost"
    return [getattr(one, name) for name in fields] == [getattr(other, name) for name in fields]


@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_each_look_adds_what_came_and_agrees_with_the_sums_over_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    path = tmp_path / "desk.db"

    async def story(reader: JournalReader, journal: Reader) -> None:
        spending = Spending(journal, PRICES)
        for numbers in (range(3), range(3, 3), range(3, 5)):
            await filled(path, numbers)
            line = await spending.look(wall_ms())
            assert same(line, (await costs(reader, PRICES, "agent")).total)
        assert line.calls == 15
        assert line.uncounted == line.unpriced == 5
        assert (await spending.look(wall_ms() + 2 * WINDOW_MS)).calls == 0, "an hour later it is over"

    asyncio.run(filled(path, range(0)))
    asyncio.run(reading(path, story))


@agent(run_id="limited-{number}")
async def limited(run: Run, number: int) -> None:
    async def flaky(tokens: int) -> Ruling:
        raise ModelError("busy", code="rate_limited" if tokens else "unavailable")

    for tokens in (number, 0):
        with contextlib.suppress(DecisionFailed):
            await run.options(retry=Retry(attempts=2, base=timedelta(0))).decide(flaky, tokens)
    for tokens in (10, 20, 30):
        with contextlib.suppress(BudgetExceeded):
            await run.decide(rule, tokens, "m-1")


@pytest.mark.parametrize("at_once", [1, 10_000])
def test_a_call_that_a_budget_or_a_service_refused_is_none_for_every_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    path = tmp_path / "desk.db"

    async def made() -> None:
        async with Beforehand(path, agents=[limited], recover=False) as app:
            await app.run(limited, 1, budget=RunBudget(model_calls=4, then="stop"))

    async def story(reader: JournalReader, journal: Reader) -> None:
        total = (await costs(reader, PRICES, "agent")).total
        line = await Spending(journal, PRICES).look(wall_ms())
        budget = (await reader.history("limited-1")).budget
        assert same(line, total)
        assert budget is not None
        assert line.calls == budget.model_calls == 4
        assert line.uncounted == budget.unknown == 2

    asyncio.run(made())
    asyncio.run(reading(path, story))


def test_a_first_look_at_too_much_says_since_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "desk.db"
    asyncio.run(filled(path, range(6)))
    monkeypatch.setattr(module, "_MOST", 20)

    async def story(reader: JournalReader, journal: Reader) -> None:
        now = wall_ms()
        spending = Spending(journal, PRICES)
        line = await spending.look(now)
        assert 0 < line.calls < (await costs(reader, PRICES, "agent")).total.calls
        assert now - WINDOW_MS < spending.since_ms <= now

    asyncio.run(reading(path, story))


def test_a_later_look_reads_only_what_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "desk.db"
    asyncio.run(filled(path, range(4)))

    async def story(_reader: JournalReader, journal: Reader) -> None:
        spending = Spending(journal, PRICES)
        first = await spending.look(wall_ms())
        searched: list[range] = []
        search = journal.search

        async def counting(text: str, numbers: range, limit: int) -> object:
            searched.append(numbers)
            return await search(text, numbers, limit)

        monkeypatch.setattr(journal, "search", counting)
        assert same(await spending.look(wall_ms()), first)
        assert len(searched) == 1, "that of the newest record"

    asyncio.run(reading(path, story))
