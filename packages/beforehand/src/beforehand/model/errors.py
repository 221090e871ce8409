"""The errors of the package that carry no outcome. They import nothing, so that every module can raise them.

The errors that carry an `Outcome` are beside it (`model/outcome.py`); `beforehand.errors` lists all of them for users.
Errors that a tool raises to tell the runtime how its call ended (`NotSent`, `Ambiguous`, `KeyInProgress`, `Deferred`)
come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from beforehand.model.shell import lines, to_type


class BeforehandError(Exception):
    """The root of all errors of this package.

    `known` says what the journal proves, `next_step` what a person can do; both may be empty.
    """

    def __init__(self, message: str, *, known: str = "", next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.known = known
        self.next_step = next_step

    def __str__(self) -> str:
        parts = [self.message]
        if self.known:
            parts.append(f"Known: {self.known}")
        if self.next_step:
            parts.append(f"Next: {self.next_step}".replace(" \n", "\n", 1))
        sentences = [part if part.endswith((".", "?", "!")) else f"{part}." for part in parts]
        if "beforehand " in parts[-1].rpartition(": ")[2]:
            sentences[-1] = parts[-1]  # nothing follows a command: a dot would be pasted with it
        return " ".join(sentences)


LONGEST_WAIT_S: Final = 366 * 86_400
"""The longest time in seconds that a tool can name, a year; a longer one in the answer of a system counts as this."""


def checked_wait(retry_after: float | None) -> float | None:
    """A time in seconds that a tool names. Raises `ArgumentError` for anything else."""
    number = isinstance(retry_after, (int, float)) and not isinstance(retry_after, bool)
    if retry_after is None or (number and 0 <= retry_after <= LONGEST_WAIT_S):
        return retry_after
    raise ArgumentError(
        f"retry_after={retry_after!r} is not a time to wait",
        parameter="retry_after",
        next_step=f"give seconds from 0 to {LONGEST_WAIT_S} (a year), or None",
    )


# --- how a call ended: raised by tools -------------------------------------------------------------


class NotSent(BeforehandError):
    """The tool's statement that nothing landed: the request never reached the system, or was refused as a whole.

    `retry_after` is the time in seconds after which the system asks to be tried again, at most a year.
    Raises `ArgumentError` for anything else.
    """

    def __init__(
        self, message: str = "nothing was sent", *, retry_after: float | None = None, next_step: str = ""
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.retry_after = checked_wait(retry_after)


class Ambiguous(BeforehandError):
    """The tool's statement that the effect may or may not have landed."""


