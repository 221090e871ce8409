"""Commands from outside, as the ledger holds them: what a person, another process or a service sends to one run.

The engine applies them (`engine/commands.py`); commands that only look read them without the engine.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from beforehand.model import records as r

COMMANDS: Final = "run/"
"""The ledger streams of commands: this prefix, and the name of the run."""
DELIVERIES: Final = "deliveries"
"""The ledger stream in which every delivery is announced; house-keeping finishes interrupted deliveries."""
Verdict: TypeAlias = r.ApprovalGranted | r.ApprovalRefused | r.ArgumentsEdited | r.ResultGiven
YES: Final = (r.ApprovalGranted, r.ResultGiven)
"""Answers that let the run proceed. A proposer cannot give one; an edit is a proposal, and open to everyone."""
VERDICTS: Final = (r.ApprovalGranted, r.ApprovalRefused, r.ArgumentsEdited, r.ResultGiven)
CommandName = Literal[
    "approve", "decline", "edit", "stand_in", "cancel", "pause", "unpause", "resolve", "late", "reopen", "review",
    "take_over", "tell", "transaction", "undo", "budget", "child_ended",
]  # fmt: skip
RunCommandRecord: TypeAlias = r.TransactionResolved | r.TransactionAborting | r.MessageReceived | r.BudgetRaised
CommandRecord: TypeAlias = Verdict | r.Resolved | r.LateReport | RunCommandRecord


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """One command. `record` is what it adds to the run, if it is about one operation or transaction.

    `after` names the person who answered first: this answer came second and is only recorded. `via` is how the giver's
    name is known: typed by a person with access to the file, or proven by a password, a token, a proxy or a provider.
    `proven_ms` is the wall clock at which a password was given; 0: none was. `refused` is why the command must not be
    applied: it is only recorded.
    """

    word: CommandName = "late"
    by: str = ""
    note: str = ""
    record: CommandRecord | None = None
    after: str = ""
    via: str = ""
    proven_ms: int = 0
    refused: str = ""


class AnswerNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Announces a message before it is stored, so that a deliverer that dies in between leaves a trace.

    With a `run` it is a report among the commands of that run, which may have ended.
    """

    key: str
    id: str
    run: str = ""


def command_stream(run: str) -> str:
    """The ledger stream of commands for one run."""
    return f"{COMMANDS}{run}"
