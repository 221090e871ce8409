"""The synchronous face, used where it cannot be."""

from pathlib import Path

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.errors import UsageError


@agent(run_id="echo-{text}", tools=[])
async def echo(run: Run, text: str) -> str:
    return text


def test_an_app_that_was_closed_says_so(tmp_path: Path):
    with Beforehand(tmp_path / "j.db", agents=[echo]) as app:
        assert app.run(echo, "1") == "1"
    with pytest.raises(UsageError, match="the app is closed"):
        app.run(echo, "1")
    with pytest.raises(UsageError, match="the app is closed"):
        list(app.map(echo, ["1"]))


def test_code_on_the_loop_of_the_app_does_not_wait_for_itself(tmp_path: Path):
    @agent(run_id="outer-{text}", tools=[])
    async def outer(run: Run, text: str) -> str:
        return app.run(echo, text)

    with Beforehand(tmp_path / "j.db", agents=[echo, outer]) as app, pytest.raises(UsageError, match="wait for itself"):
        app.run(outer, "1")
