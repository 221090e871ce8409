"""What the journal says becomes the side's report."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from beforehand.demo.sides import STEPS, WithBeforehand, place_of
from beforehand.inspect.reader import JournalReader
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import ClaimRequest, NewRun, Worker
from beforehand.journal.record_codec import encode
from beforehand.journal.run_log import RunLog, genesis
from beforehand.model import records as r
from beforehand.model.outcome import Basis

EMPTY = msgspec.Raw(b"{}")
EVIDENCE = Basis("evidence")


def attempted(step):
    intent = r.Intent(tool=step.partition("#")[0], arguments=EMPTY, digest="d", contract="c")
    return r.AttemptStarted(step=step, number=1, token=1, send_by=1000, intent=intent)


def settled(step, status):
    return r.OperationSettled(step=step, status=status, basis=EVIDENCE)


async def report_of(records):
    journal = MemoryJournal(now=lambda: 0)
    identity = await journal.open()
    await journal.beat(Worker("w"), 1000)
    claimed = await journal.commit(ClaimRequest("request-7", "w", NewRun("desk")))
    log = RunLog(journal, claimed.lease, None, genesis(identity.namespace, "request-7"))
    began = [r.RunStarted(agent="desk", input=EMPTY, digest="d"), r.Claimed(worker="w", token=1, boot="b")]
    await log.append([encode(record) for record in (*began, *records)])
    side = WithBeforehand(Path("requests.jsonl"), Path("folder"))
    report = await side.read(JournalReader(journal, identity))
    await journal.close()
    return report, side.waiting


@pytest.mark.parametrize(
    ("records", "report", "waiting"),
    [
        ([], {}, []),
        ([attempted("refund#1")], {}, []),
        ([attempted("refund#1"), settled("refund#1", "succeeded")], {("payments", 7): "done"}, []),
        ([attempted("send_email#1"), settled("send_email#1", "failed")], {("mail", 7): "failed"}, []),
        (
            [
                attempted("open_ticket#1"),
                settled("open_ticket#1", "succeeded"),
                attempted("restock#1"),
                settled("restock#1", "unknown"),
            ],
            dict.fromkeys((("payments", 7), ("mail", 7), ("warehouse", 7)), "waiting") | {("tracker", 7): "done"},
            ["request-7/restock#1"],
        ),
    ],
    ids=["nothing", "open", "done", "failed", "waiting, and what stands behind it"],
)
def test_report_follows_the_journal(records, report, waiting):
    assert asyncio.run(report_of(records)) == (report, waiting)


@pytest.mark.parametrize("service", STEPS)
def test_an_operation_is_about_a_place(service):
    assert place_of(f"request-12/{STEPS[service]}") == (service, 12)
