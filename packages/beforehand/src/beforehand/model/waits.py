"""The waits of a suspended run that people can end, and the commands that end them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from beforehand.model.shell import NAME, named, to_type
from beforehand.model.wording import question_of

if TYPE_CHECKING:
    from beforehand.model.contract import Contract
    from beforehand.model.operation import OperationState
    from beforehand.model.run_history import RunHistory
    from beforehand.model.transaction import TransactionState

Then = Literal["", "refuse", "escalate", "hold", "default", "timeout"]
"""The action at a deadline: see `after_deadline`."""
Item = Literal["approval", "question", "review", "handoff", "unreadable"]
PEOPLE: Final[dict[str, Item]] = {"approval": "approval", "question": "question", "person": "review",
                                 "handoff": "handoff", "halted": "handoff", "unreadable": "unreadable",
                                 "hung": "review"}  # fmt: skip
"""The kinds of wait that a person ends, and what each is called in the inbox."""
DISPUTED: Final = "contradicted"
"""The kind of wait of a final outcome that was contradicted."""
AMENDABLE: Final = "contradicted, amendable"
"""The same, where its tool declares a compensation."""
BRIEF: Final = 12
HALT: Final = "halted"
"""The kind of wait of a run that stopped and cannot go on by itself. It is about the whole run: it has no step."""

HUNG: Final = "hung"
"""The kind of wait for a permit of a process that stands still: a person ends or continues the process."""

CHILD: Final = "child"
"""The kind of wait of a run that joins a child; the end of the child ends it."""
SHARED_BUDGET: Final = "shared_budget"
"""The kind of wait of a model call that a spent budget keeps from beginning; it ends by itself."""
UNREADABLE: Final = "unreadable"
"""The kind of wait of a run that stopped because something that it needs cannot be read. It has no step."""


_AFTER: Final[dict[Then, str]] = {
    "": "it waits for as long as the run has",
    "refuse": "it is refused, and nothing is sent",
    "escalate": "others are asked",
    "hold": "it goes on waiting, first in the list",
    "default": "its default is the answer",
    "timeout": "the agent gets a TimeoutError",
}


def after_deadline(then: Then) -> str:
    """The consequence of a missed deadline, in words."""
    return _AFTER[then]


def then_of(default: object) -> Then:
    """The action at the deadline of a question with this default."""
    return "timeout" if default is None else "default"


def brief(digest: str) -> str:
    """The part of a digest that commands carry: long enough that no other question has the same one."""
    return digest[:BRIEF]


def needs_result(history: RunHistory, operation: OperationState) -> bool:
    """True if `--happened` has to bring what the call returned: code waits for it, and its tool never returns null."""
    if operation.intent.completes or operation.contract not in history.contracts:
        return False
    return not stored_contract(history, operation).may_be_null


def stored_contract(history: RunHistory, operation: OperationState) -> Contract:
    """The contract under which it was attempted last, as it was stored with it."""
    from beforehand.model.contract import Contract  # noqa: PLC0415 - a list is read without contracts

    record = history.contracts.get(operation.contract)
    stored = Contract("") if record is None else msgspec.json.decode(record.clauses, type=Contract)
    return msgspec.structs.replace(stored, tool=operation.intent.tool)


def digest_of(*parts: object) -> str:
    """The digest of what a person is asked, which an answer can name."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def alike_in(history: RunHistory, operation: OperationState) -> list[OperationState]:
    """The unknown calls that a person cannot tell apart by what they do, this one included; empty for a single one."""
    if operation.phase != "unknown" or operation.intent.serves:
        return []
    call = operation.intent.tool, operation.intent.digest
    unknown = [one for one in history.operations.values() if one.phase == "unknown" and not one.intent.serves]
    found = [one for one in unknown if (one.intent.tool, one.intent.digest) == call]
    return found if len(found) > 1 else []


def review_digest(history: RunHistory, operation: OperationState) -> str:
    """The digest of what is asked about an operation whose outcome is unknown."""
    group = [(one.step, len(one.attempts), one.verification.checks) for one in alike_in(history, operation)]
    conflict = operation.verification.conflict
    return digest_of(len(operation.attempts), operation.reason, conflict, operation.phase, group)


def transaction_digest(transaction: TransactionState) -> str:
    """The digest of what is asked about a parked transaction."""
    return digest_of(transaction.tries, transaction.why, transaction.stuck, transaction.accepted)


def has_to_name(history: RunHistory, operation: OperationState) -> str:
    """The digest that an answer about what happened has to name, since the question changed; empty for none."""
    return review_digest(history, operation) if operation.approval.question_changed else ""


def sends_on_order(history: RunHistory, operation: OperationState) -> bool:
    """True if a person's order sends the operation once more.

    Of a cancelled run or an aborted transaction only what the order settles by its key and compensates then.
    """
    if operation.intent.serves:
        return bool(operation.intent.serves)
    gone = history.boundaries.called_off(operation.step)
    if gone is None or gone.over:
        return gone is None and history.lifecycle.cancelled is None
    return operation.settled_by_key(stored_contract(history, operation)) and not operation.needed_yes


def sent_again_by(history: RunHistory, stuck: Iterable[str]) -> list[OperationState]:
    """The unknown operations that `transaction --retry` sends again: what is stuck, confirms it or compensates it.

    The system dedupes on their keys, or repeating them changes nothing. What needed a yes needs an answer of its own.
    """
    from beforehand.model.saga import CONFIRM, serving  # noqa: PLC0415 - a list is read without operations

    operations = history.operations
    served = [step for step in stuck if step in operations]
    names = [name for step in served for name in (step, serving(step, CONFIRM), operations[step].links.compensated_by)]
    unknown = [operations[name] for name in names if name in operations and operations[name].phase == "unknown"]
    return [
        one
        for one in unknown
        if sends_on_order(history, one)
        and not one.needed_yes
        and not one.key_unread
        and stored_contract(history, one).idempotency is not None
    ]


