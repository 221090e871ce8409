"""The reason of a stopped run in the pages and in a notice: without the commands that its error recorded."""

from typing import Any

import pytest

from beforehand import Ambiguous, Run, agent, tool
from beforehand.errors import OutcomeUnknown
from beforehand_console.notify.compose import line_of
from beforehand_console.notify.schedule import NotifiedItem
from tests.unit.console.web.stand import standing
from tests.unit.engine.lab import Lab, virtual


def desk_of() -> Any:
    @tool(on_unknown="raise")
    async def pay(cents: int) -> str:
        raise Ambiguous("the connection broke")

    @agent(run_id="pay-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(5)

    return desk


@virtual
async def test_a_stopped_run_is_shown_without_recorded_commands(lab: Lab):
    desk = desk_of()
    async with standing(lab, begun=(), agents=[desk]) as stand, await stand.client("bea") as client:
        with pytest.raises(OutcomeUnknown):
            await stand.app.run(desk, "eve")
        history = await stand.app.service.history("pay-eve")
        halted = history.lifecycle.halted
        assert halted is not None
        assert "Next: beforehand why pay-eve/pay#1" in halted.error
        for page in ("/inbox", "/inbox/pay-eve", "/runs", "/runs/pay-eve"):
            text = (await client.get(page)).text
            assert "an attempt may have landed" in text, page
            assert "beforehand why" not in text, page
        about = NotifiedItem(f"pay-eve@{halted.at}", "new")
        line = await line_of(stand.app.service.reader, about)
        assert line is not None
        assert line.asks.startswith("it cannot go on: OutcomeUnknown: ")
        assert "beforehand resolve" not in line.asks
