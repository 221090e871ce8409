"""Errors that no code of ours expects: what a process holds is given back, for others may do better."""

from typing import Any

import pytest

from beforehand import Run, agent
from beforehand.engine import run_driver
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_a_defect_does_not_keep_a_run_from_other_processes(lab: Lab):
    conclude, raised = run_driver._conclude, list[KeyError]()

    async def defective(*given: Any) -> Any:
        if not raised:
            raised.append(KeyError("a defect"))
            raise raised[0]
        return await conclude(*given)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return name

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_driver, "_conclude", defective)
        async with lab.app(desk, recover=False) as first:
            with pytest.raises(KeyError):
                await first.run(desk, "ann")
            await lab.pass_time(seconds=1)
            async with lab.app(desk, recover=False) as second:
                assert await second.run(desk, "ann") == "ann"
