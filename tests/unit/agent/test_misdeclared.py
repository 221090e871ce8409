"""Declarations with a wrong kind of value: refused where they stand, in a sentence."""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from beforehand import CannotTell, Happened, Key, Natural, Once, Operation, Run, Verdict, agent, tool
from beforehand.errors import ContractError, UsageError
from beforehand.policies import Budget, Gate, Retry


def fresh() -> Any:
    async def it(order: str, cents: int = 1) -> str:
        return order

    return tool(it)


async def desk(run: Run, ticket: str) -> str:
    return ticket


@pytest.mark.parametrize(
    "write",
    [
        lambda: Key(ttl=5),
        lambda: Natural(within=5),
        lambda: Once("to", within=5),
        lambda: Retry(elapsed=5),
        lambda: Gate("true", within=5),
        lambda: fresh().options(timeout=5),
        lambda: fresh().verify(settle_window=5)(lambda operation: None),
        lambda: agent(deadline=5)(desk),
    ],
)
def test_a_number_is_no_duration(write: Callable[[], object]):
    with pytest.raises(UsageError, match=r"5 is not a duration. Next: write timedelta\(seconds=5\)\."):
        write()


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda: Natural(within=timedelta(-1)), "within"),
        (lambda: Once("to", within=timedelta(0)), "within"),
        (lambda: Budget(cost=-1), "cost=-1"),
    ],
)
def test_values_that_mean_nothing_are_refused(write: Callable[[], object], says: str):
    with pytest.raises(ValueError, match=says):
        write()


def test_what_is_no_function_of_its_own_is_no_tool():
    async def many(to: str):
        yield to

    def several(to: str):
        yield to

    class Shop:
        def __init__(self, to: str) -> None:
            self.to = to

        def send(self, to: str) -> str:
            return to

    for function, says in (
        (many, "is a generator"),
        (several, "is a generator"),
        (Shop, "is a class"),
        (Shop.send, r"is a method.*tool\(shop\.send\)"),
        (functools.partial(several, "ann"), "has no name"),
    ):
        with pytest.raises(ContractError, match=says):
            tool(function)
    assert tool(Shop("ann").send).name == "send"


def test_a_verifier_gives_a_verdict_about_what_the_tool_returns():
    def yes(operation: Operation[str]) -> bool: ...
    def another(operation: Operation[str]) -> Verdict[int]: ...
    def some(operation: Operation[str]) -> Happened[str] | CannotTell: ...
    def anything(operation: Operation[str]) -> Any: ...

    with pytest.raises(ContractError, match=r"verify of tool it returns bool\. Next: give a verdict: Happened"):
        fresh().verify(yes)
    with pytest.raises(ContractError, match=r"expects the result type int, and .* returns str"):
        fresh().verify(another)
    for fits in (some, anything):
        assert fresh().verify(fits) is fits