class KeyInProgress(Ambiguous):
    """The system answers that another request with our idempotency key is still being worked on.

    `retry_after` is the time in seconds after which the system asks to be asked again. The answer costs no attempt:
    `Key(in_progress_patience=...)` limits how long it is waited for.
    """

    def __init__(
        self, message: str = "the key is in progress", *, retry_after: float | None = None, next_step: str = ""
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.retry_after = retry_after


LONGEST_ANSWER: Final = timedelta(days=36_525)
"""The longest time for which an answer can be awaited."""


class Deferred(BeforehandError):
    """The system accepted the call, and its answer comes later ("confirmation within 24 hours").

    `within` is the deadline for the answer, counted from now. `key` is the name under which the answer arrives, for
    example a confirmation number. It must identify this one effect; by default it is the operation's own idempotency
    key. `every` is the interval at which `verify` looks for the answer. Until the answer arrives, the operation is
    pending and nothing is sent again. At the deadline the operation is verified; if that proves nothing, a person is
    asked. Time alone never makes it `failed`.
    """

    def __init__(
        self,
        evidence: str = "accepted",
        *,
        within: timedelta = timedelta(days=1),
        key: str = "",
        every: timedelta | None = None,
    ) -> None:
        for name, span in (("within", within), ("every", every)):
            if not isinstance(span, timedelta) and not (name == "every" and span is None):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
                raise ArgumentError(f"{name}={span!r} is not a duration", parameter=name, next_step="give a timedelta")
            if span is not None and not timedelta(0) < span <= LONGEST_ANSWER:
                raise ArgumentError(
                    f"{name}={span}: the wait for an answer is longer than zero and at most a century",
                    parameter=name,
                    next_step="give a timedelta between",
                )
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
            raise ArgumentError(f"key={key!r} is not text", parameter="key", next_step="give text, or nothing")
        super().__init__(evidence)
        self.within = within
        self.key = key
        self.every = every


class ResultLost(BeforehandError):
    """The effect is counted as done, but its result could not be stored and read back.

    Raised live and on replay alike. The tool's return annotation decides how results are decoded.
    """


class SendByPassed(NotSent):
    """`check_send()` was called after the attempt's send-by deadline: sending now could repeat the effect."""


# --- bad input ---------------------------------------------------------------------------------------


class UsageError(BeforehandError):
    """The caller asked for something that cannot be done as asked; nothing was recorded or sent."""


class ArgumentError(UsageError, ValueError):
    """An argument has no canonical form, or another type. `parameter` is its path, such as `order.lines[3].price`."""

    def __init__(self, message: str, *, parameter: str = "", next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.parameter = parameter


class ContractError(UsageError):
    """A tool or agent contradicts itself; found when it is declared."""


class StaleFacts(UsageError):
    """A decision demands facts that are missing, or older than it allows. `names` lists them."""

    def __init__(self, message: str, *, names: tuple[str, ...], next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.names = names


class OutsideRun(UsageError):
    """A tool was called outside a run, so its effect could not be recorded."""


class UnknownTool(UsageError):
    """No tool of that name is known to this app."""


class UnknownRun(UsageError):
    """No run of that name is in this journal."""


class NameClash(UsageError):
    """Two tools or agents of one app share a name."""


class QueueFull(UsageError):
    """As many runs wait in a queue as it takes. Nothing was stored, so the same submission may be tried again."""


class QueueDraining(UsageError):
    """A person drains the queue: it accepts no submission. Nothing was stored, so it may be tried again later."""


class MustHold(UsageError):
    """An irreversible effect was awaited inside a transaction; it has to be held or explicitly not."""


# --- runs --------------------------------------------------------------------------------------------


class RunError(BeforehandError):
    """Something about one run; `run` is its id."""

    def __init__(self, message: str, *, run: str, known: str = "", next_step: str = "") -> None:
        super().__init__(message, known=known, next_step=next_step)
        self.run = run


class RunSuspended(RunError):
    """The run waits, without a process. The message says what it waits for and names the command that answers."""


class RunStopped(RunError):
    """The run stopped before its end; `reason` is error, diverged, quarantined, budget, cancelled or handed_over."""

    def __init__(self, message: str, *, run: str, reason: str, known: str = "", next_step: str = "") -> None:
        super().__init__(message, run=run, known=known, next_step=next_step)
        self.reason = reason


class ChildStopped(RunError):
    """A child run that was joined ended without a result. `run` is the child, `reason` why it ended.

    The reason is that of `RunStopped`, or `undone`. A replay raises the same error.
    """

    def __init__(self, message: str, *, run: str, reason: str, known: str = "", next_step: str = "") -> None:
        super().__init__(message, run=run, known=known, next_step=next_step)
        self.reason = reason


class Interrupted(RunError):
    """A message arrived for the run before its next write, so that write was not sent.

    `text` is the message, `sender` its author, and `facts` what came with it: `run.facts` has them already. With
    `stop` no new write of the run begins: each one raises this again.
    """

    def __init__(
        self, text: str, *, run: str, sender: str = "", facts: Mapping[str, object] | None = None, stop: bool = False
    ) -> None:
        super().__init__(f"{sender or 'a person'} told run {run}: {text}", run=run, known="nothing new was sent since")
        self.text = text
        self.sender = sender
        self.facts = dict(facts or {})
        self.stop = stop


class RunBusy(RunError):
    """Another process drives this run now."""


class RunQueued(RunBusy):
    """The run waits in a queue for a slot. A worker starts it."""


class ParameterMismatch(RunError):
    """The same run id, step or business key came back with other values. Nothing was sent."""


class AmbiguousStep(RunError):
    """Two branches of one scope call steps without names: their order would not be stable over replay."""


class ReplayDiverged(RunError):
    """The agent's code did not come back to what is recorded. Nothing was sent; `difference` shows where."""

    def __init__(self, message: str, *, run: str, difference: str = "", next_step: str = "") -> None:
        super().__init__(message, run=run, next_step=next_step)
        self.difference = difference


class ClaimUnproven(RunError):
    """A run ended by claiming effects that no succeeded operation of it proves; `missing` lists them."""

    def __init__(self, message: str, *, run: str, missing: tuple[str, ...]) -> None:
        super().__init__(message, run=run, next_step=lines(to_type("tell", run, "TEXT"), to_type("resume", run)))
        self.missing = missing


class TransactionAborted(RunError):
    """A transaction was aborted. `undone` names what was compensated, `still_standing` what was not."""

    def __init__(
        self,
        message: str,
        *,
        run: str,
        reason: str,
        undone: tuple[str, ...] = (),
        still_standing: tuple[str, ...] = (),
        transaction: str = "",
    ) -> None:
        known = f"undone: {', '.join(undone) or 'nothing'}; still standing: {', '.join(still_standing) or 'nothing'}"
        super().__init__(message, run=run, known=known)
        self.transaction = transaction
        self.reason = reason
        self.undone = undone
        self.still_standing = still_standing


# --- plans -------------------------------------------------------------------------------------------


class PlanRefused(UsageError):
    """A plan cannot run as it is; `faults` lists everything that is wrong with it. Nothing was recorded or sent."""

    def __init__(self, message: str, *, faults: tuple[str, ...]) -> None:
        super().__init__(message, next_step="correct every fault and submit the plan again")
        self.faults = faults


class PlanError(RunError):
    """A plan came to an end before its last step. `plan` and `step` say where."""

    def __init__(self, message: str, *, run: str, plan: str, step: str = "") -> None:
        super().__init__(message, run=run)
        self.plan = plan
        self.step = step


class PlanAborted(PlanError):
    """A condition of the plan, or a person, called it off."""


class PlanStepFailed(PlanError):
    """A step and all its fallbacks are proven to have failed, or it is unknown whether one of its calls landed."""


class Shaken(NamedTuple):
    """The effect of corrections on a plan: the facts, and the steps that relied on them, dropped or executed."""

    facts: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    executed: tuple[str, ...] = ()


class NewPlanNeeded(PlanError):
    """The basis of a step has changed, so the plan has to be remade. `results` is what is known so far.

    Where facts were corrected, `corrected` names them. Of the steps that relied on them `dropped` were never executed;
    the effects of `executed` are there, and have to be compensated or reviewed.
    """

    def __init__(
        self,
        message: str,
        *,
        run: str,
        plan: str,
        results: dict[str, object],
        step: str = "",
        shaken: Shaken | None = None,
    ) -> None:
        super().__init__(message, run=run, plan=plan, step=step)
        self.results = results
        self.corrected = shaken.facts if shaken is not None else ()
        self.dropped = shaken.dropped if shaken is not None else ()
        self.executed = shaken.executed if shaken is not None else ()


# --- who may ------------------------------------------------------------------------------------------


class NotAllowed(BeforehandError):
    """The person may not do this: their role, or their part in it, forbids it. Nothing was done."""


class SignInNeeded(NotAllowed):
    """An approval requires a person who signed in, or who did so a short time ago. Nothing was done."""


class SignInRefused(BeforehandError):
    """A name, password, token or session was not accepted; the text never says which part of it was wrong.

    `retry_after` is the time in seconds before which another try is not considered; 0: try at any time.
    """

    def __init__(self, message: str, *, retry_after: float = 0.0, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.retry_after = retry_after


# --- models ------------------------------------------------------------------------------------------


class ModelError(BeforehandError):
    """A model gave no usable answer. `code` is the class of the error: it is on record, and fallbacks depend on it.

    `retry_after` is the time in seconds after which the provider asks to be tried again. `reply` is the answer that
    could not be used, as far as it came: its usage is recorded.
    """

    def __init__(
        self, message: str, *, code: str, retry_after: float | None = None, known: str = "", next_step: str = ""
    ) -> None:
        super().__init__(message, known=known, next_step=next_step)
        self.code = code
        self.retry_after = retry_after
        self.reply: object | None = None

    @property
    def is_outage(self) -> bool:
        """True if asking again may help by itself."""
        return self.code in {"unavailable", "rate_limited"}


class LoopStopped(BeforehandError):
    """A loop around a model ended without an answer. `code` says why: `turns`, `tokens`, `refusal` or `unusable`."""

    def __init__(self, message: str, *, code: str, known: str = "", next_step: str = "") -> None:
        super().__init__(message, known=known, next_step=next_step)
        self.code = code


# --- the journal -------------------------------------------------------------------------------------


class JournalError(BeforehandError):
    """The journal cannot be used as asked."""


class JournalUnavailable(JournalError):
    """The disk or database refused a write. Nothing was sent after it; what was acknowledged is safe."""


class JournalLocked(JournalUnavailable):
    """Another process held the journal's lock for longer than is waited. Nothing was written."""


class JournalDistrusted(JournalError):
    """The file looks copied, rolled back or restored: nothing is sent until an operator confirms."""


class ChainBroken(JournalError):
    """A record was changed, removed or reordered after it was written."""


class Unreadable(JournalError):
    """A stored record or ledger entry cannot be read by this version. What does not depend on it goes on."""


class LeaseLost(JournalError):
    """Another owner drives this run now; nothing was written."""


class LedgerTaken(JournalError):
    """A ledger entry that had to be new exists already; nothing was written. `body` is the existing entry."""

    def __init__(self, stream: str, key: str, body: bytes) -> None:
        super().__init__(f"{stream} already has an entry {key!r}")
        self.stream, self.key, self.body = stream, key, body


class LimitsChanged(JournalError):
    """Other limits of queues were declared since this process read them; no slot was given, and nothing was stored."""


class BudgetSpent(JournalError):
    """A limit of a budget that runs share is reached: `used` and `reserved` come to it. Nothing was written."""

    def __init__(self, budget: str, limit: str, used: int, reserved: int) -> None:
        super().__init__(f"the limit of {limit} of the budget {budget} is reached")
        self.budget, self.limit, self.used, self.reserved = budget, limit, used, reserved


class SendingPaused(JournalError):
    """All sending is paused, and this write would begin an attempt. Nothing was written, and the lease is kept."""


class RecordRefused(JournalError):
    """One record of a batch cannot be stored; the rest of the batch is not affected."""


# --- signals that user code must not swallow -----------------------------------------------------------


class Sealed(BaseException):
    """A run instance is being torn down: nothing may be recorded or sent through it any more.

    A `BaseException`, so that `except Exception` in agent code cannot swallow it.
    """
