"""From a seed to what people do: what they approve and allow, what they tell runs, and what they look at."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from simulator.agents.people import GATED, GREAT, PETTY
from simulator.generator.calls import COMMON, of_calls
from simulator.people.approvers import HARDLY_MS, LONG_MS, NAMES
from simulator.people.policies import TOOL
from simulator.plan import ASKING, PARTS, Fault, Permit, Script, Step, Telling

QUESTION_FAULTS: Final = ("silent", "overslept", "disagree", "misfit", "take_over", "both")
"""What people may do about a question or a hand-over: say nothing, or too late, or two things at once, or what is no
answer; take the run over, or take it over while another person answers."""

GATE_FAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "wire": (*COMMON, "duplicate"),
    "grant": COMMON,
    "adjust": (*COMMON, "duplicate", "overtaken"),
    "spend": (*COMMON, "duplicate"),
    TOOL: (*COMMON, "duplicate"),
}
"""The same for what people have to approve. What one of them relies on may change meanwhile."""

PEOPLE_FAULTS: Final = ("no", "both", "double_click", "overslept", "brief", "meanwhile", "edit", "stand_in", "misfit")
"""What people may do: say no, or yes and no at once; say yes twice; say it too late, or for moments only; change
meanwhile what they are asked about; approve it with other arguments; answer in the place of the tool; or write what
fits neither."""

REVIEW_FAULTS: Final = ("retry", "same_key")
"""What people may do about what did not happen, or what is not known: order another attempt."""

COMPENSATION_FAULTS: Final = ("compensation", "compensation", "unfit_compensation")
"""What people may order about what happened: a compensation, also with a result that the tool could not have given."""


def with_gates(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """Some agents ask for something that people have to approve, in the middle."""
    return tuple(
        Script(script.id, (*script.steps[:2], _gated(chance, number, script.steps[2].group), *script.steps[3:]))
        if chance.random() < 0.2
        else script
        for number, script in enumerate(scripts)
    )


def _gated(chance: random.Random, number: int, group: int) -> Step:
    thing = f"{'small' if chance.random() < 0.1 else GREAT} {number}"
    return Step(
        chance.choice(GATED),
        thing,
        group,
        by_model=chance.random() < 0.3,
        cents=chance.randrange(PETTY // 2, 10 * PETTY),
    )


def permits_of(chance: random.Random) -> tuple[Permit, ...]:
    """Now and then a person permits in advance what people would be asked about: seldom more than once."""
    return tuple(_permit(chance) for _ in range(chance.choice((1, 1, 2)))) if chance.random() < 0.08 else ()


def _permit(chance: random.Random) -> Permit:
    tool = "spend" if chance.random() < 0.8 else chance.choice(("adjust", "grant"))
    spends = tool == "spend"
    return Permit(
        tool, chance.choice(NAMES), chance.randrange(2_000),
        lasts_ms=HARDLY_MS + chance.randrange(500, 30_000) if chance.random() < 0.2 else LONG_MS,
        most=8 * PETTY if spends and chance.random() < 0.5 else 0,
        times=chance.randrange(1, 5) if chance.random() < 0.7 else 0,
        total=chance.randrange(5, 25) * PETTY if spends and chance.random() < 0.7 else 0,
        revoked_ms=chance.randrange(200, 20_000) if chance.random() < 0.3 else 0,
    )  # fmt: skip


def tellings_of(chance: random.Random, scripts: tuple[Script, ...]) -> tuple[Telling, ...]:
    """Now and then people have something to say to the runs, mostly while these are under way."""
    if chance.random() >= 0.1:
        return ()
    return tuple(
        Telling(chance.choice(scripts).id, round(50 * 2_000 ** chance.random()), stop=chance.random() < 0.25)
        for _ in range(chance.randrange(1, 5))
    )


def with_rests(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """Some agents rest before their last step, so that there is something to be woken from."""
    return tuple(
        Script(script.id, (*script.steps[:-1], _rest(chance, number), script.steps[-1]))
        if chance.random() < 0.5
        else script
        for number, script in enumerate(scripts)
    )


def _rest(chance: random.Random, number: int) -> Step:
    return Step("rest", f"n{number}", ms=chance.randrange(500, 120_000))


def with_money(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """Every agent begins with some of what was allowed, one after the other or at once."""
    return tuple(
        Script(script.id, (*_spends(chance, number), *script.steps[3:])) for number, script in enumerate(scripts)
    )


def _spends(chance: random.Random, number: int) -> tuple[Step, ...]:
    together = number + 1 if chance.random() < 0.5 else 0
    first = Step(chance.choice(("look", "pay", "ship")), f"m{number}")
    amounts = [chance.randrange(PETTY // 2, 10 * PETTY) for _ in range(2)]
    return (first, *(Step("spend", f"m{number}s{n}", together, cents=cents) for n, cents in enumerate(amounts)))


def of_people(chance: random.Random, scripts: tuple[Script, ...], *, policy: bool) -> tuple[Fault, ...]:
    """What people do otherwise than one hopes, and what goes wrong on the way to what they approve."""
    services = sorted({step.kind for script in scripts for step in script.steps if step.kind in GATE_FAULTS})
    faults = [fault for service in services for fault in of_calls(chance, service, GATE_FAULTS[service])]
    faults += of_calls(chance, "people", PEOPLE_FAULTS) if services or policy else []
    return (*faults, *(_contested(chance) if "adjust" in services and chance.random() < 0.5 else ()))


def of_reviews(chance: random.Random, *, reviews: bool) -> tuple[Fault, ...]:
    """What people do about operations that no rule could decide, beside saying what is so."""
    return tuple(of_calls(chance, "review", REVIEW_FAULTS)) if reviews else ()


def with_guides(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """Some agents end with a trip that needs a guide: only a person can tell what became of that."""
    return tuple(
        Script(script.id, (*script.steps[:-1], _guided(chance, script.steps[-1], number)))
        if chance.random() < 0.4
        else script
        for number, script in enumerate(scripts)
    )


def _guided(chance: random.Random, last: Step, number: int) -> Step:
    trip = last if last.kind == "trip" else Step("trip", f"r{number}", parts=(chance.choice(PARTS),))
    at = chance.randrange(len(trip.parts) + 1)
    more = ("send",) if chance.random() < 0.4 else ()
    return replace(trip, parts=(*trip.parts[:at], "guide", *trip.parts[at:], *more))


def of_compensations(chance: random.Random, scripts: tuple[Script, ...], *, reviews: bool) -> tuple[Fault, ...]:
    """What goes wrong with guides and what only people can tell about a trip, and what people do about it."""
    parts = {part for script in scripts for step in script.steps for part in step.parts}
    faults = [fault for service in ("guide", "unguide") for fault in of_calls(chance, service, COMMON)]
    faults += [Fault("reply_lost", 1, service) for service in ("guide", "send") if chance.random() < 0.4]
    faults += of_calls(chance, "review", COMPENSATION_FAULTS)
    faults += [Fault("compensation", chance.choice((1, 2)), "review")] if chance.random() < 0.4 else []
    return tuple(faults) if parts and reviews else ()


def with_purchases(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """Some agents buy in the same shops, now and then two things at once, and are judged by what was bought there."""
    return tuple(
        Script(
            script.id,
            (
                *script.steps[:3],
                *_purchases(chance, number, alone=not any(step.group for step in script.steps)),
                *script.steps[3:],
            ),
        )
        if chance.random() < 0.7
        else script
        for number, script in enumerate(scripts)
    )


def _purchases(chance: random.Random, number: int, *, alone: bool) -> Iterator[Step]:
    together = 10 + number if alone and chance.random() < 0.5 else 0
    for _ in range(chance.choice((1, 2, 2))):
        yield Step(TOOL, f"shop {chance.randrange(2)}", together, cents=chance.randrange(PETTY, 8 * PETTY))


def with_questions(scripts: tuple[Script, ...], chance: random.Random) -> tuple[Script, ...]:
    """In some seeds agents ask people, or hand their runs over, alone or beside something else that they do."""
    if chance.random() >= 0.12:
        return scripts
    return tuple(_asking(chance, script, number) for number, script in enumerate(scripts))


def _asking(chance: random.Random, script: Script, number: int) -> Script:
    at = chance.choice((1, 2, len(script.steps)))
    step = Step(
        chance.choice(ASKING), f"q{number}", script.steps[1].group if at == 2 else 0,
        cents=chance.choice((0, 1, 2, 3)), ms=chance.choice((20_000, 120_000, 600_000)),
    )  # fmt: skip
    return Script(script.id, (*script.steps[:at], step, *script.steps[at:]))


def of_questions(chance: random.Random, scripts: tuple[Script, ...]) -> tuple[Fault, ...]:
    """What people do about what they are asked otherwise than one hopes."""
    asks = any(step.kind in ASKING for script in scripts for step in script.steps)
    return tuple(of_calls(chance, "question", QUESTION_FAULTS)) if asks else ()


def _contested(chance: random.Random) -> Iterator[Fault]:
    """Another party is at the same thing, so that people are asked again, and may say so for moments only."""
    yield Fault("overtaken", 1, "adjust", chance.randrange(100, 120_000))
    yield Fault("overtaken", 2, "adjust", chance.randrange(100, 120_000))
    if chance.random() < 0.3:
        yield Fault("brief", chance.choice((2, 3)), "people", chance.randrange(100, 30_000))
