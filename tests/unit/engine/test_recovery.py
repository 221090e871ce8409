"""Abandoned runs are driven by any process that opens the journal and knows their agent."""

import asyncio
import os
import subprocess
import sys
import textwrap

from beforehand import Beforehand, Run, agent, tool
from beforehand.engine.settings import Settings

PROGRAM = """
    import asyncio, os, sys
    from datetime import timedelta
    from beforehand import Beforehand, Run, agent, tool, Key, current_operation

    @tool(idempotency=Key.forever())
    async def pay(cents: int) -> str:
        with open(sys.argv[2], "a") as effects:
            effects.write(current_operation().key + "\\n")
        if sys.argv[3] == "die":
            os._exit(9)
        return "paid"

    @agent(run_id="order-{order}")
    async def desk(run: Run, order: int) -> str:
        return await pay(order)

    async def main() -> None:
        async with Beforehand(sys.argv[1], agents=[desk]) as app:
            if sys.argv[3] == "die":
                await app.run(desk, 1)
            while (await app.service.row("order-1")).status != "completed":
                await app.engine.environment.clock.sleep(0.02)

    asyncio.run(main())
"""


def test_a_process_that_only_opens_the_app_finishes_what_a_dead_one_began(tmp_path):
    program = tmp_path / "desk.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, str(program), str(tmp_path / "j.db"), str(tmp_path / "effects")]
    assert subprocess.run([*command, "die"], check=False, env=os.environ).returncode == 9
    subprocess.run([*command, "live"], check=True, timeout=60)
    keys = (tmp_path / "effects").read_text().split()
    assert len(keys) == 2, "the retry went out under the same key"
    assert len(set(keys)) == 1


@tool
async def note() -> None:
    """A write of no consequence."""


@agent(run_id="other-{number}")
async def other(run: Run, number: int) -> None:
    await note()


def test_runs_of_unknown_agents_are_left_to_others(tmp_path):
    async def main():
        settings = Settings(recover_every_ms=20)
        async with Beforehand(tmp_path / "j.db", agents=[other]) as first:
            await first.run(other, 1)
        async with Beforehand(tmp_path / "j.db", settings=settings) as app:
            assert app.agents == {}
            row = await app.service.row("other-1")
            assert row.status == "completed"

    asyncio.run(main())
