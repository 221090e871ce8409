"""Who answers several at once hears of each word that came too late, although all of them are on record."""

from datetime import timedelta
from typing import Any

from beforehand.control.command_sink import DirectSink
from beforehand.control.service import ControlService
from beforehand.journal.port import LedgerEntry, Post
from beforehand.people import answers as a
from beforehand.people.answering import OneOf, answer_all
from beforehand.policies import Gate
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.refunds import REFUND, asked, refunds


class SlowDisk(DirectSink):
    """Words that are in the ledger an hour after they were judged."""

    def __init__(self, lab: Lab, app: Any) -> None:
        super().__init__(app.engine)
        self._lab = lab

    async def post(self, *posts: Post) -> LedgerEntry:
        await self._lab.pass_time(hours=1)
        return await super().post(*posts)


@virtual
async def test_who_says_yes_to_several_is_told_which_of_them_came_too_late(lab: Lab):
    desk = refunds(lab, gate=Gate("true", within=timedelta(minutes=30)))
    async with lab.app(desk, poll_ms=7_200_000, recover_every_ms=7_200_000) as app:
        await asked(app, desk)
        slow = ControlService(app.engine, SlowDisk(lab, app))
        (applied,) = await answer_all(slow, [OneOf(REFUND, a.Approve())], by="bea")
        assert (applied.at_once, applied.alert) == (True, True)
        assert applied.note == "the answer of bea was refused: the time to answer refund#1 was over"
        assert await app.run(desk, "ann") == "expired: no yes or no came in time"
    assert lab.sent == []
