"""An answer from another process at every moment of a run with a second branch: the run continues, and ends alike."""

import asyncio
from typing import Any

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import RunSuspended
from beforehand.journal.port import Write
from beforehand.people import answers as a
from beforehand.people.answering import answer
from tests.unit.engine.lab import DAY, Lab, run_virtual

LAG_S = 0.02
CALL_S = 0.1
GATED = "p-ann/~2/pay#1"


def payer(lab: Lab) -> Any:
    """Two branches: the call of one takes a moment, and a person is asked about the other."""

    @tool(idempotency=Key.forever())
    async def write(text: str) -> str:
        await asyncio.sleep(CALL_S)
        lab.sent.append(f"{text} {current_operation().key[:2]}")
        return text

    @tool(idempotency=Key.forever(), gate="true")
    async def pay(cents: int) -> str:
        lab.sent.append(f"{cents} {current_operation().key[:2]}")
        return "paid"

    async def second() -> str:
        return (await pay.outcome(9)).status

    @agent(run_id="p-{name}", tools=[write, pay])
    async def desk(run: Run, name: str) -> list[str]:
        return list(await run.gather(write("letter"), second()))

    return desk


async def answered_after(ms: int, given: Any) -> tuple[Lab, object]:
    """The lab, and the result of a run that another process answered so many milliseconds after it asked.

    What the driving process appends is durable only after a moment.
    """
    lab = Lab()
    desk = payer(lab)
    async with lab.app(desk, poll_ms=5) as app, lab.app(desk, poll_ms=5) as other:

        async def append(write: Write) -> None:
            await lab.journal.commit(write)
            await asyncio.sleep(LAG_S)

        vars(lab.processes[0])["append"] = append
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await asyncio.sleep(LAG_S + ms / 1000)
        await answer(other.service, GATED, given, by="bea")
        try:
            return lab, await running
        except RunSuspended:
            return lab, await app.run(desk, "ann")


@pytest.mark.parametrize(
    ("given", "told", "sent"),
    [(a.StandIn("in cash"), "succeeded", 1), (a.Decline(why="too much"), "failed", 1), (a.Approve(), "succeeded", 2)],
    ids=["answered", "declined", "approved"],
)
def test_a_run_goes_on_whenever_an_answer_arrives(given: Any, told: str, sent: int):
    async def sweep() -> None:
        for ms in range(1, 160, 3):
            lab, result = await answered_after(ms, given)
            assert result == ["letter", told], f"after {ms} ms"
            assert len(lab.sent) == sent, f"after {ms} ms"

    run_virtual(sweep(), limit=DAY)
