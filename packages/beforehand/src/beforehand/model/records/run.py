"""The records of one run that belong to no write: its life, its reads, decisions, waits and messages."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from beforehand.model.questions import Question, Scalar
from beforehand.model.records.common import NOTHING, Raw, Stamped
from beforehand.model.records.operation import Reported
from beforehand.model.records.transaction import TransactionRecord
from beforehand.model.stop_reasons import StopReason
from beforehand.model.usage import CallCost, Usage
from beforehand.policies import RunBudget


class Parent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run that started a child run, and its step. `depth` counts the runs above the child.

    `until` is the wall clock at which the time of the parent is over; 0: it has no deadline. `queues` are those of the
    runs above the child. `budgets` are the runs above it whose limits hold for their whole tree. `voices` are those who
    had told the parent something.
    """

    run: str
    step: str
    depth: int = 1
    until: int = 0
    queues: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()
    voices: tuple[str, ...] = ()


class RunStarted(Stamped, frozen=True):
    """The start of a run: its agent, its input, the version of the agent's code, and the person who asked for it.

    `program` is the program that the agent belongs to; empty for the runtime's own agents. A submitted run has a
    `queue` and may have a `tenant`. One that a schedule submitted has its name and the moment of the firing. `trace` is
    the trace context of the code that asked for the run, if it was traced (a W3C traceparent). `budget` are the limits
    of the run, if it has any. `parent` is the run that started it, if one did.
    """

    agent: str
    input: Raw
    digest: str
    version: str = ""
    by: str = ""
    program: str = ""
    queue: str = ""
    tenant: str = ""
    schedule: str = ""
    moment: int = 0
    trace: str = ""
    budget: RunBudget | None = None
    parent: Parent | None = None


class Claimed(Stamped, frozen=True):
    """A worker took the lease. `boot` names the clock of every `up` that follows.

    `trace` is the trace context of what this worker does with the run, if the run is traced. `restored` is the
    incarnation of a journal that may have forgotten records; empty where it is trusted.
    """

    worker: str
    token: int
    boot: str
    number: int = 1  # owners since one ended in order, including this one, without those known to live or told to end
    trace: str = ""
    restored: str = ""


class ContractStored(Stamped, frozen=True):
    """The clauses behind a contract digest; written once per run before the first use."""

    digest: str
    clauses: Raw


class ReadRecorded(Stamped, frozen=True):
    """A read and its outcome. With `refused`, the read failed because the system refused it."""

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
    """A model call started. The record is buffered: losing it costs one more call of the model.

    Under a budget it is durable before the model is called, and `reserved` are the tokens that the call reserves.
    `price` is the cost that it reserves and the basis of that, under a budget in a currency. `shared` are the budgets
    that it is charged to beside other runs, each with its period. `before` is the usage of the call before it, whose
    answer was not used.
    """

    step: str
    function: str
    number: int = 1
    before: Usage = Usage()
    reserved: int = 0
    price: CallCost | None = None
    shared: tuple[tuple[str, str], ...] = ()


class ReservationSettled(Stamped, frozen=True):
    """A model call under a budget ended, and its answer is not used. `usage` is what it used, as far as it is known.

    `price` is what that cost, and its basis, under a budget in a currency; None where it is not known.

    Nothing else states the end of a call that is cancelled; one that is made again would keep its reservation until
    then.
    """

    step: str
    usage: Usage = Usage()
    price: CallCost | None = None


class DecisionRecorded(Stamped, frozen=True):
    """A model's decision: the digest of its input and the new part of it, the reason, the confidence and the usage.

    The usage is that of the last call, whether its answer was used or not. `price` is what that cost, and the basis,
    under a budget in a currency; None where it is not known.
    """

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
    code: str = ""  # the class of the error, if the model's client names one
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    audio_input_tokens: int = 0
    audio_output_tokens: int = 0
    model: str = ""
    service: str = ""
    request: str = ""  # the service's own id of the answer
    refused: bool = False  # the service refused the request, so nothing was used
    price: CallCost | None = None

    @property
    def usage(self) -> Usage:
        """The usage of the last call of this decision."""
        return Usage(**{name: getattr(self, name) for name in Usage.__struct_fields__})


class ValueRecorded(Stamped, frozen=True):
    """A journaled value: a time, a random number, an identifier or a version marker."""

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
    """The time has passed."""

    step: str


class Handoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """The context of a hand-off to people: the queue, the state that code passed, and the facts at that time."""

    queue: str = ""
    state: Raw = NOTHING
    facts: Raw = NOTHING


class QuestionAsked(Stamped, frozen=True):
    """The run asks a person. At the time limit `default` becomes the answer. The answer is an `EventReceived`.

    With `handoff` the run is handed over: a person returns it with an answer, or takes it over.
    """

    step: str
    question: Question
    until: int = 0
    default: Scalar | None = None
    handoff: Handoff | None = None


class EventReceived(Stamped, frozen=True):
    """The code received the ledger entry that it waited for. `by` is the person who sent an event, if it was one."""

    step: str
    event: str
    key: str
    payload: Raw
    entry: int
    by: str = ""


class Delivered(Stamped, frozen=True):
    """The code received something other than the current outcome: an unknown outcome or a promise."""

    step: str
    told: str
    detail: str = ""


