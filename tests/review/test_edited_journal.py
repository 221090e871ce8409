"""A journal that was edited by hand: what is not on record would be done again, so nothing is."""

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from beforehand import Beforehand, Run, agent, tool
from beforehand.cli.main import main
from beforehand.errors import ChainBroken, RunSuspended

EDITS = {
    "an operation is gone": "delete from record where body like '%mail#1%'",
    "a record is gone": "delete from record where seq = 3",
    "a result is another one": """update record set content = replace(content, '"sent"', '"none"') where body like '%"sent"%'""",
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
    with Beforehand(file, agents=[desk], recover=False) as app, pytest.raises(RunSuspended):
        app.run(desk, "ann")
    database = sqlite3.connect(file)
    with database:
        assert database.execute(edit).rowcount > 0
    database.close()
    with Beforehand(file, agents=[desk], recover=False) as app, pytest.raises(ChainBroken, match="record"):
        app.run(desk, "ann")
    assert sent == ["ann"]


CUTS = {
    "the ledger is gone": ("delete from ledger", "business key of pay#1"),
    "a success is gone from the ledger": (
        "delete from ledger where id = (select max(id) from ledger)",
        "business key of pay#1",
    ),
    "the listing is gone": ("delete from run", "no run"),
}


@pytest.mark.parametrize(("edit", "named"), CUTS.values(), ids=CUTS.keys())
def test_verify_names_what_was_cut_off(edit: str, named: str, tmp_path: Path):
    @tool(claim="order")
    def pay(order: str) -> str:
        return "paid"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    file = tmp_path / "journal.db"
    with Beforehand(file, agents=[desk], recover=False) as app:
        app.run(desk, "o-1")
    assert CliRunner().invoke(main, ["verify", "--journal", str(file)]).exit_code == 0
    database = sqlite3.connect(file)
    with database:
        assert database.execute(edit).rowcount > 0
    database.close()
    checked = CliRunner().invoke(main, ["verify", "--journal", str(file)])
    assert checked.exit_code == 4
    assert named in checked.output


def test_verify_tells_of_records_that_only_the_anchor_knows(tmp_path: Path):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return name

    file = tmp_path / "journal.db"
    with Beforehand(file, agents=[desk], recover=False) as app:
        app.run(desk, "ann")
    database = sqlite3.connect(file)
    with database:
        database.execute("delete from record where id = (select max(id) from record)")
    database.close()
    assert "the anchor knows" in CliRunner().invoke(main, ["verify", "--journal", str(file)]).output
