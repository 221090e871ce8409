"""Direct calls of tools: values have to fit the annotations, and a call that is never awaited is named."""

import asyncio
import enum
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, TypedDict

import pytest

from beforehand import Run, Secret, agent, tool
from beforehand.errors import ArgumentError
from beforehand.model.tool_spec import fits
from tests.unit.engine.lab import Lab, virtual

Cents = NewType("Cents", int)


class Currency(enum.Enum):
    EUR = "EUR"


class Address(TypedDict):
    city: str


@dataclass
class Line:
    cents: int


@pytest.mark.parametrize(
    ("kind", "fitting", "misfits"),
    [
        (int, [1, True], ["1", 1.0, None]),
        (float, [1.5, 1], ["1.5", Decimal(1)]),
        (Cents, [5], ["5"]),
        (Annotated[int, "positive"], [5], ["5"]),
        (int | None, [5, None], ["5"]),
        (Literal["EUR", "USD"], ["EUR"], ["CHF", 1]),
        (Currency, [Currency.EUR], ["EUR"]),
        (Line, [Line(1)], [{"cents": 1}, "1"]),
        (Address, [{"city": "Ulm"}], ["Ulm"]),
        (list[Line], [[], [Line(1)]], [[Line(1), {"cents": 1}], Line(1)]),
        (Sequence[int], [[1], (1, 2)], [["1"], 1]),
        (tuple[int, ...], [(1, 2)], [(1, "2"), [1, 2]]),
        (tuple[int, str], [(1, "a")], [[1, "a"]]),
        (Mapping[str, list[int]], [{"a": [1]}], [{"a": ["1"]}, {1: [1]}, [1]]),
        (datetime, [datetime(2030, 1, 1)], ["2030-01-01"]),  # noqa: DTZ001 - only its class matters here
        (Any, ["anything", None], []),
    ],
    ids=str,
)
def test_a_value_fits_the_annotation_of_its_parameter(kind: Any, fitting: list[object], misfits: list[object]):
    assert [value for value in fitting if not fits(value, kind)] == []
    assert [value for value in misfits if fits(value, kind)] == []
    assert fits(Secret("API_KEY"), kind), "a secret stands for a value of any type"


sent: list[object] = []


@tool
async def pay(cents: int, lines: list[str] | None = None, note: str = None) -> str:  # type: ignore[assignment]  # noqa: RUF013 - as people write it
    sent.append((cents, lines, note))
    return f"paid {cents}"


async def perform(lab: Lab, body: Callable[[Run, str], Awaitable[object]]) -> tuple[object, list[str]]:
    """What a run of this body returned or raised, and the names of the writes that it recorded."""
    sent.clear()

    @agent(tools=[pay])
    async def desk(run: Run, given: str) -> str:
        return str(await body(run, given))

    async with lab.app(desk) as app:
        try:
            ended: object = await app.run(desk, "x", run_id="run-1")
        except Exception as error:  # noqa: BLE001 - the tests look at it
            ended = error
        return ended, list((await app.service.history("run-1")).operations)


CALLS: list[Callable[[Run], Awaitable[object]]] = [
    lambda run: pay("12"),  # type: ignore[arg-type]  # what the check is for
    lambda run: pay.outcome("12"),  # type: ignore[arg-type]  # what the check is for
    lambda run: pay.options(step="once")("12"),  # type: ignore[arg-type]  # what the check is for
    lambda run: pay(3, ["a", 4]),  # type: ignore[list-item]  # what the check is for
    lambda run: run.on_commit(pay, "12"),  # type: ignore[arg-type]  # what the check is for
]


@pytest.mark.parametrize("number", range(len(CALLS)))
@virtual
async def test_a_value_that_does_not_fit_is_refused_before_anything_is_recorded(lab: Lab, number: int):
    async def body(run: Run, given: str) -> str:
        with pytest.raises(ArgumentError, match=r"pay: (cents must be int|lines must be list\[str\] \| None)"):
            await CALLS[number](run)
        return await pay(5)

    ended, steps = await perform(lab, body)
    assert (ended, steps, sent) == ("paid 5", ["pay#1"], [(5, None, None)])


@virtual
async def test_the_default_of_a_parameter_fits_whatever_its_annotation_says(lab: Lab):
    async def body(run: Run, given: str) -> str:
        return await pay(5, note=None)  # type: ignore[arg-type]  # its own default

    assert (await perform(lab, body))[0] == "paid 5"


@pytest.mark.parametrize("further", [0, 2])
@virtual
async def test_a_call_that_is_never_awaited_stops_the_run_with_its_tool_and_line(lab: Lab, further: int):
    async def body(run: Run, given: str) -> str:
        await pay(5)
        for cents in range(1 + further):
            pay(cents)  # pyright: ignore[reportUnusedCoroutine]  # the mistake
        return "done"

    ended, steps = await perform(lab, body)
    assert re.match(r"pay\(\.\.\.\) \(.*test_direct_calls\.py:\d+\) was called and never awaited", str(ended)), ended
    assert ("and 2 further calls" in str(ended)) == bool(further)
    assert steps == ["pay#1"]
    assert "write await pay(...)" in str(ended)


@virtual
async def test_calls_that_are_closed_cancelled_or_gathered_do_not_count_as_forgotten(lab: Lab):
    async def body(run: Run, given: str) -> str:
        pay(1).close()
        asyncio.create_task(pay(2)).cancel()
        await asyncio.gather(*(pay(cents) for cents in range(200)))
        return "done"

    ended, _ = await perform(lab, body)
    assert ended == "done"
    assert len(sent) == 200


@virtual
async def test_a_call_is_found_however_many_were_made_after_it(lab: Lab):
    async def body(run: Run, given: str) -> str:
        pay(-1)  # pyright: ignore[reportUnusedCoroutine]  # the mistake
        for cents in range(150):
            await pay(cents)
        return "done"

    ended, _ = await perform(lab, body)
    assert "never awaited" in str(ended)
