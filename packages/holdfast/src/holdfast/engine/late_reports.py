"""What a process knows about its calls when the journal fails it, left for whoever drives the run next."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.engine.loading import load
from holdfast.errors import JournalError
from holdfast.journal.entry_codec import written
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.contract import Contract
from holdfast.model.contradiction import Opened, contradiction_stream

if TYPE_CHECKING:
    from holdfast.engine.active_run.run import ActiveRun, Stamp
    from holdfast.model.operation import OperationState
    from holdfast.model.run_history import RunHistory

LOG: Final = logging.getLogger("holdfast")


async def file_known_ends(instance: ActiveRun) -> None:
    """How our calls ended, where the journal did not take it any more, is left for whoever drives the run next."""
    try:
        await _file_ends(instance)
    except JournalError as error:
        LOG.warning("run %s: how its last calls ended could not be recorded yet: %s", instance.run, error)
        instance.engine.insist(lambda: _file_ends(instance))


async def _file_ends(instance: ActiveRun) -> None:
    durable = (await load(instance.engine, instance.run)).operations
    for step, operation in instance.history.operations.items():
        stored = durable[step].attempts if step in durable else ()
        for known, ours in zip(stored, operation.attempts, strict=False):
            missing = known.end is None or known.end.kind == "lost"
            if not missing or ours.token != instance.lease.token or known.token != ours.token:
                continue
            at = instance.engine.environment.clock.wall_ms()
            if (step, ours.number) in instance.never_sent:
                end, up = r.End("not_sent", "its process lost the run before the call"), instance.now().up
            elif ours.end is not None and ours.over_up is not None:
                end, up = _with_result(ours.end, operation), ours.over_up
            else:
                continue
            report = r.LateReport(step=step, number=ours.number, end=end, at=at, up=up)
            await instance.engine.file_late(instance.run, report)


def _with_result(end: r.End, operation: OperationState) -> r.End:
    """The end of a call as it would stand alone: an outcome that came with it keeps the result for both."""
    if end.kind != "returned" or end.result is not r.NOTHING:
        return end
    return msgspec.structs.replace(end, result=operation.settlement.result, lost=operation.settlement.lost)


# Contradictions as they are found: in reports and in verdicts about outcomes that are final.


def by_report(operation: OperationState, report: r.LateReport, stamp: Stamp) -> tuple[r.Contradicted, ...]:
    """The contradiction in a report about a final outcome; empty where both agree or the report proves nothing."""
    said = report.end.kind
    if not operation.final or said not in {"returned", "rejected"} or report.end.unfit:
        return ()
    if (said == "returned") == (operation.phase == "succeeded"):
        return ()
    evidence = f"attempt {report.number} reported late: {said} {report.end.why}".strip()
    return (r.Contradicted(step=report.step, evidence=evidence, **stamp),)


def by_disputes(operation: OperationState, outcome: r.OperationSettled) -> tuple[r.Contradicted, ...]:
    """The contradictions of an outcome that is being recorded: answers that came before it and say the opposite."""
    settled = msgspec.structs.replace(operation, phase=outcome.status)
    stamp: Stamp = {"at": outcome.at, "up": outcome.up}
    return tuple(found for report in operation.links.disputes for found in by_report(settled, report, stamp))


def by_verdict(operation: OperationState, verified: r.Verified) -> tuple[r.Contradicted, ...]:
    """The contradiction in a verdict that arrived after the outcome was settled; empty where it proves nothing."""
    succeeded = operation.phase == "succeeded"
    match verified.verdict:
        case "happened" if not succeeded and not operation.links.reused:
            found = "the verifier found it"
        case "did_not_happen" if succeeded and verified.believable:
            found = "the verifier did not find it"
        case "conflict" if succeeded:
            found = "the verifier found something else"
        case _:
            return ()
    evidence = f"{found}: {verified.evidence}" if verified.evidence else found
    return (r.Contradicted(step=operation.step, evidence=evidence, at=verified.at, up=verified.up),)


def opening_posts(history: RunHistory, records: Iterable[r.Record]) -> tuple[Post, ...]:
    """The ledger entries that open the contradictions among `records`, which `history` does not include yet."""
    counts: dict[str, int] = {}
    phases: dict[str, str] = {}
    posts: list[Post] = []
    for record in records:
        if isinstance(record, r.OperationSettled):
            phases[record.step] = record.status
        if not isinstance(record, r.Contradicted):
            continue
        operation, started = history.operations[record.step], history.started
        number = counts[record.step] = counts.get(record.step, len(operation.links.contradicted)) + 1
        phase = phases.get(record.step, operation.phase)
        opened = Opened(
            history.run, record.step, operation.intent.tool, started.agent if started is not None else "",
            phase, record.evidence, number, record.at, _amendable(history, operation),
        )  # fmt: skip
        posts.append(Post(contradiction_stream(history.run, record.step), str(number), written(opened)))
    return tuple(posts)


def _amendable(history: RunHistory, operation: OperationState) -> bool:
    stored = history.contracts.get(operation.contract)
    return stored is not None and msgspec.json.decode(stored.clauses, type=Contract).compensates
