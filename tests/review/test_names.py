"""Names that look like the runtime's own would give two effects one key."""

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import ContractError, UsageError
from tests.unit.engine.lab import Lab, virtual

ODD = ["", "pay#2", "~1/pay#1", "q/pay#1", "a\nb", "\x1b[31m", "\ud800", "x" * 201]


@pytest.mark.parametrize("step", ODD)
def test_a_step_is_not_named_like_one_that_the_runtime_names(step: str):
    @virtual
    async def story(lab: Lab) -> None:
        @tool
        async def pay(order: str) -> str:
            lab.sent.append(order)
            return order

        @agent(run_id="r-{name}", tools=[pay])
        async def desk(run: Run, name: str) -> str:
            return await pay.options(step=step)(name)

        async with lab.app(desk) as app:
            with pytest.raises(UsageError, match="cannot name a step"):
                await app.run(desk, "1")
        assert lab.sent == []

    story()


@pytest.mark.parametrize("name", ODD)
def test_a_tool_is_not_named_like_a_place_in_a_run(name: str):
    async def pay(order: str) -> str:
        return order

    with pytest.raises(ContractError, match="cannot name a tool"):
        tool(name=name)(pay)
