"""What attempts cost counts over all of them, across crashes; no attempt is begun once it is spent."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import Beforehand, Key, NotSent, OperationFailed, Run, agent, current_operation, tool
from beforehand.errors import UsageError
from beforehand.policies import Budget, Retry

spent: list[float] = []


@tool(
    idempotency=Key.forever(),
    budget=Budget(cost=1.0),
    retry=Retry(attempts=10, base=timedelta(milliseconds=1), cap=timedelta(milliseconds=2)),
)
async def ask(question: str) -> str:
    assert current_operation().key
    current_operation().spend(0.4)
    spent.append(0.4)
    raise NotSent("busy")


@agent(run_id="ask-{question}")
async def asker(run: Run, question: str) -> str:
    return await ask(question)


def test_no_attempt_is_begun_once_the_budget_is_spent(tmp_path):
    async def main():
        async with Beforehand(tmp_path / "j.db", agents=[asker]) as app:
            with pytest.raises(OperationFailed, match=r"its budget of 1 is spent \(1\.2\)"):
                await app.run(asker, "why")

    spent.clear()
    asyncio.run(main())
    assert len(spent) == 3


def test_less_than_nothing_cannot_be_spent():
    from beforehand.testing import operation

    with operation(key="k") as current, pytest.raises(UsageError):
        current.spend(-1)
