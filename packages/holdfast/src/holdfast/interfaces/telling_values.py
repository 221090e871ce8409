"""What the runtime journals about facts and plans, in a person's words: what is known, what was chosen, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.agent.course import JUDGED, Chosen, Judged
from holdfast.agent.grounds import GROUNDS
from holdfast.interfaces.telling import stored
from holdfast.model import records as r
from holdfast.model.facts import Correction, Fact, Weighed
from holdfast.model.plan import Plan


class Said(msgspec.Struct, frozen=True):
    """One line about a value, labelled lines below it, whether it is a failure, and the value where a text wraps it."""

    text: str
    below: tuple[tuple[str, str], ...] = ()
    failed: bool = False
    value: r.Raw | None = None


class _Grounds(msgspec.Struct, frozen=True):
    corrected: tuple[str, ...] = ()


def is_bookkeeping(record: r.ValueRecorded) -> bool:
    """Whether only replay needs it: in which order steps ended, and that nothing they rest on was corrected."""
    if record.what == GROUNDS:
        return not msgspec.json.decode(record.value, type=_Grounds).corrected
    return record.what == "over"


def said_value(record: r.ValueRecorded) -> Said:
    """A journaled value for a reader. One that is not about facts or plans is shown as it is stored."""
    tell = _TELLERS.get(record.what.partition(":")[0])
    return tell(record.value) if tell is not None else Said(stored(record.value))


def _fact(value: r.Raw) -> Said:
    fact = msgspec.json.decode(value, type=Fact)
    shown = stored(r.Raw(msgspec.json.encode(fact.value)))
    sure = f", inferred ({fact.confidence:.0%})" if fact.confidence < 1 else ""
    grounds = (("follows from", ", ".join(fact.inferred_from)),) if fact.inferred_from else ()
    return Said(f"{shown}{sure}", (("source", fact.source), *grounds))


def _weighed(value: r.Raw) -> Said:
    weighed = msgspec.json.decode(value, type=Weighed)
    if weighed.inferring is None:
        return Said(weighed.chosen, (("why", "there is nothing to infer it from"),))
    return Said(weighed.chosen, (("why", f"a question costs {weighed.asking:g}, guessing {weighed.inferring:g}"),))


def _correction(value: r.Raw) -> Said:
    done = msgspec.json.decode(value, type=Correction)
    parts = (
        ("unknown now", done.invalidated), ("dropped", done.dropped), ("under way", done.underway),
        ("was executed", done.executed),
    )  # fmt: skip
    return Said("corrected", tuple((label, ", ".join(names)) for label, names in parts if names))


def _grounds(value: r.Raw) -> Said:
    found = msgspec.json.decode(value, type=_Grounds)
    return Said(f"it rests on what was corrected: {', '.join(found.corrected)}")


def _plan(value: r.Raw) -> Said:
    text = msgspec.json.decode(value, type=str)
    plan = msgspec.json.decode(text, type=Plan)
    steps = (f"{step.id} ({' or '.join(call.tool for call in step.calls)})" for step in plan.steps)
    return Said(", ".join(steps), (("goal", plan.goal),), value=r.Raw(text.encode()))


def _chose(value: r.Raw) -> Said:
    text = msgspec.json.decode(value, type=str)
    chosen = msgspec.json.decode(text, type=Chosen)
    what = f"{chosen.chosen}: {chosen.tool}" if chosen.tool else chosen.chosen
    below = (("why", chosen.why),) if chosen.why else ()
    return Said(what, below, chosen.chosen == "failed", r.Raw(text.encode()))


def _judged(value: r.Raw) -> Said:
    judged = msgspec.json.decode(value, type=Judged)
    moment = "after its calls" if judged.after else "before its calls"
    return Said(
        f"{moment}: {judged.held} holds" if judged.held else f"{moment}: no condition of abort_if holds",
        (("judged", ", ".join(judged.conditions)),),
    )


_TELLERS: Final[dict[str, Callable[[r.Raw], Said]]] = {
    "fact": _fact,
    "weighed": _weighed,
    "corrected": _correction,
    GROUNDS: _grounds,
    "plan": _plan,
    "chose": _chose,
    JUDGED: _judged,
}
