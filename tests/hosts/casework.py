"""What the cases of all hosts share. A case is a process: `python -m tests.hosts.langchain_cases CASE DIRECTORY`."""
# ruff: noqa: PT017 - it runs in environments without pytest

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from beforehand import Beforehand, RunSuspended, tool
from beforehand.engine.settings import Settings
from beforehand.errors import UsageError
from beforehand.model.records import DecisionRecorded
from beforehand.model.usage import Usage
from beforehand.queues.call_limits import ModelLimit
from beforehand.queues.limits import DeclaredLimits

CASE, DIRECTORY = sys.argv[1], Path(sys.argv[2])
SENT: list[str] = []
"""What landed outside, in order."""
SERVED = "tools of an MCP server"
"""How the names of cases begin whose agent has the tools of a server."""
SERVER = ["-m", "tests.hosts.mcp_server", str(DIRECTORY), CASE]
"""The words after `python` that start that server."""
Act = Callable[[Beforehand], Awaitable[None]]


@tool
async def mail(to: str) -> str:
    """Send a mail."""
    SENT.append(to)
    return f"mail to {to}"


@tool(gate="true")
async def close() -> str:
    """Close the desk; a person is asked first, so that the code of the run comes here twice."""
    return "closed"


async def run(desk: Any, then: Act | None = None) -> Any:
    """Drive the run r1 of this agent, and let a person act on the open app where it waits."""
    async with Beforehand(DIRECTORY / "desk.db", agents=[desk], recover=False) as app:
        try:
            return await asyncio.wait_for(app.run(desk, "go", run_id="r1"), 60)
        except RunSuspended as waits:
            if then is not None:
                await then(app)
            return f"waits: {waits.message}"


async def used(desk: Any, model: str) -> list[Usage]:
    """The usage on record of each answer of a model. Checks that a limit of this model holds for the agent, too."""
    await _limited(desk, model)
    async with Beforehand(DIRECTORY / "desk.db", agents=[desk], recover=False) as app:
        rows = app.service.reader.records("r1", 0, DecisionRecorded)
        return [record.usage async for _, record in rows if isinstance(record, DecisionRecorded)]


async def _limited(desk: Any, model: str) -> None:
    """Check that a limit of the model holds for what this agent asks: another run has to wait for its first question."""
    limits, ended = DeclaredLimits(models={model: ModelLimit(rate="1/day")}), ""
    options: dict[str, Any] = {"queues": limits, "settings": Settings(hold_ms=0), "recover": False}
    async with Beforehand(DIRECTORY / "limited.db", agents=[desk], **options) as app:
        for name in ("first", "limited"):
            try:
                ended = str(await asyncio.wait_for(app.run(desk, "go", run_id=name), 60))
            except RunSuspended as waits:
                ended = waits.message
    assert f"the limit of model {model} is reached" in ended, ended


async def routed(desk: Any, model: str) -> None:
    """Check that this model, the second of a route, answered each turn, and that the reason is on record."""
    async with Beforehand(DIRECTORY / "desk.db", agents=[desk], recover=False) as app:
        assert await app.run(desk, "go", run_id="r1") == "paid 5"
        assert await app.run(desk, "go", run_id="r1") == "paid 5"
        decided = [one async for _, one in app.service.reader.records("r1", 0, DecisionRecorded)]
        reasons = [getattr(one, "why", "")[:43] for one in decided]
        assert reasons == ["down failed (rate_limited): Down: status 429"[:43]] * 2, reasons
        assert [getattr(one, "model", "") for one in decided] == [model] * 2, decided
    assert SENT == ["5"]


class Down(Exception):
    """The error of a model's service that refuses requests for a while."""

    status_code = 429

    def __init__(self) -> None:
        super().__init__("status 429")


async def refused(desk: Any, text: str, kind: type[Exception] = UsageError, sent: int = 0) -> None:
    """Check that the run ends with an error of this text, after so many effects."""
    try:
        answer = await run(desk)
    except kind as error:
        assert text in str(error), error
        assert len(SENT) == sent, SENT
    else:
        raise AssertionError(answer)


def paid_at_server() -> None:
    """Check what the server of the case counted in its own process: one payment, and those of attempts at a read."""
    paid = (DIRECTORY / "paid").read_text().split()
    assert set(paid) == {"5"}, paid
    assert len(paid) == 1 or "read" in CASE, paid


async def waiting(app: Beforehand) -> str:
    """The one operation that the suspended run waits for."""
    (row,) = await app.engine.journal.runs(run="r1")
    assert row.status == "suspended", row
    history = await app.service.history("r1")
    (step,) = [step for step, one in history.operations.items() if one.phase not in ("succeeded", "failed")]
    return f"r1/{step}"


async def approve(app: Beforehand) -> None:
    """A person approves it."""
    await app.service.approve(await waiting(app), by="ann")


async def decline(app: Beforehand) -> None:
    """A person declines it."""
    await app.service.decline(await waiting(app), by="ann", why="too much")


async def resolve(app: Beforehand) -> None:
    """A person says that it happened."""
    await app.service.resolve(await waiting(app), "happened", by="ann", result="paid, says ann")
