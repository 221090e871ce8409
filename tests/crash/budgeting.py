"""A process that drives one run with a budget: `python -m tests.crash.budgeting JOURNAL MODEL POINT COUNT LIMIT`.

It kills itself at that occurrence of a point (`-`: it does not), and prints what the run returned. The limit is of
`calls`, or of `cost`: then each call reserves and costs one cent.
"""

import asyncio
import sys
import urllib.request

from beforehand import Beforehand, Run, agent
from beforehand.engine.settings import Settings
from beforehand.errors import BudgetExceeded
from beforehand.inspect.prices import declared_prices
from beforehand.journal.port import Lease
from beforehand.policies import RunBudget
from tests.crash.points import Points, WatchedJournal

JOURNAL, MODEL, POINT, COUNT, OF = sys.argv[1:6]
LIMIT = 5
BUDGETS = {
    "calls": RunBudget(model_calls=LIMIT, then="stop"),
    "cost": RunBudget(cost=f"0.0{LIMIT} EUR", then="stop"),
}
PRICES = declared_prices({"currency": "EUR", "models": {"m": {"input": 1000, "output": 1000}}}, "prices")


class Journal(WatchedJournal):
    """The real journal, with points around the flush that makes a reservation durable, too."""

    def __init__(self, path: str, points: Points) -> None:
        super().__init__(path, points)
        self._watched = points

    async def flush(self, lease: Lease) -> None:
        self._watched.reached("before_flush")
        await super().flush(lease)
        self._watched.reached("after_flush")


async def ask(question: str) -> dict[str, object]:
    def post() -> str:
        with urllib.request.urlopen(f"{MODEL}/{question}", timeout=20) as answer:
            return answer.read().decode()

    return {"text": await asyncio.to_thread(post), "usage": {"input_tokens": 10, "output_tokens": 0, "model": "m"}}


@agent(run_id="talk-{name}", budget=BUDGETS[OF])
async def talk(run: Run, name: str) -> int:
    model = run.options(model="m")
    answered = len(await run.gather(*(model.decide(ask, f"both-{number}".ljust(28, "_")) for number in range(2))))
    try:
        while True:
            await model.decide(ask, f"one-{answered}")
            answered += 1
    except BudgetExceeded:
        return answered


async def main() -> None:
    journal = Journal(JOURNAL, Points((POINT, int(COUNT))))
    settings = Settings(lease_ms=3000, margin_ms=500)
    async with Beforehand(journal, agents=[talk], settings=settings, recover=False, prices=PRICES) as app:
        print(await app.run(talk, "x"), flush=True)


asyncio.run(main())
