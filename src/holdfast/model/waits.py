"""What a resting run waits for that people can give, and the command that gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from holdfast.model.operation import OperationState

Then = Literal["", "refuse", "escalate", "hold", "default", "timeout"]
"""What happens at a deadline: see `after_deadline`."""
Item = Literal["approval", "question", "review", "handoff", "shadow"]
PEOPLE: Final[dict[str, Item]] = {"approval": "approval", "question": "question", "person": "review",
                                 "handoff": "handoff", "halted": "handoff"}  # fmt: skip
"""The kinds of wait that a person ends, and what each is called in the inbox."""
DISPUTED: Final = "contradicted"
"""The kind of wait of a final outcome that was contradicted."""
AMENDABLE: Final = "contradicted, amendable"
"""The same, where its tool declares a compensation."""
HALT: Final = "halted"
"""The kind of wait of a run that stopped and cannot go on by itself. It is about the whole run: it has no step."""


_AFTER: Final[dict[Then, str]] = {
    "": "it waits for as long as the run has",
    "refuse": "it is refused, and nothing is sent",
    "escalate": "others are asked",
    "hold": "it goes on waiting, first in the list",
    "default": "its default is the answer",
    "timeout": "the agent is told that nobody answered",
}


def after_deadline(then: Then) -> str:
    """What happens if nobody answers in time, in words."""
    return _AFTER[then]


def then_of(default: object) -> Then:
    """What happens at the deadline of a question with this default."""
    return "timeout" if default is None else "default"


def answer_with(run: str, kind: str, step: str, *, sent: bool = True) -> str:
    """The command that answers this wait of a run, where a person can. `sent`: something may have been sent already."""
    name = f"{run}/{step}".rstrip("/")
    match kind:
        case "approval":
            return f"holdfast answer {name} yes | no --by NAME"
        case "question":
            return f"holdfast answer {name} VALUE --by NAME"
        case "handoff":
            return f"holdfast answer {name} VALUE --by NAME | holdfast take-over {name} --by NAME"
        case "halted":
            return f"holdfast resume {run} | holdfast take-over {run} --by NAME | holdfast cancel {run}"
        case "contradicted":
            return f"holdfast resolve {name} --happened | --did-not-happen"
        case "contradicted, amendable":
            return f"holdfast resolve {name} --happened | --did-not-happen | --compensate"
        case "person" if step.endswith("/"):
            return f"holdfast transaction {name} --retry | --accept"
        case "person":
            words = "--happened | --did-not-happen [--retry]" if sent else "--did-not-happen --retry | --give-up"
            return f"holdfast resolve {name} {words}"
        case _:
            return ""


def question_of(operation: OperationState, rule: str = "") -> str:
    """Why a person is asked, with what the last call said: the first thing that the person wants to know."""
    reason = operation.reason or rule
    if operation.wants_approval and operation.asks_people > 1:
        said = f", {', '.join(operation.approvers)} said yes" if operation.approvers else ""
        return f"{reason} ({operation.asks_people} people{said})"
    end = operation.attempts[-1].end if operation.attempts else None
    return reason if end is None or not end.why or end.why in reason else f"{reason} ({end.why})"
