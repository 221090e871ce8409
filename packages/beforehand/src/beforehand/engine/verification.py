"""Evidence from the outside system: verification after the fact, preconditions before it, and contradictions.

A verdict or a late report that disagrees with a final outcome changes no outcome: it is recorded, and a person is
asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from beforehand.engine.environment import Stamp
from beforehand.engine.exceptions.call_end import clean, describe, end_of_value
from beforehand.engine.operation_driver import (
    OperationDriver,
    decoded,
    masked,
    masked_value,
    plan,
    recorded,
    served,
    view,
)
from beforehand.engine.situation import inputs_of, situation_of
from beforehand.engine.tool_protocol import call_handler
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Post
from beforehand.model import records as r
from beforehand.model.contradiction import Opened, contradiction_stream
from beforehand.model.decision.evidence import until_believable_ms
from beforehand.model.operation import OperationState
from beforehand.model.outcome import CannotTell, Conflict, DidNotHappen, Happened, VerdictKind
from beforehand.model.run_history import RunHistory
from beforehand.model.waits import stored_contract

_VERDICTS: Final[dict[type[Any], VerdictKind]] = {
    Happened: "happened",
    DidNotHappen: "did_not_happen",
    CannotTell: "cannot_tell",
    Conflict: "conflict",
}


async def verify(driver: OperationDriver) -> None:
    """Read the effect back and record the verdict. An error of the verifier is not a verdict."""
    log, tool = driver.log, driver.tool
    assert tool is not None, driver.step
    before = driver.operation
    believable = until_believable_ms(before, situation_of(before, inputs_of(driver, before)), log.now()) == 0
    log.process.environment.crash.reached("before_verify")
    part = before.intent.item if before.intent.completes else None
    verdict: Any = await _ask(driver if part is None else served(driver), "verify")
    log.process.environment.crash.reached("after_verify")
    answer: Any = verdict.__class__
    if answer not in _VERDICTS:
        answer, verdict = CannotTell, CannotTell(f"verify answered {answer.__name__}, which is not a verdict")
    if part is not None:
        verdict = _about_part(part, verdict)
    kind = _VERDICTS[type(verdict)]
    stored, lost = r.NOTHING, False
    missing: tuple[str, ...] = ()
    if kind == "happened":
        end = masked(driver, end_of_value(tool.codec, verdict.result)) if part is None else r.End()
        stored, lost, missing = end.result, end.lost, tuple(map(clean, verdict.missing))
    absent = kind == "did_not_happen" and believable
    record = r.Verified(
        step=driver.step,
        verdict=kind,
        believable=believable,
        through=len(before.attempts) if absent else 0,
        evidence=clean(verdict.evidence),
        result=stored,
        lost=lost,
        missing=missing,
        **log.stamp(),
    )
    if driver.operation.final:  # it was settled while the verifier ran: the verdict is evidence from here on
        if news := by_verdict(driver.operation, record):
            await log.append(*news, posts=opening_posts(log.history, news))
        return
    await driver.record(*plan(driver, "verification"), record, ride=kind in {"cannot_tell", "did_not_happen"})


def _about_part(part: str, verdict: Any) -> Any:
    """The verdict about one part, from the verdict about the whole: it happened unless it is named as missing."""
    if not isinstance(verdict, Happened):
        return CannotTell(verdict.evidence or "the verifier of the whole does not say it happened")
    if part in verdict.missing:
        return DidNotHappen(verdict.evidence or "it is still missing")
    return Happened(None, evidence=verdict.evidence)


async def _ask(driver: OperationDriver, handler: str) -> Any:
    tool = driver.tool
    assert tool is not None, driver.step
    try:
        return await call_handler(
            tool.handlers[handler], decoded(driver), (view(driver),), driver.log.process.environment
        )
    except Exception as error:  # noqa: BLE001  # a verifier's own error is not evidence
        return CannotTell(describe(error))


async def observe(driver: OperationDriver, *, kept: bool = False) -> None:
    """Read the preconditions: later readings are compared with the first one.

    It goes on record with the first attempt; if it is `kept`, before, because it is shown to a person.
    """
    tool = driver.tool
    assert tool is not None, driver.step
    environment = driver.log.process.environment
    try:
        value = await call_handler(tool.handlers["observe"], decoded(driver), (view(driver),), environment)
        observed = masked_value(driver, r.Raw(msgspec.json.encode(value, order="deterministic")))
    except Exception as error:  # noqa: BLE001  # preconditions that cannot be read are unreadable, for any cause
        driver.found.reading = "unreadable"
        await _reobserved(driver, r.Raw(msgspec.json.encode(driver.log.masks.text(describe(error)))))
        return
    known = driver.operation.observed
    driver.found.observed = observed
    driver.found.reading = "same" if known in (r.NOTHING, observed) else "changed"
    if driver.found.reading == "changed":
        await _reobserved(driver, observed)
    elif kept and known == r.NOTHING:
        await _first(driver, observed)


async def _first(driver: OperationDriver, observed: r.Raw) -> None:
    """Keep the first reading, with the intent if that is not on record yet."""
    if recorded(driver):
        record = r.Reobserved(step=driver.step, reading="same", observed=observed, **driver.log.stamp())
        await driver.record(record, ride=True)
        return
    draft = driver.operation
    intent = msgspec.structs.replace(draft.intent, observed=observed)
    driver.state = msgspec.structs.replace(draft, intent=intent, observed=observed)


async def _reobserved(driver: OperationDriver, observed: r.Raw) -> None:
    assert driver.found.reading in {"changed", "unreadable"}, driver.found.reading
    if not recorded(driver):
        return
    approved = bool(driver.operation.approval.approved_digest)
    reading: Literal["changed", "unreadable"] = "changed" if driver.found.reading == "changed" else "unreadable"
    await driver.record(
        r.Reobserved(step=driver.step, reading=reading, observed=observed, **driver.log.stamp()), ride=True
    )
    if approved and not driver.operation.approval.approved_digest:
        driver.found.reading = "same"  # the approval is void, and the next one will be about the new reading


# --- contradictions: reports and verdicts about outcomes that are final ---------------------------------------------


def by_report(operation: OperationState, report: r.LateReport, stamp: Stamp) -> tuple[r.Contradicted, ...]:
    """The contradiction in a report about a final outcome; empty where both agree or the report proves nothing.

    An effect that was compensated unknown has no driver any more: that it happened contradicts its compensation.
    """
    kind = report.end.kind
    if not (operation.final or operation.links.amended) or kind not in {"returned", "rejected"} or report.end.unfit:
        return ()
    if (kind == "returned") == (operation.phase == "succeeded"):
        return ()
    evidence = f"attempt {report.number} reported late: {kind} {report.end.why}".strip()
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
            phase, record.evidence, number, record.at,
            stored_contract(history, operation).compensates,
        )  # fmt: skip
        posts.append(Post(contradiction_stream(history.run, record.step), str(number), written(opened)))
    return tuple(posts)
