"""Contracts of tools, their proofs and their dangers, in words."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal

import msgspec

from beforehand.model.contract import Contract
from beforehand.policies import milliseconds

Danger = Literal["none", "low", "some", "high"]
_SECOND_REQUEST: Final = {
    "rejects": "turns away a second request while the first one runs",
    "blocks": "lets a second request wait for the first one",
    "runs_twice": "runs a second request while the first one runs",
}


class Clauses(msgspec.Struct, frozen=True):
    """One tool: its guarantees, its dangers, and the handling of an attempt that may have landed."""

    tool: str
    effect: str
    danger: Danger
    promises: list[str]
    dangers: list[str]
    after_doubt: str
    where: str = ""


def clauses(
    contract: Contract, *, redacted: frozenset[str] = frozenset(), claims: bool = False, where: str = ""
) -> Clauses:
    """The contract in words."""
    return Clauses(
        contract.tool,
        contract.effect,
        _danger(contract),
        _promises(contract, redacted, claims),
        _dangers(contract),
        _after_doubt(contract),
        where,
    )


def repeat_words(contract: Contract, *, key_unread: bool = False) -> str:
    """The reason why an effect of this tool must not simply be sent again."""
    if key_unread:
        return "the tool never read its key, so nothing would notice a second effect"
    if contract.key is not None:
        return "the system may have forgotten the key by now: a second send could be a second effect"
    if contract.natural is not None:
        return "the time in which repeating changes nothing is over"
    return f"{contract.tool} has no key and no verifier: nothing would notice a second effect"


def _danger(contract: Contract) -> Danger:
    """Danger of a crash in the middle: none for reads, low where code can settle it, high where it cannot."""
    if contract.effect == "read":
        return "none"
    settles = contract.idempotency is not None or (contract.verifies and contract.settle_ms is not None)
    if settles:
        return "low" if contract.restores or contract.natural is not None else "some"
    return "high"


def _promises(contract: Contract, redacted: frozenset[str], claims: bool) -> list[str]:
    if contract.effect == "read":
        return ["it changes nothing: it is repeated freely, and its answer is recorded", _limits(contract)]
    found = [*_proofs(contract), *_bounds(contract, claims)]
    if redacted:
        found.append(f"never stored: {', '.join(sorted(redacted))}")
    return [*found, _limits(contract)]


def _proofs(contract: Contract) -> list[str]:
    """The means by which code can find out, or repeat, by itself."""
    found: list[str] = []
    if (key := contract.key) is not None:
        life = "for ever" if key.ttl is None else f"for {span(key.ttl)}"
        found.append(f"the system dedupes on our key {life}, and {_SECOND_REQUEST[key.in_progress]}")
    if (natural := contract.natural) is not None:
        window = span(natural.settle_window)
        found.append(f"repeating it within {span(natural.within)} changes nothing; settle window: {window}")
    window = "unknown" if contract.settle_ms is None else span(timedelta(milliseconds=contract.settle_ms))
    declared = (
        (contract.observes, "its preconditions are read before it is sent"),
        (contract.expects, "a returned result is read back before it counts"),
        (contract.verifies, f"its effect can be read back; settle window: {window}"),
        (contract.check_first, "it is looked for before the first attempt"),
    )
    return [*found, *(text for holds, text in declared if holds)]


def _bounds(contract: Contract, claims: bool) -> list[str]:
    """The limits against a second effect, and the compensation."""
    found: list[str] = []
    if claims or contract.claim:
        names = ", ".join(contract.claim) or "computed"
        found.append(f"one effect per business key ({names}) across all runs")
    if (gate := contract.gate) is not None:
        who = "a person approves" if gate.people == 1 else f"{gate.people} people approve"
        time = "" if gate.within is None else f", within {span(gate.within)}"
        found.append(f"{who} it{time}, where {gate.when}")
    if (once := contract.once) is not None:
        what = f"the same {', '.join(once.parameters)}" if once.reworded else "exactly the same call"
        found.append(f"a model that asks for {what} again gets: {once.then}")
    if contract.compensates:
        found.append(
            "a compensation restores the world" if contract.restores else "a compensation explains what happened"
        )
    return found


def _limits(contract: Contract) -> str:
    retry = contract.retries
    return (
        f"one call takes at most {span(timedelta(milliseconds=contract.timeout_ms))}; "
        f"up to {retry.attempts} attempts within {span(retry.elapsed)}"
    )


def _dangers(contract: Contract) -> list[str]:
    if contract.effect == "read":
        return []
    key, verifies = contract.key, contract.verifies
    forgotten = ""
    if key is not None and key.ttl is not None:
        then = "only reading it back can tell" if verifies else "a repeat would be a second effect"
        forgotten = f"after {span(key.ttl)} its key is forgotten: then {then}"
    undone = "its compensation explains the effect and does not undo it"
    dangers = (
        (contract.idempotency is None and not verifies,
         "after a crash during the call its outcome is unknown: a person is asked"),
        (verifies and contract.settle_ms is None,
         "its settle window is unknown: that it did not happen is never believed"),
        (forgotten, forgotten),
        (key is not None and key.in_progress == "runs_twice", "two requests with one key at the same time both run"),
        (key is not None and key.mismatch == "silent", "the system does not notice one key with other arguments"),
        (contract.natural is not None and not contract.observes,
         "a repeat overwrites changes that others made in between"),
        (not contract.restores, undone if contract.compensates else "it cannot be undone"),
        (contract.on_unknown == "raise",
         "an unknown outcome is raised into the agent's code instead of waiting for a person"),
    )  # fmt: skip
    return [text for holds, text in dangers if holds]


def _after_doubt(contract: Contract) -> str:
    """The handling of an attempt that may have landed."""
    if contract.effect == "read":
        return "it is read again"
    otherwise = "read back" if contract.verifies else "a person is asked"
    if contract.key is not None:
        return f"it is sent again under the same key while that is remembered, else {otherwise}"
    if contract.natural is not None:
        return f"it is sent again while that changes nothing, else {otherwise}"
    if contract.verifies:
        return "it is read back, and sent again only when it is proven absent"
    return "it is never sent again by itself: a person is asked"


def span(length: timedelta) -> str:
    """A length of time in words."""
    ms = milliseconds(length)
    for unit, name in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second")):
        if ms >= unit and ms % unit == 0:
            number = ms // unit
            return f"{number} {name}{'' if number == 1 else 's'}"
    return f"{ms / 1000:g} seconds"
