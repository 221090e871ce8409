"""A process whose run shares a budget: `python -m tests.crash.sharing JOURNAL MODEL POINT COUNT NAME LIMIT`.

It kills itself at that occurrence of a point (`-`: it does not), and prints how many answers its run got. The limit
is of `calls`, or of `cost`: then each call reserves and costs one cent. Or it is of `effects`: then a tool calls.
"""

import asyncio
import sys
import urllib.request
from collections.abc import Awaitable

from beforehand import Beforehand, Natural, Run, agent, tool
from beforehand.engine.settings import Settings
from beforehand.errors import BudgetExceeded
from beforehand.inspect.prices import declared_prices
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from tests.crash.points import Points, WatchedJournal

JOURNAL, MODEL, POINT, COUNT, NAME, OF = sys.argv[1:7]
LIMIT = 9
BUDGETS = {
    "calls": SharedBudget(agent="talk", model_calls=LIMIT, then="stop"),
    "cost": SharedBudget(agent="talk", cost=f"0.0{LIMIT} EUR", then="stop"),
    "effects": SharedBudget(agent="talk", effects=LIMIT, then="stop"),
}
LIMITS = DeclaredLimits(budgets={"support": BUDGETS[OF]})
PRICES = declared_prices({"currency": "EUR", "models": {"m": {"input": 1000, "output": 1000}}}, "prices")


async def ask(question: str) -> dict[str, object]:
    def post() -> str:
        with urllib.request.urlopen(f"{MODEL}/{question}", timeout=20) as answer:
            return answer.read().decode()

    return {"text": await asyncio.to_thread(post), "usage": {"input_tokens": 7, "output_tokens": 3, "model": "m"}}


@tool(idempotency=Natural())
async def mark(name: str) -> str:
    return str((await ask(name))["text"])


@agent(run_id="talk-{name}", tools=[mark])
async def talk(run: Run, name: str) -> int:
    answered, model = 0, run.options(model="m")

    def call(question: str) -> Awaitable[object]:
        return mark(question) if OF == "effects" else model.decide(ask, question)

    try:
        await run.gather(*(call(f"{name}-both-{number}".ljust(28, "_")) for number in range(2)))
        answered += 2
        while True:
            await call(f"{name}-one-{answered}")
            answered += 1
    except BudgetExceeded:
        return answered


async def main() -> None:
    journal = WatchedJournal(JOURNAL, Points((POINT, int(COUNT))))
    settings = Settings(lease_ms=3000, margin_ms=500)
    async with Beforehand(
        journal, agents=[talk], settings=settings, recover=False, queues=LIMITS, prices=PRICES
    ) as app:
        print(await app.run(talk, NAME), flush=True)


asyncio.run(main())
