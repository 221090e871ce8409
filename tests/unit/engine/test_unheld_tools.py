"""A tool that the app does not hold could not be found again after a crash: it is refused before it is sent."""

import asyncio

import pytest

from beforehand import Beforehand, Run, agent, tool
from beforehand.errors import UnknownTool

sent: list[str] = []


def hidden():
    @tool
    async def mail(to: str) -> str:
        sent.append(to)
        return "sent"

    return mail


@agent(run_id="mail-{to}", tools=[])
async def mailer(run: Run, to: str) -> str:
    return await hidden()(to)


def test_a_tool_that_recovery_could_not_find_is_refused(tmp_path):
    async def main():
        async with Beforehand(tmp_path / "j.db", agents=[mailer]) as app:
            with pytest.raises(UnknownTool, match=r"tools=\[mail\]"):
                await app.run(mailer, "ada")

    asyncio.run(main())
    assert sent == []
