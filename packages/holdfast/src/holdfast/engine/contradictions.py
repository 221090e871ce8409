"""Finds contradictions in reports and verdicts about outcomes that are final."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.engine.environment import Stamp
from holdfast.journal.entry_codec import written
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.contract import Contract
from holdfast.model.contradiction import Opened, contradiction_stream
from holdfast.model.operation import OperationState
from holdfast.model.run_history import RunHistory


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
    """The contradictions of an outcome that is being recorded: earlier answers that say the opposite."""
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
        operation, started = history.operations[record.step], history.lifecycle.started
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
