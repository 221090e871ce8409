"""What is said again, or sent again on a person's word: an old key, and a word whose process died."""

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.control.command_sink import DirectSink
from beforehand.control.service import ControlService
from beforehand.engine.commands import Applied
from beforehand.errors import JournalUnavailable, UsageError
from beforehand.model import records as r
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.items import items
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual
from tests.unit.people.test_answers import begun, lost


def cut_off(lab: Lab) -> Any:
    """An agent whose payment goes out under a key that is remembered for two hours, and is never answered."""

    @tool(idempotency=Key(ttl=timedelta(hours=2)), retry=Retry(attempts=1))
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents} under {current_operation().key[:3]}")
        raise ConnectionResetError("the line was cut")

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(7)

    return desk


@virtual
async def test_a_key_that_the_system_may_have_forgotten_sends_nothing_again(lab: Lab):
    """It would be a second effect, and the person who orders it was told that the system knows the first one by its key."""

    desk = cut_off(lab)
    async with lab.app(desk) as app:
        await begun(app, desk)
        await answer(app.service, "r-ann/pay#1", a.RetrySameKey(), by="bea")
        await begun(app, desk)
        assert len(lab.sent) == 2
        await lab.pass_time(seconds=3 * 3600)
        with pytest.raises(UsageError, match="the system may have forgotten it"):
            await answer(app.service, "r-ann/pay#1", a.RetrySameKey(), by="bea")
    assert len(lab.sent) == 2


@virtual
async def test_a_key_that_is_forgotten_before_its_run_goes_on_sends_nothing_again(lab: Lab):
    """The answer came in time, and no process drove the run until it was too late: a person is asked again."""
    desk = cut_off(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await begun(app, desk)
        await answer(app.service, "r-ann/pay#1", a.RetrySameKey("the bank says so"), by="bea")
        await lab.pass_time(seconds=3 * 3600)
        await begun(app, desk)
        assert len(lab.sent) == 1
        (asked,) = await items(app.service.reader)
        assert (asked.kind, asked.item) == ("review", "r-ann/pay#1")
        (word,) = lab.of("r-ann", r.Resolved)
        assert (word.word, word.evidence) == ("same_key", "the bank says so")


class Dying(DirectSink):
    """The process that answers dies once the answer is in the ledger, before its run has it."""

    async def apply(self, run: str, answered: str) -> Applied:
        raise JournalUnavailable(f"{run} {answered}: it died")


@virtual
async def test_a_word_whose_process_died_is_had_by_its_run_once_it_is_said_again(lab: Lab):
    desk = lost(lab)
    async with lab.app(desk) as app:
        await begun(app, desk)
        with pytest.raises(JournalUnavailable):
            await ControlService(app.engine, Dying(app.engine)).resolve("r-ann/pay#1", "did_not_happen", by="bea")
        assert not lab.of("r-ann", r.Resolved)
        with pytest.raises(UsageError, match="already answered by bea"):
            await app.service.resolve("r-ann/pay#1", "did_not_happen", by="bea")
        assert len(lab.of("r-ann", r.Resolved)) == 1


@virtual
async def test_an_answer_whose_process_died_wakes_its_run_once_it_is_said_again(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await run.ask("Which city?", choices=("Paris", "Rome"))

    async with lab.app(desk) as app:
        await begun(app, desk)
        before = await app.service.row("r-ann")
        with pytest.raises(JournalUnavailable):
            await ControlService(app.engine, Dying(app.engine)).answer("r-ann/ask#1", "Rome", by="bea")
        with pytest.raises(UsageError, match="already answered by bea"):
            await app.service.answer("r-ann/ask#1", "Rome", by="bea")
        woken = await app.service.row("r-ann")
        assert woken.token > before.token
        assert await app.run(desk, "ann") == "Rome"
