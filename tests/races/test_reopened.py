"""An app that was closed over a call that outlived it, in a process that lives on and opens another one."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from beforehand import Beforehand, DidNotHappen, Operation, Run, Verdict, agent, tool
from beforehand.engine.settings import Settings


@pytest.mark.parametrize("still_running", [False, True])
def test_a_call_that_ended_after_its_app_was_closed_is_over(tmp_path: Path, still_running: bool) -> None:
    go, sent = threading.Event(), []

    @tool(timeout=timedelta(seconds=1))
    def slow(x: str) -> str:
        sent.append(x)
        go.wait()
        return "ok"

    @slow.verify(settle_window=timedelta(0), every=timedelta(milliseconds=20), deadline=timedelta(milliseconds=200))
    async def look(operation: Operation[str]) -> Verdict[str]:
        return DidNotHappen()

    @agent(run_id="r-{n}", tools=[slow])
    async def desk(run: Run, n: str) -> str:
        return await slow(n)

    settings = Settings(grace_ms=1, pause_bound_ms=1, lease_ms=300, margin_ms=50)

    async def main() -> None:
        async with Beforehand(tmp_path / "j.db", agents=[desk], settings=settings, recover=False) as first:
            first.start(desk, "x")
            while not sent:  # noqa: ASYNC110 - the tool's thread sets no event of this loop
                await asyncio.sleep(0)
        if not still_running:
            go.set()  # the thread of the closed app ends: its call is over
        async with Beforehand(tmp_path / "j.db", agents=[desk], settings=settings, recover=False) as second:
            if still_running:
                with pytest.raises(TimeoutError):  # absence is not believed while the old thread may still send
                    await asyncio.wait_for(second.run(desk, "x"), 1)
                assert sent == ["x"]
                go.set()
            # The thread's own answer was lost; its end is proven, so that absence can be believed.
            assert await asyncio.wait_for(second.run(desk, "x"), 5) == "ok"

    asyncio.run(main())
