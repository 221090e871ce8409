"""Leaving it to a person: what no rule can decide, and what a person approves before it is sent."""

from __future__ import annotations

from holdfast.engine.flight import Flight
from holdfast.model import records as r
from holdfast.model.decision import moves as m
from holdfast.model.policy import terms
from holdfast.model.waits import call_text


def what_is_asked(flight: Flight, move: m.Gate) -> str:
    """The question to a person, with the call and what asks for it."""
    intent, gate, guard = flight.operation.intent, flight.contract().gate, flight.elsewhere
    ruling = flight.operation.ruling
    because = "" if gate is None else gate.when
    if ruling is not None and ruling.asks and not flight.gate:
        because = f"its rule {ruling.rule!r}" + (f", which could not be judged: {ruling.why}" if ruling.why else "")
    if guard is not None and guard.then == "ask":
        because = f"{guard.source} did the same"
    if flight.operation.edits:
        because = f"{flight.operation.editors[-1]} proposed these, and another person has to approve them"
    call = call_text(intent.tool, bytes(intent.arguments), flight.id)
    return f"may {call} be sent? {move.rule}" + (f": {because}" if because else "")


async def ask(flight: Flight, move: m.Gate) -> None:
    """Ask people to approve it, on the terms of the tool's gate and of the policy."""
    operation, stamp = flight.operation, flight.instance.stamp()
    otherwise_ms = flight.instance.engine.settings.answer_within_ms
    on = terms(flight.contract().gate, operation.ruling, otherwise_ms, escalated=move.escalated)
    record = r.OperationParked(
        step=flight.step,
        why=what_is_asked(flight, move),
        rule=move.rule,
        asks=flight.asks,
        people=on.people,
        until=stamp["at"] + on.within_ms if on.within_ms else 0,
        queue=on.queue,
        on_expiry=on.on_expiry,
        require=on.require,
        **stamp,
    )
    await _note(flight, record)


async def park(flight: Flight, move: m.Park) -> None:
    """Leave it to a person, who looks at what is there. Silence says nothing: it is waited for beyond its time."""
    stamp = flight.instance.stamp()
    until = flight.instance.engine.settings.answer_by(stamp["at"])
    record = r.OperationParked(
        step=flight.step, why=move.why, rule=move.rule, forgotten=move.forgotten, until=until, on_expiry="hold", **stamp
    )
    await _note(flight, record)


async def _note(flight: Flight, record: r.OperationParked) -> None:
    planned = () if flight.recorded or not flight.journaled else (flight.planned("a person"),)
    await flight.note(*planned, record)
    flight.instance.settled(flight.step)
