"""Findings of the monitors as webhooks: each is sent once when it comes and once when it is over, whatever dies when."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from beforehand import Beforehand, Run, agent
from beforehand.errors import JournalUnavailable
from beforehand.inspect.monitors import FINDINGS
from beforehand.inspect.monitors.findings import (
    AGAIN_MS,
    Acknowledgement,
    FindingRaised,
    acknowledge,
    record_findings,
    shown_findings,
)
from beforehand.inspect.monitors.rules import SilentFailure
from beforehand.journal.port import Post
from beforehand.model.webhooks import ABOUT_RUNS, OUTBOX, Kind, Note
from beforehand.webhooks.outgoing import Webhooks
from tests.unit.engine.lab import Lab, virtual
from tests.unit.webhooks.receiver import Receiver, receiving

COST = SilentFailure("cost", "desk", 7, "1 run far above", ["t-1 used 9 tokens"], "beforehand show t-1", "5d41c7a0", 5)
QUEUE = SilentFailure("queue", "desk", 7, "1 run waits", ["t-2 waits"], "beforehand queues", "77aa00ff", 5)
BOTH: tuple[Kind, ...] = ("finding.raised", "finding.ended")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_SECRET", "whsec_" + base64.b64encode(os.urandom(24)).decode())


@agent(run_id="r-{name}", tools=())
async def greet(run: Run, name: str) -> str:
    return f"hello {name}"


class Desk(msgspec.Struct):
    """An open app with one endpoint, and looks of a worker's monitors that find what a test says."""

    lab: Lab
    app: Beforehand
    ops: Receiver

    async def look(self, *findings: SilentFailure) -> None:
        """Record what is found, and let time pass in which notices are sent."""
        await record_findings(self.lab.journal, self.app.engine.outbox, findings, self.lab.clock.wall_ms())
        await self.lab.pass_time(minutes=1)

    async def acknowledge(self, one: SilentFailure) -> None:
        """Ann has seen a finding with all its evidence."""
        seen = Acknowledgement(one.id, one.newest_ms, "ann")
        await acknowledge(self.lab.journal, self.app.engine.outbox, seen, self.lab.clock.wall_ms())

    async def listen(self, *kinds: Kind) -> None:
        note = Note("add", "ops", "bea", url=self.ops.url, secrets=("OPS_SECRET",), kinds=kinds)
        await Webhooks(self.app.service).add(note)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.ops.came]

    @property
    def told(self) -> list[tuple[str, str, str]]:
        return sorted((one["type"], one["data"]["id"], one["data"]["reason"]) for one in self.bodies)


@asynccontextmanager
async def desk(lab: Lab, *kinds: Kind) -> AsyncGenerator[Desk]:
    with receiving() as ops:
        async with lab.app(greet, recover=True, private_webhooks=True) as app:
            made = Desk(lab, app, ops)
            await made.listen(*kinds)
            yield made


@virtual
async def test_a_finding_is_sent_once_with_its_evidence_and_once_more_when_it_is_over(lab: Lab):
    async with desk(lab, *BOTH) as one:
        began = lab.clock.wall_ms()
        for _ in range(3):
            await one.look(COST, QUEUE)
        raised = next(body for body in one.bodies if body["data"]["id"] == COST.id)
        assert one.told == [("finding.raised", COST.id, ""), ("finding.raised", QUEUE.id, "")]
        await one.look(QUEUE)
        await one.look(QUEUE)
        assert one.told[0] == ("finding.ended", COST.id, "over")
        assert len(one.told) == len(set(one.ops.ids)) == 3
    assert raised["data"] == {
        "rule": "cost", "agent": "desk", "at_ms": 7, "what": "1 run far above", "evidence": ["t-1 used 9 tokens"],
        "command": "beforehand show t-1", "id": "5d41c7a0", "newest_ms": 5, "since_ms": began, "reason": "",
    }  # fmt: skip


@virtual
async def test_an_acknowledged_finding_has_ended_until_there_is_newer_evidence(lab: Lab):
    async with desk(lab, *BOTH) as one:
        await one.look(COST)
        await one.acknowledge(COST)
        await one.acknowledge(COST)
        await one.look(COST)
        assert one.told == [("finding.ended", COST.id, "acknowledged"), ("finding.raised", COST.id, "")]
        await one.look(msgspec.structs.replace(COST, newest_ms=6))
        assert [kind for kind, _, _ in one.told] == ["finding.ended", "finding.raised", "finding.raised"]
        assert len(set(one.ops.ids)) == 3


