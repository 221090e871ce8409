"""Orders and declarations that cannot mean what they say."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from beforehand import Beforehand, Run, agent, tool
from beforehand.cli.main import main
from beforehand.errors import ContractError


def test_nobody_is_told_that_a_completed_run_was_called_off(tmp_path: Path):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return name

    file = tmp_path / "journal.db"
    with Beforehand(file, agents=[desk], recover=False) as app:
        app.run(desk, "1")
    for order in ("cancel", "pause"):
        told = CliRunner().invoke(main, [order, "r-1", "--journal", str(file)])
        assert told.exit_code == 2, told.output
        assert "has completed" in told.output


def test_a_redacted_parameter_is_no_business_key():
    async def pay(iban: str) -> str:
        return iban

    with pytest.raises(ContractError, match="iban is redacted"):
        tool(claim="iban", redact=("iban",))(pay)
