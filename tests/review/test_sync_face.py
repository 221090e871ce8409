"""The synchronous face outlives code that wants to end the process."""

from pathlib import Path

import pytest

from beforehand import Beforehand, Run, agent, tool
from beforehand.errors import RunStopped, RunSuspended


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_tool_that_calls_exit_leaves_an_attempt_that_may_have_landed(end: type[BaseException], tmp_path: Path):
    @tool
    async def pay(order: str) -> str:
        raise end

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    with (
        Beforehand(tmp_path / "journal.db", agents=[desk], recover=False) as app,
        pytest.raises(RunSuspended, match="landed"),
    ):
        app.run(desk, "1")


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_an_agent_that_calls_exit_has_stopped(end: type[BaseException], tmp_path: Path):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        raise end

    with Beforehand(tmp_path / "journal.db", agents=[desk], recover=False) as app, pytest.raises(RunStopped):
        app.run(desk, "1")
