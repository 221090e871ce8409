"""Business keys and events with odd names meet only themselves."""

from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import ArgumentError, RunSuspended
from beforehand.model.ids import stream
from tests.unit.engine.lab import Lab, virtual


def test_no_two_lists_of_parts_have_one_name():
    odd = ["", "a", "a/", "/a", "a/b", "%", "%25", "%2F", "/"]
    names = [stream("event", first, second) for first in odd for second in odd]
    assert len(set(names)) == len(names)
    assert not any(name.endswith("/") for name in names)


@virtual
async def test_a_business_key_with_a_slash_is_not_all_keys_below_it(lab: Lab):
    @tool(claim="order")
    async def pay(order: str) -> str:
        lab.sent.append(order)
        return order

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> list[str]:
        return [await pay("a/b"), await pay("a/"), await pay("a")]

    async with lab.app(desk) as app:
        assert await app.run(desk, "1") == ["a/b", "a/", "a"]


@virtual
async def test_equal_values_are_one_business_key_whatever_their_order(lab: Lab):
    given: dict[str, Any] = {"1": {"a": 1, "b": 2}, "2": {"b": 2, "a": 1}}

    @tool(claim="what")
    async def pay(what: dict[str, int]) -> str:
        lab.sent.append("pay")
        return "paid"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(given[name])

    async with lab.app(desk) as app:
        assert await app.run(desk, "1") == await app.run(desk, "2") == "paid"
    assert lab.sent == ["pay"]


@pytest.mark.parametrize("key", ["", None])
def test_a_business_key_that_names_nothing_is_refused(key: Any):
    @virtual
    async def story(lab: Lab) -> None:
        @tool(claim="order")
        async def pay(order: str | None) -> str:
            lab.sent.append("pay")
            return "paid"

        @agent(run_id="r-{name}", tools=[pay])
        async def desk(run: Run, name: str) -> str:
            return await pay(key)

        async with lab.app(desk) as app:
            with pytest.raises(ArgumentError, match="is not a business key"):
                await app.run(desk, "1")
        assert lab.sent == []

    story()


@virtual
async def test_an_event_with_a_key_is_not_taken_for_one_without(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return [await run.wait_for("approved"), await run.wait_for("a/b", "c")]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "1")
        await app.service.signal("r-1", "approved", key="another order", payload="wrong")
        await app.service.signal("r-1", "a", key="b/c", payload="wrong")
        with pytest.raises(RunSuspended):
            await app.run(desk, "1")
        await app.service.signal("r-1", "approved", payload="yes")
        await app.service.signal("r-1", "a/b", key="c", payload="too")
        assert await app.run(desk, "1") == ["yes", "too"]
