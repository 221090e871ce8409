"""Claims of one process: two at once must not take each other's lease for a forgotten one."""

import asyncio
import contextlib

from holdfast import Holdfast, Run, agent, tool
from holdfast.errors import RunSuspended
from holdfast.journal.port import Claimed


@tool
async def note() -> None:
    """A write of no consequence."""


@agent(run_id="wait-{number}")
async def waiter(run: Run, number: int) -> str:
    await note()
    return str(await run.wait_for("go"))


def test_two_claims_at_once_leave_the_lease_with_one(tmp_path):
    async def main():
        async with Holdfast(tmp_path / "j.db", agents=[waiter], recover=False) as app:
            with contextlib.suppress(RunSuspended):
                await app.run(waiter, 1)
            for _ in range(20):
                found = await asyncio.gather(*(app.engine.leases.claim("wait-1") for _ in range(3)))
                claimed = [one for one in found if isinstance(one, Claimed)]
                assert len(claimed) == 1, found
                row = await app.service.row("wait-1")
                assert row.token == claimed[0].lease.token, "somebody gave the lease back under its owner"
                app.engine.leases.let_go("wait-1")

    asyncio.run(main())


def test_a_signal_and_a_run_at_once_end_well(tmp_path):
    async def main():
        for number in range(10):
            async with Holdfast(tmp_path / "j.db", agents=[waiter]) as app:
                with contextlib.suppress(RunSuspended):
                    await app.run(waiter, number)
            async with Holdfast(tmp_path / "j.db", agents=[waiter]) as app:
                _, told = await asyncio.gather(
                    app.service.signal(f"wait-{number}", "go", payload="now"), go_on(app, number)
                )
                assert told == "now"

    async def go_on(app, number):
        while True:
            try:
                return await app.run(waiter, number)
            except RunSuspended:
                continue

    asyncio.run(main())
