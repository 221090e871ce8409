"""Under another loop than that of asyncio, or under none, an app says what it needs."""

from collections.abc import Coroutine
from typing import Any

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.errors import UsageError
from beforehand.journal.memory import MemoryJournal


@agent(run_id="{name}")
async def desk(run: Run, name: str) -> str:
    return name


def test_an_app_is_not_opened_outside_of_asyncio():
    app = Beforehand(MemoryJournal(lambda: 0), agents=[desk])
    uses: list[Coroutine[Any, Any, Any]] = [app.open(), app.__aenter__()]
    for use in uses:  # trio and curio send into a coroutine like this
        with pytest.raises(UsageError, match="no loop of asyncio runs here"):
            use.send(None)