@virtual
async def test_only_an_endpoint_that_asks_is_sent_findings_and_only_those_from_then_on(lab: Lab):
    assert not set(BOTH) & set(ABOUT_RUNS)
    async with desk(lab, *ABOUT_RUNS) as one:
        await one.look(COST)
        assert await lab.journal.entries(OUTBOX) == []
        await one.listen("finding.raised")
        await one.look(COST, QUEUE)
        await one.look()
        assert one.told == [("finding.raised", QUEUE.id, "")]


@pytest.mark.parametrize("stored", [False, True])
@virtual
async def test_a_look_that_dies_at_any_call_loses_no_notice_and_posts_none_again(lab: Lab, stored: bool):
    async with desk(lab, *BOTH) as one:
        for call in (1, 2):  # it reads the ledger, and commits
            lab.journal.fail_next(call, JournalUnavailable("the disk"), stored=stored)
            with pytest.raises(JournalUnavailable):
                await record_findings(lab.journal, one.app.engine.outbox, [COST], lab.clock.wall_ms())
        await one.look(COST)
        await one.look()
    assert one.told == [("finding.ended", COST.id, "over"), ("finding.raised", COST.id, "")]
    assert len(await lab.journal.entries(OUTBOX)) == len(await lab.journal.entries(FINDINGS)) == 2


@virtual
async def test_of_looks_and_acknowledgements_at_once_each_is_recorded_once(lab: Lab):
    async with desk(lab, *BOTH) as one, lab.app(greet) as other:
        lab.lag_s = 0.01  # so that each comes between the calls of the other
        now_ms, outboxes = lab.clock.wall_ms(), (one.app.engine.outbox, other.engine.outbox)
        await asyncio.gather(*(record_findings(lab.journal, box, [COST, QUEUE], now_ms) for box in outboxes))
        assert len(await lab.journal.entries(FINDINGS)) == 2
        seen = Acknowledgement(COST.id, COST.newest_ms, "ann")
        await asyncio.gather(
            *(acknowledge(lab.journal, box, seen, now_ms) for box in outboxes),
            record_findings(lab.journal, outboxes[0], [COST], now_ms),
        )
        lab.lag_s = 0
        await one.look(COST)
        assert len(await lab.journal.entries(FINDINGS)) == 5, "two people have acknowledged it, one is over"
    assert one.told == [
        ("finding.ended", COST.id, "acknowledged"), ("finding.ended", QUEUE.id, "over"),
        ("finding.raised", COST.id, ""), ("finding.raised", QUEUE.id, ""),
    ]  # fmt: skip


@virtual
async def test_newer_evidence_of_what_goes_on_is_recorded_now_and_then_and_not_sent(lab: Lab):
    async with desk(lab, *BOTH) as one:
        began = lab.clock.wall_ms()
        for later_ms in (0, 1, AGAIN_MS - 1, AGAIN_MS, 2 * AGAIN_MS - 1):
            newest = msgspec.structs.replace(COST, at_ms=COST.at_ms + later_ms, newest_ms=COST.newest_ms + later_ms)
            await one.look(newest)
        await one.look(msgspec.structs.replace(COST, at_ms=COST.at_ms + 9 * AGAIN_MS, newest_ms=COST.newest_ms))
        (shown,) = await shown_findings(lab.journal)
        assert len(await lab.journal.entries(FINDINGS)) == 2
        recorded = msgspec.structs.replace(COST, at_ms=COST.at_ms + AGAIN_MS, newest_ms=COST.newest_ms + AGAIN_MS)
        assert shown == FindingRaised(recorded, began)
        await one.acknowledge(COST)
        assert await shown_findings(lab.journal) == [shown], "it has newer evidence"
    assert one.told == [("finding.raised", COST.id, "")]


@virtual
async def test_an_entry_that_cannot_be_read_stops_no_look(lab: Lab):
    async with desk(lab, *BOTH) as one:
        await one.look(COST)
        (entry,) = await lab.journal.entries(FINDINGS)
        await lab.journal.commit(Post(FINDINGS, f"{COST.id}/{entry.id}", b'{"type":"of a later version"}'))
        await one.look(QUEUE)
        await one.look(COST, QUEUE)
    assert [kind for kind, _, _ in one.told] == ["finding.ended", "finding.raised", "finding.raised", "finding.raised"]
