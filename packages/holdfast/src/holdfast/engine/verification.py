"""Reading the world: verification after the fact, and preconditions before it."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from holdfast.engine.exceptions.call_end import clean, describe, end_of_value
from holdfast.engine.late_reports import by_verdict, opening_posts
from holdfast.engine.operation_driver import OperationDriver
from holdfast.engine.tool_protocol import call_handler
from holdfast.model import records as r
from holdfast.model.decision.evidence import until_believable_ms
from holdfast.model.outcome import CannotTell, Conflict, DidNotHappen, Happened, VerdictKind

_VERDICTS: Final[dict[type[Any], VerdictKind]] = {
    Happened: "happened",
    DidNotHappen: "did_not_happen",
    CannotTell: "cannot_tell",
    Conflict: "conflict",
}


async def verify(flight: OperationDriver) -> None:
    """Read the world back and record the verdict. An error of the verifier is no verdict."""
    instance, tool = flight.instance, flight.tool
    assert tool is not None, flight.step
    before = flight.operation
    believable = until_believable_ms(before, flight.situation(before), instance.now()) == 0
    instance.engine.environment.crash.reached("before_verify")
    part = before.intent.item if before.intent.completes else None
    verdict: Any = await _ask(flight if part is None else flight.served(), "verify")
    instance.engine.environment.crash.reached("after_verify")
    answer: Any = verdict.__class__
    if answer not in _VERDICTS:
        answer, verdict = CannotTell, CannotTell(f"verify answered {answer.__name__}, which is no verdict")
    if part is not None:
        verdict = _about_part(part, verdict)
    kind = _VERDICTS[type(verdict)]
    stored, lost = r.NOTHING, False
    missing: tuple[str, ...] = ()
    if kind == "happened":
        end = flight.masked(end_of_value(tool.codec, verdict.result)) if part is None else r.End()
        stored, lost, missing = end.result, end.lost, tuple(map(clean, verdict.missing))
    absent = kind == "did_not_happen" and believable
    record = r.Verified(
        step=flight.step,
        verdict=kind,
        believable=believable,
        through=len(before.attempts) if absent else 0,
        evidence=clean(verdict.evidence),
        result=stored,
        lost=lost,
        missing=missing,
        **instance.stamp(),
    )
    if flight.operation.final:  # it was settled while the verifier read the world: its verdict is evidence from here on
        if news := by_verdict(flight.operation, record):
            await instance.append(*news, posts=opening_posts(instance.history, news))
        return
    records = (record,) if flight.recorded or not flight.journaled else (flight.planned("verification"), record)
    await flight.note(*records, ride=kind in {"cannot_tell", "did_not_happen"})


def _about_part(part: str, verdict: Any) -> Any:
    """What a verdict about the whole says about one part of it: it is there unless it is named as missing."""
    if not isinstance(verdict, Happened):
        return CannotTell(verdict.evidence or "the verifier of the whole does not say it happened")
    if part in verdict.missing:
        return DidNotHappen(verdict.evidence or "it is still missing")
    return Happened(None, evidence=verdict.evidence)


async def _ask(flight: OperationDriver, handler: str) -> Any:
    tool = flight.tool
    assert tool is not None, flight.step
    try:
        return await call_handler(
            tool.handlers[handler], flight.decoded(), (flight.view(),), flight.instance.engine.environment
        )
    except Exception as error:  # noqa: BLE001  # a verifier's own error is no evidence
        return CannotTell(describe(error))


async def observe(flight: OperationDriver, *, kept: bool = False) -> None:
    """Read the preconditions: the first reading is what later ones are compared with.

    It goes on record with the first attempt; where it is `kept`, before: a person is shown it.
    """
    tool = flight.tool
    assert tool is not None, flight.step
    environment = flight.instance.engine.environment
    try:
        value = await call_handler(tool.handlers["observe"], flight.decoded(), (flight.view(),), environment)
        observed = flight.masked_value(r.Raw(msgspec.json.encode(value, order="deterministic")))
    except Exception as error:  # noqa: BLE001  # preconditions that cannot be read are unreadable, whatever the cause
        flight.reading = "unreadable"
        await _reobserved(flight, r.Raw(msgspec.json.encode(flight.instance.masks.text(describe(error)))))
        return
    known = flight.operation.observed
    flight.observed = observed
    flight.reading = "same" if known in (r.NOTHING, observed) else "changed"
    if flight.reading == "changed":
        await _reobserved(flight, observed)
    elif kept and known == r.NOTHING:
        await _first(flight, observed)


async def _first(flight: OperationDriver, observed: r.Raw) -> None:
    """Keep the first reading, with the intent if that is not on record yet."""
    if flight.recorded:
        record = r.Reobserved(step=flight.step, reading="same", observed=observed, **flight.instance.stamp())
        await flight.note(record, ride=True)
        return
    draft = flight.operation
    intent = msgspec.structs.replace(draft.intent, observed=observed)
    flight.state = msgspec.structs.replace(draft, intent=intent, observed=observed)


async def _reobserved(flight: OperationDriver, observed: r.Raw) -> None:
    assert flight.reading in {"changed", "unreadable"}, flight.reading
    if not flight.recorded:
        return
    approved = bool(flight.operation.approval.digest)
    reading: Literal["changed", "unreadable"] = "changed" if flight.reading == "changed" else "unreadable"
    await flight.note(
        r.Reobserved(step=flight.step, reading=reading, observed=observed, **flight.instance.stamp()), ride=True
    )
    if approved and not flight.operation.approval.digest:
        flight.reading = "same"  # the approval is void, and the new reading is what the next one will be about
