"""Expected evidence that cannot be recorded is refused before anything is sent, naming the tool."""

import pytest

from beforehand import DidNotHappen, Operation, Run, Verdict, agent, tool
from beforehand.errors import ArgumentError
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_evidence_has_to_be_json(lab: Lab):
    sent: list[str] = []

    @tool
    async def book(seat: str) -> str:
        sent.append(seat)
        return seat

    @book.verify
    async def look(operation: Operation[str]) -> Verdict[str]:
        return DidNotHappen()

    @book.expect
    def evidence(seat: str) -> object:
        return object()

    @agent(run_id="{seat}")
    async def desk(run: Run, seat: str) -> str:
        return await book(seat)

    async with lab.app(desk) as app:
        with pytest.raises(ArgumentError, match=r"expected evidence of book .*nothing was sent"):
            await app.run(desk, "a")
    assert sent == []