class CallerLeft(Stamped, frozen=True):
    """The caller was cancelled with its operation in flight, or before it took its answer. Replay cancels it there."""

    step: str  # `trip/`: the end of the transaction `trip`


class StepsDropped(Stamped, frozen=True):
    """A fact that these steps of a plan rely on was corrected. Nothing more is sent below them."""

    steps: tuple[str, ...]
    why: str


class CommandApplied(Stamped, frozen=True):
    """A command (cancel, pause, unpause) was taken from the ledger. `run` is the run that this one was forked from.

    `voices` are the people who had told that run something. `note` is the text of the person who gave the command.
    `refused` is the reason if the command was refused.
    """

    command: str
    by: str
    entry: int
    note: str = ""
    refused: str = ""
    run: str = ""
    voices: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The reason why it was refused, or else the note of its giver."""
        return f"refused: {self.refused}" if self.refused else self.note


class BudgetRaised(Stamped, frozen=True):
    """A person raised limits of the run by these amounts. `entry` is the ledger entry of the command."""

    by: str
    tokens: int = 0
    model_calls: int = 0
    effects: int = 0
    money: str = ""  # added to the limit of the cost
    note: str = ""
    entry: int = 0


class RunSuspendedRecord(Stamped, frozen=True, tag="RunSuspended"):
    """The run waits for a person, an event or a timer.

    `last_chance`: only because one more death sets it aside, so earlier deaths still count against it.
    """

    reason: str
    last_chance: bool = False


class RunReopened(Stamped, frozen=True):
    """A stopped run continues under the same id after a fix."""

    by: str
    version: str = ""
    note: str = ""


class RunCompleted(Stamped, frozen=True):
    """The agent returned. `voices` are the people who had told the run something."""

    result: Raw
    voices: tuple[str, ...] = ()


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
    """The run stopped before its end. `open` lists the operations that are not settled.

    `detail` is the difference between the code and the record. `frames` are the lines of agent code that an exception
    came through, the innermost last.

    If a person is asked how the run continues, the answer is due at the wall clock `until` (in milliseconds; 0: no
    deadline). `voices` are the people who had told the run something.
    """

    reason: StopReason
    error: str = ""
    detail: str = ""
    open: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    renews: tuple[str, ...] = ()  # transactions aborted before the stop: they begin anew after a reopening
    until: int = 0
    voices: tuple[str, ...] = ()


class RunUndone(Stamped, frozen=True):
    """A finished run was undone as far as possible: `undone` was compensated, `still_standing` was not.

    `below` names the effects (RUN/STEP) that stand after the undo of the runs below it.
    """

    by: str
    undone: tuple[str, ...] = ()
    still_standing: tuple[str, ...] = ()
    below: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The end in a few words."""
        left = len(self.still_standing) + len(self.below)
        return f"undone by {self.by}" + (f", but for {left} effect{'s' * (left > 1)}" if left else "")


# --- messages, and hand-offs to other agents ------------------------------------------------------------------------


class MessageReceived(Stamped, frozen=True):
    """A message to the run. No new write begins until its code has received it; with `stop`, none begins at all.

    `facts` correct the facts of the run. `entry` is the ledger entry of the message.
    """

    text: str
    by: str
    facts: tuple[Reported, ...] = ()
    stop: bool = False
    entry: int = 0


class MessageHeard(Stamped, frozen=True):
    """The code received these messages (by ledger entry) at this step. A replay delivers them at the same step."""

    step: str
    messages: tuple[int, ...] = ()


MessageRecord: TypeAlias = MessageReceived | MessageHeard


class HandedOff(Stamped, frozen=True):
    """The run continues in the code of another agent, with this input. Its steps are below `step` until it returns."""

    step: str
    agent: str
    why: str
    given: Raw
    digest: str
    version: str = ""


# --- child runs -----------------------------------------------------------------------------------------------------


class ChildStarted(Stamped, frozen=True):
    """The run starts a child run, with this input. The record is durable before the child is stored.

    With a `queue` the child is submitted to it. If `outlives` is set, the child continues when the run completes
    without having joined it; otherwise it is cancelled then. From the first child on, what a run with a budget has used
    and reserved is counted together with its whole tree.
    """

    step: str
    run: str
    agent: str
    digest: str
    version: str = ""
    queue: str = ""
    tenant: str = ""
    priority: int = 0
    outlives: bool = False


class ChildJoined(Stamped, frozen=True):
    """The code received the end of a child run: its result, or why it ended without one.

    `voices` are the people who had told the child something.
    """

    step: str
    run: str
    status: Literal["completed", "stopped", "undone"]
    reason: str = ""
    error: str = ""
    result: Raw = NOTHING
    voices: tuple[str, ...] = ()


RunRecord: TypeAlias = (
    RunStarted
    | Claimed
    | ContractStored
    | ReadRecorded
    | DecisionStarted
    | ReservationSettled
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
    | BudgetRaised
    | RunSuspendedRecord
    | RunReopened
    | RunCompleted
    | RunStoppedRecord
    | RunUndone
    | TransactionRecord
    | MessageRecord
    | HandedOff
    | ChildStarted
    | ChildJoined
)
