"""A journal that somebody edited: what is not on record would be done again, so nothing is."""

import sqlite3
from pathlib import Path

import pytest

from holdfast import Holdfast, Run, agent, tool
from holdfast.errors import ChainBroken, RunSuspended

EDITS = {
    "an operation is gone": "delete from record where body like '%mail#1%'",
    "a record is gone": "delete from record where seq = 3",
    "a result is another one": """update record set body = replace(body, '"sent"', '"none"') where body like '%"sent"%'""",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_a_run_with_a_broken_chain_is_not_driven(edit: str, tmp_path: Path):
    sent: list[str] = []

    @tool
    def mail(to: str) -> str:
        sent.append(to)
        return "sent"

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        await mail(name)
        return str(await run.wait_for("word"))

    file = tmp_path / "journal.db"
    with Holdfast(file, agents=[desk], recover=False) as app, pytest.raises(RunSuspended):
        app.run(desk, "ann")
    database = sqlite3.connect(file)
    with database:
        assert database.execute(edit).rowcount > 0
    database.close()
    with Holdfast(file, agents=[desk], recover=False) as app, pytest.raises(ChainBroken, match="record"):
        app.run(desk, "ann")
    assert sent == ["ann"]
