"""The inbox is put in order before it is put into words: what is shown is what the whole list would begin with."""

import asyncio
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from beforehand.inspect import reader as looking_module
from beforehand.inspect.reader import JournalReader
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import ClaimRequest, LeaseGranted, NewRun, RunChange, RunStatus, Write
from beforehand.model.system import PLANTED, PREFIX
from beforehand.model.waits import PEOPLE, ListedWait
from beforehand.people.assignments import Handing, handing_post
from beforehand.people.items import InboxItem, ItemFilter, items, placed, worded

NOW_MS = 1000
WAIT = st.builds(
    ListedWait,
    st.sampled_from([*PEOPLE, "timer", "answer", "message"]),
    st.sampled_from(["pay#1", "pay#2", "trip/", "trip/book#1"]),
    st.sampled_from(["may it be sent?", "asks: how much?", "run r1 asks: so?"]),
    st.none() | st.integers(0, 5),
    st.integers(0, 3),
    st.sampled_from(["", "money", "travel"]),
    st.sampled_from(["", "pay"]),
)
AGENTS = st.sampled_from(["desk", f"{PLANTED}desk", f"{PREFIX}webhooks"])
STATES = st.sampled_from(["suspended", "stopped"])
RUNS = st.lists(st.tuples(AGENTS, STATES, st.lists(WAIT, max_size=3, unique_by=lambda wait: wait.step)), max_size=7)
HANDINGS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from(["pay#1", "pay#2"]),
        st.sampled_from([
            Handing("delegate", "ann", to="bea"),
            Handing("delegate", "ann", queue="travel"),
            Handing("snooze", "ann", until_ms=NOW_MS + 5),
            Handing("snooze", "ann", until_ms=NOW_MS - 5),
            Handing("escalate", "ann"),
        ]),
    ),
    max_size=6,
)  # fmt: skip
Runs = Sequence[tuple[str, RunStatus, list[ListedWait]]]


async def filled(runs: Runs, handings: Sequence[tuple[int, str, Handing]]) -> JournalReader:
    journal = MemoryJournal(lambda: NOW_MS)
    identity = await journal.open()
    for number, (agent, status, waits) in enumerate(runs):
        claimed = await journal.commit(ClaimRequest(f"r{number}", "w", NewRun(agent)))
        assert isinstance(claimed, LeaseGranted)
        change = RunChange(status, waits=msgspec.json.encode(waits), release=True)
        await journal.commit(Write(claimed.lease, change=change))
    for number, step, one in handings:
        await journal.commit(handing_post(f"r{number}", step, one))
    return JournalReader(journal, identity)


def place(one: InboxItem) -> tuple[object, ...]:
    """The order, read off what is shown."""
    return one.rests_ms, -one.escalated, one.due_ms is None, one.due_ms or 0, one.since_ms, one.item


def names(runs: Runs) -> list[str]:
    """Everything that people are asked: the notices of the system itself are no question to them."""
    return sorted(
        f"r{number}/{wait.step}".rstrip("/")
        for number, (agent, _, waits) in enumerate(runs)
        for wait in waits
        if wait.kind in PEOPLE and agent != f"{PREFIX}webhooks"
    )


@settings(max_examples=150, deadline=None)
@given(RUNS, HANDINGS, st.sampled_from([ItemFilter(), ItemFilter("bea"), ItemFilter("bea", "travel")]))
def test_what_is_shown_is_what_the_whole_list_begins_with(
    runs: Runs, handings: list[tuple[int, str, Handing]], wanted: ItemFilter
):
    async def main() -> None:
        reader = await filled(runs, handings)
        whole = await items(reader, now_ms=NOW_MS)
        assert sorted(one.item for one in whole) == names(runs)
        assert whole == sorted(whole, key=place)
        mine = [one for one in whole if _is_wanted(one, wanted)]
        cut = await placed(reader, wanted, now_ms=NOW_MS)
        assert len(cut) == len(mine), "the count is that of all"
        for limit in range(len(mine) + 1):
            assert [worded(one) for one in cut[:limit]] == mine[:limit]

    asyncio.run(main())


def _is_wanted(one: InboxItem, wanted: ItemFilter) -> bool:
    return wanted == ItemFilter() or one.to == wanted.mine or bool(wanted.queue and one.queue == wanted.queue)


def test_a_listing_is_read_to_its_end_whatever_fits_a_page(monkeypatch):
    async def read(count: int) -> list[str]:
        reader = await filled([("desk", "suspended", [])] * count, [])
        return [row.run async for row in reader.every_run(status="suspended")]

    monkeypatch.setattr(looking_module, "WHOLE", 3)
    for count in range(8):
        assert asyncio.run(read(count)) == [f"r{number}" for number in range(count)]
