"""What an answer costs: the run is read when it is answered, and under its lease; nothing else of it is read again."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Run, agent, tool
from holdfast.errors import RunSuspended
from holdfast.journal.memory import MemoryJournal
from holdfast.model.run_history import RunHistory
from holdfast.people import answers as a
from holdfast.people.dossier import dossier
from holdfast.people.idempotent_answers import answer_idempotently
from holdfast.people.loaded_item import load_item
from holdfast.policies import Gate
from tests.unit.console.web.stand import standing
from tests.unit.engine.lab import Lab, virtual

STEPS = 40
PAY = "r-ann/pay#1"


class Counted:
    """Folds of a run's whole record, records folded, and records read from the journal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folds = self.records = self.rows = 0
        add, read = RunHistory.add, MemoryJournal.read

        def counted_add(history: RunHistory, record: Any) -> None:
            self.folds += history.records == 0
            self.records += 1
            add(history, record)

        async def counted_read(journal: MemoryJournal, *args: Any) -> Any:
            rows = await read(journal, *args)
            self.rows += len(rows)
            return rows

        monkeypatch.setattr(RunHistory, "add", counted_add)
        monkeypatch.setattr(MemoryJournal, "read", counted_read)


def desk_with(lab: Lab, steps: int) -> Any:
    """An agent that has recorded this many reads before it asks a person about a payment."""

    @tool(effect="read")
    async def look(number: int) -> int:
        return number

    @tool(gate=Gate("true", within=timedelta(hours=3)))
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        return "paid"

    @agent(tools=[look, pay], run_id="r-{task}")
    async def desk(run: Run, task: str) -> str:
        for number in range(steps):
            await look(number)
        return await pay(9000)

    return desk


async def cost_of(lab: Lab, monkeypatch: pytest.MonkeyPatch, steps: int, way: str) -> tuple[int, int, int, int]:
    """Folds, records folded and rows read by one approval, and how many records the run had before it."""
    desk = desk_with(lab, steps)
    async with standing(lab, agents=[desk]) as stand, await stand.client("bea") as client:
        shown = (await dossier(stand.app.service, PAY)).digest
        before = [one async for one in stand.app.service.looking.records("r-ann")]
        with monkeypatch.context() as patched:
            counted = Counted(patched)
            match way:
                case "page":
                    sent = await client.post(
                        "/api/v1/answers",
                        json={"item": PAY, "answer": {"type": "approve"}, "shown": shown},
                    )
                    assert sent.status_code == 200, sent.text
                case "command line":
                    now = await load_item(stand.app.service.looking, PAY)
                    await answer_idempotently(stand.app.service, now, a.Approve(), by="bea", shown=shown)
                case _:
                    await a.answer(stand.app.service, PAY, a.Approve(), by="bea", shown=shown)
    return counted.folds, counted.records, counted.rows, len(before)


@pytest.mark.parametrize("way", ["page", "command line", "in code"])
@virtual
async def test_an_approval_folds_the_run_when_it_is_answered_and_under_the_lease(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, way: str
):
    folds, records, rows, before = await cost_of(lab, monkeypatch, STEPS, way)
    assert before > STEPS
    assert folds == 2
    assert records <= 2 * before + 5
    assert rows <= 2 * before + 5


@virtual
async def test_housekeeping_reads_the_records_of_a_driven_run_once(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    desk = desk_with(lab, STEPS)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        service = app.service
        assert await service.apply_pending("r-ann")
        counted = Counted(monkeypatch)
        for _ in range(5):
            assert await service.apply_pending("r-ann")
        assert (counted.folds, counted.rows) == (0, 0)
