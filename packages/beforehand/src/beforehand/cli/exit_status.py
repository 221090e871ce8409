"""Exit statuses, and the form of an error: what happened, what is known, what to do next."""

from __future__ import annotations

from typing import Final

import msgspec

from beforehand.cli.screen import Screen, folded, prose
from beforehand.errors import (
    AmbiguousStep,
    BeforehandError,
    ChainBroken,
    JournalDistrusted,
    NotAllowed,
    ParameterMismatch,
    QueueDraining,
    QueueFull,
    ReplayDiverged,
    RunQueued,
    RunSuspended,
    UsageError,
)
from beforehand.inspect.text import marked, safe

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
WAITS: Final = 3
DIVERGED: Final = 4
INTERRUPTED: Final = 130

MEANINGS: Final = {
    DONE: "done",
    FAILED: "failed: a run stopped, a queue is full or drained, an effect stands after an undo, or the journal could "
    "not be used",
    USAGE: "usage: the command cannot be done as it was given; nothing was recorded or sent",
    WAITS: "it waits: for a person, a slot of its queue, or an event or a time that its process does not wait for",
    DIVERGED: "a run diverged from its record, or a chain of records is broken",
    INTERRUPTED: "interrupted",
}


class CommandProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as a program reads it."""

    error: str
    message: str
    known: str = ""
    next_step: str = ""
    difference: str = ""
    exit_status: int = FAILED


def status_of(error: BaseException) -> int:
    """The exit status of a command that ended with this error."""
    match error:
        case RunSuspended() | RunQueued() | JournalDistrusted():
            return WAITS
        case ReplayDiverged() | AmbiguousStep() | ChainBroken():
            return DIVERGED
        case QueueFull() | QueueDraining():  # the same command may succeed later
            return FAILED
        case UsageError() | ParameterMismatch() | NotAllowed():
            return USAGE
        case _:
            return FAILED


def problem_of(error: BaseException) -> CommandProblem:
    """The report of an error."""
    name, status = type(error).__name__, status_of(error)
    if not isinstance(error, BeforehandError):
        return CommandProblem(name, str(error) or name, exit_status=status)
    difference = error.difference if isinstance(error, ReplayDiverged) else ""
    return CommandProblem(name, error.message, error.known, error.next_step, difference, status)


def tell(screen: Screen, problem: CommandProblem) -> int:
    """Report it on standard error, and where JSON was asked for as the document on standard output."""
    if screen.as_json and not screen.document_written:
        screen.document({"error": problem})
    err = screen.err
    for line in prose(marked(f"{problem.error}: {problem.message}")).split(allow_blank=True):
        folded(err, line, "bold red")
    for line in prose(f"Known: {marked(problem.known)}").split(allow_blank=True) if problem.known else ():
        folded(err, line)
    if problem.next_step:
        err.print(f"Next: {safe(problem.next_step, lines=True)}".replace(": \n", ":\n"), soft_wrap=True)
    if problem.difference:
        err.print(prose(problem.difference), soft_wrap=True)
    return problem.exit_status
