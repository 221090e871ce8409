"""What an answer costs: the run is read once, when it is shown or answered; under its lease only new records are read."""

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.engine.caches import WORTH_KEEPING
from beforehand.errors import RunSuspended
from beforehand.inspect.reader import JournalReader
from beforehand.journal import record_codec
from beforehand.journal.memory import MemoryJournal
from beforehand.model import records as r
from beforehand.model.run_history import RunHistory
from beforehand.people import answers as a
from beforehand.people.answering import answer, answer_idempotently
from beforehand.people.dossier import dossier, dossier_of
from beforehand.people.loaded_item import load_item
from beforehand.policies import Gate
from tests.unit.console.web.stand import standing
from tests.unit.engine.lab import Lab, virtual

STEPS = WORTH_KEEPING + 40
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

        async def counted_read(journal: MemoryJournal, *args: Any, **options: Any) -> Any:
            rows = await read(journal, *args, **options)
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


async def cost_of(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, way: str, *, shown_here: bool
) -> tuple[int, int, int, int]:
    """Folds, records folded and rows read by one approval, and how many records the run had before it."""
    desk = desk_with(lab, STEPS)
    async with standing(lab, agents=[desk]) as stand, await stand.client("bea") as client:
        service = stand.app.service
        reader = service.reader if shown_here else JournalReader(lab.journal, service.engine.identity)
        shown = (await dossier(reader, PAY)).digest
        before = [one async for one in service.reader.records("r-ann")]
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
                    now = await load_item(service.reader, PAY)
                    await answer_idempotently(service, now, a.Approve(), by="bea", shown=shown)
                case _:
                    await answer(service, PAY, a.Approve(), by="bea", shown=shown)
    return counted.folds, counted.records, counted.rows, len(before)


@pytest.mark.parametrize("way", ["page", "command line", "in code"])
@virtual
async def test_an_approval_folds_the_run_once(lab: Lab, monkeypatch: pytest.MonkeyPatch, way: str):
    folds, records, rows, before = await cost_of(lab, monkeypatch, way, shown_here=False)
    assert before > STEPS
    assert folds == 1
    assert records <= before + 5
    assert rows <= before + 5


@pytest.mark.parametrize("way", ["page", "command line", "in code"])
@virtual
async def test_an_approval_of_what_this_process_has_shown_reads_only_new_records(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, way: str
):
    folds, records, rows, before = await cost_of(lab, monkeypatch, way, shown_here=True)
    assert before > STEPS
    assert (folds, rows) == (0, 0)
    assert records <= 5, "those that the command itself makes"


@virtual
async def test_a_page_folds_the_run_once(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    async with standing(lab, agents=[desk_with(lab, STEPS)]) as stand, await stand.client("bea") as client:
        before = [one async for one in stand.app.service.reader.records("r-ann")]
        with monkeypatch.context() as patched:
            counted = Counted(patched)
            for folds, reads in ((1, 3), (1, 5)):  # the fold, what is shown of its records, and what others answered
                page = await client.get(f"/inbox/{PAY.replace('#', '%23')}")
                assert page.status_code == 200
                assert counted.folds == folds
                assert counted.rows <= reads * len(before)


@virtual
async def test_a_dossier_of_a_long_run_decodes_few_of_its_records(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    decoded: list[bytes] = []
    decode = record_codec.decode

    def counted(body: bytes) -> r.Record:
        decoded.append(body)
        return decode(body)

    desk = desk_with(lab, STEPS)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        item = await load_item(app.service.reader, PAY)
        monkeypatch.setattr(record_codec, "decode", counted)
        await dossier_of(app.service.reader, item)
    assert 0 < len(decoded) < 10, "the fold has read them all; what is shown is about one step"


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
