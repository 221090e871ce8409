"""Findings of the monitors as webhooks: each is sent once when it comes and once when it is over, whatever dies when."""

import base64
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, Run, agent
from holdfast.inspect.monitors import FINDINGS
from holdfast.inspect.monitors.passes import Acknowledgement, JudgedFindings, acknowledge, announce
from holdfast.inspect.monitors.rules import SilentFailure
from holdfast.model.webhooks import ABOUT_RUNS, OUTBOX, Kind, Note
from holdfast.webhooks.outgoing import Webhooks
from tests.unit.engine.lab import Lab, virtual
from tests.unit.webhooks.receiver import Receiver, receiving

COST = SilentFailure("cost", "desk", 7, "1 run far above", ["t-1 used 9 tokens"], "holdfast show t-1", "5d41c7a0", 5)
QUEUE = SilentFailure("queue", "desk", 7, "1 run waits", ["t-2 waits"], "holdfast queues", "77aa00ff", 5)
BOTH: tuple[Kind, ...] = ("finding.raised", "finding.ended")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_SECRET", "whsec_" + base64.b64encode(os.urandom(24)).decode())


@agent(run_id="r-{name}", tools=())
async def greet(run: Run, name: str) -> str:
    return f"hello {name}"


class Desk(msgspec.Struct):
    """An open app with one endpoint, and rounds of a worker's monitors that find what a test says."""

    lab: Lab
    app: Holdfast
    ops: Receiver
    found: dict[str, int]

    async def round(self, *findings: SilentFailure) -> None:
        """Judge, announce, and let time pass in which notices are sent."""
        now_ms = self.lab.clock.wall_ms()
        self.found = {one.id: self.found.get(one.id, now_ms) for one in findings}
        judged = JudgedFindings(now_ms, list(findings), self.found)
        self.lab.journal._hints[FINDINGS] = msgspec.json.encode(judged)
        await announce(self.app.service.reader, self.app.engine.outbox, now_ms)
        await self.lab.pass_time(minutes=1)

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
            made = Desk(lab, app, ops, {})
            await made.listen(*kinds)
            yield made


@virtual
async def test_a_finding_is_sent_once_with_its_evidence_and_once_more_when_it_is_over(lab: Lab):
    async with desk(lab, *BOTH) as one:
        began = lab.clock.wall_ms()
        for _ in range(3):
            await one.round(COST, QUEUE)
        raised = next(body for body in one.bodies if body["data"]["id"] == COST.id)
        assert one.told == [("finding.raised", COST.id, ""), ("finding.raised", QUEUE.id, "")]
        await one.round(QUEUE)
        await one.round(QUEUE)
        assert one.told[0] == ("finding.ended", COST.id, "over")
        assert len(one.told) == len(set(one.ops.ids)) == 3
    assert raised["data"] == {
        "rule": "cost", "agent": "desk", "at_ms": 7, "what": "1 run far above", "evidence": ["t-1 used 9 tokens"],
        "command": "holdfast show t-1", "id": "5d41c7a0", "newest_ms": 5, "since_ms": began, "reason": "",
    }  # fmt: skip


@virtual
async def test_an_acknowledged_finding_has_ended_until_there_is_newer_evidence(lab: Lab):
    async with desk(lab, *BOTH) as one:
        await one.round(COST)
        await acknowledge(lab.journal, Acknowledgement(COST.id, COST.newest_ms, "ann"))
        await one.round(COST)
        assert one.told == [("finding.ended", COST.id, "acknowledged"), ("finding.raised", COST.id, "")]
        await one.round(msgspec.structs.replace(COST, newest_ms=6))
        assert [kind for kind, _, _ in one.told] == ["finding.ended", "finding.raised", "finding.raised"]
        assert len(set(one.ops.ids)) == 3


@virtual
async def test_only_an_endpoint_that_asks_is_sent_findings_and_only_those_from_then_on(lab: Lab):
    assert not set(BOTH) & set(ABOUT_RUNS)
    async with desk(lab, *ABOUT_RUNS) as one:
        await one.round(COST)
        assert await lab.journal.entries(OUTBOX) == []
        await one.listen("finding.raised")
        await one.round(COST, QUEUE)
        await one.round()
        assert one.told == [("finding.raised", QUEUE.id, "")]


@virtual
async def test_what_a_process_posted_before_it_died_is_not_posted_again(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    async with desk(lab, *BOTH) as one:
        with monkeypatch.context() as dying:

            async def dies(*_: object) -> bool:
                raise KeyboardInterrupt

            dying.setattr(lab.journal, "put_hint", dies)
            with pytest.raises(KeyboardInterrupt):
                await one.round(COST)
        await one.round(COST)
        await one.round()
    assert one.told == [("finding.ended", COST.id, "over"), ("finding.raised", COST.id, "")]
