"""The records of one run that belong to no write: its life, its reads, decisions, waits and messages."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.model.questions import Question, Scalar
from holdfast.model.records.common import NOTHING, Raw, Stamped
from holdfast.model.records.operation import Reported
from holdfast.model.records.transaction import TransactionRecord
from holdfast.model.stop_reasons import StopReason


class RunStarted(Stamped, frozen=True):
    """The run exists: its agent, its input, which version of the agent's code began it, and who asked for it.

    `program` is the program that the agent belongs to; empty for the runtime's own agents. A submitted run has a
    `queue`, and perhaps a `tenant`.
    """

    agent: str
    input: Raw
    digest: str
    version: str = ""
    by: str = ""
    program: str = ""
    queue: str = ""
    tenant: str = ""


class Claimed(Stamped, frozen=True):
    """A worker took the lease. `boot` names the clock of every `up` that follows."""

    worker: str
    token: int
    boot: str
    number: int = 1  # owners since the last progress, this one included, without those seen to live


class ContractStored(Stamped, frozen=True):
    """The clauses behind a contract digest; written once per run before the first use."""

    digest: str
    clauses: Raw


class ReadRecorded(Stamped, frozen=True):
    """A read: its outcome is all there is to remember. `refused`: it failed because the system said no."""

    step: str
    tool: str
    arguments: Raw
    digest: str
    status: Literal["succeeded", "failed"] = "succeeded"
    reason: str = ""
    code: str = ""
    result: Raw = NOTHING
    attempts: int = 1
    refused: bool = False
    lost: bool = False  # the result could not be stored and read back
    facts: tuple[Reported, ...] = ()  # what it reported about the world


class DecisionStarted(Stamped, frozen=True):
    """A model call started. The record is buffered: losing it costs one more call of the model."""

    step: str
    function: str
    number: int = 1


class DecisionRecorded(Stamped, frozen=True):
    """A model's decision: what it saw (digest, and only the new part), why, how sure, what it cost."""

    step: str
    function: str
    digest: str
    seen: Raw = NOTHING
    status: Literal["succeeded", "failed"] = "succeeded"
    reason: str = ""
    result: Raw = NOTHING
    why: str = ""
    confidence: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    ms: int = 0
    code: str = ""  # the class of the error, where the client of the model names it


class ValueRecorded(Stamped, frozen=True):
    """A journaled value: the time, chance, an identifier, a version marker."""

    step: str
    what: str
    value: Raw


class TimerSet(Stamped, frozen=True):
    """The run sleeps, or waits for an event until a time limit."""

    step: str
    until: int
    event: str = ""
    key: str = ""


class TimerFired(Stamped, frozen=True):
    """The time is over."""

    step: str


class Handoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """The context of a hand-off to people: the queue, the state that code gave, and every fact as it was then."""

    queue: str = ""
    state: Raw = NOTHING
    facts: Raw = NOTHING


class QuestionAsked(Stamped, frozen=True):
    """The run asks a person, until a time limit; then `default` stands in. The answer is an `EventReceived`.

    With `handoff` the run is handed over: the person who answers gives it back, or takes it over.
    """

    step: str
    question: Question
    until: int = 0
    default: Scalar | None = None
    handoff: Handoff | None = None


class EventReceived(Stamped, frozen=True):
    """A ledger entry reached the code that waited for it."""

    step: str
    event: str
    key: str
    payload: Raw
    entry: int


class Delivered(Stamped, frozen=True):
    """The code received something other than the present outcome: an unknown, a promise."""

    step: str
    told: str
    detail: str = ""


class CallerLeft(Stamped, frozen=True):
    """The caller was cancelled while the operation was in flight; replay raises at the same point."""

    step: str


class StepsDropped(Stamped, frozen=True):
    """The basis of these steps of a plan was corrected: nothing more is sent below them."""

    steps: tuple[str, ...]
    why: str


class CommandApplied(Stamped, frozen=True):
    """A command from outside (cancel, pause, unpause) was taken from the ledger. `run`: what this was forked from.

    `note` is what its giver wrote; `refused` is why it was not followed, empty where it was.
    """

    command: str
    by: str
    entry: int
    note: str = ""
    refused: str = ""
    run: str = ""

    @property
    def summary(self) -> str:
        """The reason why it was refused, or else the note of its giver."""
        return f"refused: {self.refused}" if self.refused else self.note


class RunSuspendedRecord(Stamped, frozen=True, tag="RunSuspended"):
    """Nothing can go on without a person, an event or a timer."""

    reason: str


class RunReopened(Stamped, frozen=True):
    """A stopped run goes on under the same id after a fix."""

    by: str
    version: str = ""
    note: str = ""


class RunCompleted(Stamped, frozen=True):
    """The agent returned."""

    result: Raw


class Frame(msgspec.Struct, frozen=True):
    """A line of agent code that an exception came through."""

    file: str
    line: int
    function: str
    source: str = ""

    def __str__(self) -> str:
        """As a person reads it."""
        place = f"{self.file}:{self.line} in {self.function}"
        return f"{place}: {self.source}" if self.source else place


class RunStoppedRecord(Stamped, frozen=True, tag="RunStopped"):
    """The run ended before its end. `open` lists the operations that are not settled.

    `detail` is what the code did otherwise than the record, `frames` the lines of it that an exception came through,
    the innermost last.

    Where a person is asked how it goes on, an answer is wanted `until` that wall clock (milliseconds; 0: whenever).
    """

    reason: StopReason
    error: str = ""
    detail: str = ""
    open: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    renews: tuple[str, ...] = ()  # transactions called off on the way here: after a reopening they begin anew
    until: int = 0


class RunUndone(Stamped, frozen=True):
    """A finished run was undone as far as possible: `undone` was compensated, `still_standing` was not."""

    by: str
    undone: tuple[str, ...] = ()
    still_standing: tuple[str, ...] = ()


# --- messages, and hand-offs to other agents ------------------------------------------------------------------------


class MessageReceived(Stamped, frozen=True):
    """A message was sent to the run: no new write begins until its code has received it. `stop`: none begins at all.

    `facts` correct what the run believed. `entry` is the ledger entry that the message is.
    """

    text: str
    by: str
    facts: tuple[Reported, ...] = ()
    stop: bool = False
    entry: int = 0


class MessageHeard(Stamped, frozen=True):
    """The code received these messages at this step, by their ledger entries; replay delivers the same there."""

    step: str
    messages: tuple[int, ...] = ()


MessageRecord: TypeAlias = MessageReceived | MessageHeard


class HandedOff(Stamped, frozen=True):
    """The run goes on in the code of another agent, with this input; until it returns its steps lie below `step`."""

    step: str
    agent: str
    why: str
    given: Raw
    digest: str
    version: str = ""


RunRecord: TypeAlias = (
    RunStarted
    | Claimed
    | ContractStored
    | ReadRecorded
    | DecisionStarted
    | DecisionRecorded
    | ValueRecorded
    | TimerSet
    | TimerFired
    | QuestionAsked
    | EventReceived
    | Delivered
    | CallerLeft
    | StepsDropped
    | CommandApplied
    | RunSuspendedRecord
    | RunReopened
    | RunCompleted
    | RunStoppedRecord
    | RunUndone
    | TransactionRecord
    | MessageRecord
    | HandedOff
)
