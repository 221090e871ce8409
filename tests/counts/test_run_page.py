"""The page of a run costs the same however long the run is: what it reads, and what it shows."""

from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import RunSuspended
from beforehand.inspect.timeline import timeline, timeline_entries
from beforehand.journal.memory import MemoryJournal
from beforehand.model.run_history import RunHistory
from beforehand_console.web import listing
from beforehand_console.web.listing import RECORDS
from tests.unit.console.web.stand import standing
from tests.unit.engine.lab import Lab, virtual


class Counted:
    """What a page reads from the journal, and how many records it folds."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.reads = self.rows = self.folded = 0
        read, add = MemoryJournal.read, RunHistory.add

        async def counted_read(journal: MemoryJournal, *args: Any, **named: Any) -> Any:
            rows = await read(journal, *args, **named)
            self.reads, self.rows = self.reads + 1, self.rows + len(rows)
            return rows

        def counted_add(history: RunHistory, record: Any) -> None:
            self.folded += 1
            add(history, record)

        patched.setattr(MemoryJournal, "read", counted_read)
        patched.setattr(RunHistory, "add", counted_add)


def clerk_of(lab: Lab) -> Any:
    @tool
    async def pay(number: int) -> int:
        lab.sent.append(f"pay {number}")
        return number

    @agent(tools=[pay], run_id="r-{steps}")
    async def clerk(run: Run, steps: int) -> str:
        for number in range(steps):
            await pay(number)
        return str(await run.ask("go on?"))

    return clerk


@virtual
async def test_a_page_of_5000_steps_costs_what_one_of_500_costs(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    clerk = clerk_of(lab)
    costs: dict[tuple[int, str], tuple[int, ...]] = {}
    async with standing(lab, agents=[clerk], begun=()) as stand, await stand.client("bea") as client:
        for steps in (500, 5000):
            with pytest.raises(RunSuspended):
                await stand.app.run(clerk, steps)
            for where in ("", "?to=600"):
                with monkeypatch.context() as patched:
                    counted = Counted(patched)
                    page = await client.get(f"/runs/r-{steps}{where}")
                assert page.status_code == 200
                shown = page.text.count('<li class="is-')
                assert RECORDS // 2 <= shown <= RECORDS // 2 + 2
                costs[steps, where] = counted.reads, counted.rows, counted.folded, shown
    for where, reads, windows in (("", 2, 2), ("?to=600", 3, 5)):
        assert costs[500, where] == costs[5000, where]
        assert costs[500, where][0] == reads
        assert costs[500, where][1] <= windows * RECORDS + 1


@virtual
async def test_the_pages_of_a_run_show_each_step_of_it(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listing, "RECORDS", 20)
    clerk = clerk_of(lab)
    async with standing(lab, agents=[clerk], begun=()) as stand, await stand.client("bea") as client:
        with pytest.raises(RunSuspended):
            await stand.app.run(clerk, 60)
        address = "/runs/r-60"
        pages: list[str] = []
        while address:
            page = (await client.get(address)).text
            pages.append(page)
            _, found, rest = page.partition('rel="prev" href="')
            address = rest.partition('"')[0] if found else ""
        _, _, rest = pages[-1].partition('rel="next" href="')
        forward = rest.partition('"')[0]
        assert (await client.get(forward)).text == pages[-2]
    assert 6 <= len(pages) <= 8
    for number in range(1, 61):
        assert any(f"<code>pay#{number}</code>" in page for page in pages), number
    assert 'href="/inbox/r-60/ask%231"' in pages[0]


@virtual
async def test_a_run_cut_anywhere_is_told_without_what_came_before(lab: Lab):
    async with standing(lab) as stand:
        for row in await stand.app.service.reader.journal.runs():
            records = [(one.seq, record) async for one, record in stand.app.service.reader.records(row.run)]
            for cut in range(len(records)):
                found = timeline_entries(row.run, records[cut:], cut + 1, len(records), to_end=True)
                whole = timeline(row.run, [record for _, record in records]).entries
                wanted = {getattr(record, "step", "") for _, record in records[cut:]} & {one.step for one in whole}
                assert wanted <= {one.step for one in found}
