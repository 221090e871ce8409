"""The reasons for which a run stops before its end: one table, which everything about such a stop is read from. Pure.

A new reason needs its name in `StopReason`, because records hold it, and its row in `STOP_REASONS`. Then a run is
stopped for it by `active.end(Ending(reason, why))`; a reason with a `command` by that command. CONTRIBUTING has it as a
worked change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from beforehand.model.shell import to_type

StopReason = Literal["error", "diverged", "quarantined", "budget", "cancelled", "handed_over"]
TAKE_OVER: Final = "take_over"
"""The command by which a person goes on in place of the agent: the run ends."""


class StopRule(msgspec.Struct, frozen=True):
    """One reason, and its consequences.

    `meaning` explains it. `advice` is the recommended answer where a person is asked how the run goes on, and empty
    where none is asked. `command` is the command that stops a run for this reason. `known` says what holds of its
    effects, and `next_step` how the run goes on; with an empty one it does not.
    """

    meaning: str
    known: str
    next_step: str = ""
    advice: str = ""
    command: str = ""

    @property
    def asks_person(self) -> bool:
        """True if a person decides how the run goes on."""
        return bool(self.advice)

    @property
    def final(self) -> bool:
        """True if the run cannot be resumed."""
        return not self.next_step


_KNOWN: Final = "its outcomes are kept; the run can continue under the same id"
_FIX: Final = "after a fix: {resume}"
STOP_REASONS: Final[Mapping[StopReason, StopRule]] = {
    "error": StopRule(
        "its code raised an exception, and nothing was sent since",
        _KNOWN,
        _FIX,
        advice="resume, once its code is fixed or the cause is gone: what it did is kept, and is not done twice",
    ),
    "diverged": StopRule(
        "its code diverged from its record, and nothing was sent since",
        _KNOWN,
        "restore the code (or add a version marker), and see where it differs: {replay}",
        advice="resume, once its code follows the record again: what it did is kept, and is not done twice",
    ),
    "quarantined": StopRule(
        "its processes died again and again, and no worker takes it any more",
        _KNOWN,
        _FIX,
        advice="resume, once you know what ended its processes: what it did is kept, and is not done twice",
    ),
    "budget": StopRule(
        "a limit of its budget is reached, and nothing was sent since",
        _KNOWN,
        "raise the limit, and the run continues by itself: {budget} --raise LIMIT=AMOUNT",
        advice="raise the limit that beforehand budget RUN shows: then it continues; or cancel it",
    ),
    "cancelled": StopRule(
        "a person cancelled it",
        "its outcomes are kept; nothing more is sent",
        "only if it is to continue after all: {resume}",
        command="cancel",
    ),
    "handed_over": StopRule(
        "a person took it over and goes on in place of the agent",
        "its outcomes are kept; the run does not continue",
        command=TAKE_OVER,
    ),
}


def reason_of(command: str) -> StopReason | None:
    """The reason that this command stops a run for; None for a command that stops none."""
    return next((reason for reason, rule in STOP_REASONS.items() if rule.command == command), None)


_UNDONE: Final = StopRule("a person undid it", "what could be undone is undone; the run does not continue")


def after_stop(run: str, reason: str) -> tuple[str, str]:
    """Texts about a run that stopped for this reason, or is `undone`: what is known, and how it goes on, if it does."""
    rules: dict[str, StopRule] = {"undone": _UNDONE}
    rules.update(STOP_REASONS.items())
    rule = rules.get(reason, STOP_REASONS["error"])
    commands = {word: to_type(word, run) for word in ("resume", "replay", "budget")}
    return rule.known, rule.next_step.format(**commands)


def why_ended(command: str, by: str, note: str) -> str:
    """Why a person's command ended a run, in words."""
    if command == TAKE_OVER:
        return f"{by} took it over" + (f": {note}" if note else "")
    return note or f"cancelled by {by}"