def statements_on(history: RunHistory, operation: OperationState) -> tuple[str, ...]:
    """The commands with which a person says what happened to an operation of a run."""
    answers = answers_with(
        history.run, "person", operation.step, sent=operation.may_have_been_sent,
        shown=has_to_name(history, operation), result=needs_result(history, operation),
    )  # fmt: skip
    again = sends_on_order(history, operation)
    return tuple(answer for answer in answers if again or "--retry" not in answer)


def answers_with(
    run: str, kind: str, step: str, *, sent: bool = True, shown: str = "", result: bool = False
) -> tuple[str, ...]:
    """The commands that answer this wait of a run, where a person can. `sent`: something may have been sent already.

    `shown` is the digest of what is asked: the commands carry it, so that they answer nothing else. `result`: see
    `needs_result`.
    """
    name, by = f"{run}/{step}".rstrip("/"), ("--by", NAME)
    match kind:
        case "approval":
            what = ("--shown", brief(shown), *by)
            yes_or_no = to_type("answer", name, "yes", *what), to_type("answer", name, "no", *what)
            return yes_or_no if shown else (to_type("inbox", "--item", name),)
        case "question":
            return (to_type("answer", name, "VALUE", *by),)
        case "handoff":
            return to_type("answer", name, "VALUE", *by), to_type("take-over", name, *by)
        case "halted":
            return to_type("resume", run), to_type("take-over", run, *by), to_type("cancel", run)
        case "unreadable":
            return to_type("verify"), to_type("doctor"), to_type("resume", run)
        case "person" if step.endswith("/"):
            seen = ("--shown", brief(shown)) if shown else ()
            return to_type("transaction", name, "--retry", *seen), to_type("transaction", name, "--accept", *seen)
        case "person" | "contradicted" | "contradicted, amendable":
            what = ("--evidence", "TEXT", *(("--shown", brief(shown)) if shown else ()), *by)
            options = _statements(kind, sent=sent, result=result)
            return tuple(to_type("resolve", name, *option, *what) for option in options)
        case _:
            return ()


def brings(run: str, kind: str, key: str, event: str) -> tuple[str, ...]:
    """The command that brings an awaited answer under its key, or an event of that name and key; none for others."""
    if kind == "event":
        names, options = named(run, event), ("--key", key) if key else ()
        return (to_type("signal", *options, *names) if names[0] == "--" else to_type("signal", *names, *options),)
    return (to_type("deliver", *named(key)),) if kind == "answer" and key else ()


def _statements(kind: str, *, sent: bool, result: bool) -> list[tuple[str, ...]]:
    """The options with which a person says what happened. `result`: they have to bring what the call returned."""
    again = ("--did-not-happen", "--retry")
    if kind == "person" and not sent:
        return [again, ("--did-not-happen", "--give-up")]
    happened = ("--happened", "--result", "JSON") if result and kind == "person" else ("--happened",)
    more = again if kind == "person" else ("--compensate",)
    return [happened, ("--did-not-happen",), *([] if kind == DISPUTED else [more])]


class ListedWait(msgspec.Struct, frozen=True, gc=False):
    """One thing that a run waits for, as the listing has it. `due` and `at`: wall clock, milliseconds.

    A question to a person has the deadline for an answer as `due`, and `then` says what happens at that moment. `shown`
    is the digest that an answer has to name. `unsent`: nothing was sent yet. `result`: see `needs_result`.
    """

    kind: str
    step: str = ""
    asks: str = ""
    due: int | None = None
    at: int = 0
    queue: str = ""
    tool: str = ""
    then: Then = ""
    shown: str = ""
    unsent: bool = False
    result: bool = False
    budget: str = ""  # the shared budget that is spent


class HasKind(Protocol):
    """A wait, live or listed."""

    @property
    def kind(self) -> str:
        """The kind of the wait."""
        ...


_WAITS: Final = msgspec.json.Decoder(list[ListedWait])


def decode_waits(waits: bytes) -> list[ListedWait]:
    """The waits of a run, from its row of the listing."""
    return _WAITS.decode(waits)


def is_child_wait(waits: Collection[HasKind]) -> bool:
    """True if a run with these waits waits for children, and for nothing else."""
    return bool(waits) and all(wait.kind == CHILD for wait in waits)


def waits_left(waits: bytes, history: RunHistory, answered: str = "") -> bytes:
    """The waits that are still open once commands were applied; `answered` is a step with its answer."""
    left = (_left(wait, history, answered) for wait in decode_waits(waits))
    return msgspec.json.encode([wait for wait in left if wait is not None])


def _left(wait: ListedWait, history: RunHistory, answered: str) -> ListedWait | None:
    operation = history.operations.get(wait.step)
    if wait.kind == HALT or wait.step == answered or (wait.kind in PEOPLE and history.lifecycle.cancelled is not None):
        return None
    if wait.kind not in PEOPLE or operation is None:
        return wait
    if not operation.asks:
        return None
    shown = has_to_name(history, operation) if wait.kind == "person" else wait.shown
    return msgspec.structs.replace(wait, asks=f"{history.run}/{wait.step}: {question_of(operation)}", shown=shown)
