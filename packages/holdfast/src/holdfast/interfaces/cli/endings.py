"""How one drive of a run ended, for a person and for a program."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable
from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError, JournalError, ParameterMismatch, RunStopped, RunSuspended, UsageError
from holdfast.interfaces.cli.apps import Holdfast
from holdfast.interfaces.cli.screen import Screen, prose
from holdfast.interfaces.cli.status import DIVERGED, DONE, FAILED, WAITS, Problem, problem_of, status_of
from holdfast.interfaces.looking import Waiting, waits_of
from holdfast.interfaces.moments import moment
from holdfast.interfaces.people.items import answers_to
from holdfast.model.records import NOTHING, Raw
from holdfast.model.waits import after_deadline

_STYLES: Final = {"completed": "bold green", "undone": "bold green", "suspended": "bold yellow"}


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run after it was driven. `line` is where its input stood in a file of inputs."""

    run: str
    status: str
    exit_status: int
    result: Raw | None = None
    reason: str = ""
    waits: list[Waiting] = []
    problem: Problem | None = None
    line: int | None = None


async def ended_of(app: Holdfast, run: str, driving: Awaitable[Any], line: int | None = None) -> Ended:
    """Wait for a run and say how it ended. Raises `JournalError` and `UsageError`: those are about the command."""
    try:
        await driving
    except JournalError:
        raise
    except UsageError as error:
        if not await _has_stopped(app, run):
            raise
        return await _stopped(app, run, error, line)
    except RunSuspended as error:
        row = await app.service.row(run)
        return Ended(
            run, "suspended", WAITS, reason=row.reason, waits=waits_of(row), problem=problem_of(error), line=line
        )
    except Exception as error:  # noqa: BLE001 - whatever agent code raised is how its run ended
        return await _stopped(app, run, error, line)
    completed = (await app.service.history(run)).completed
    return Ended(run, "completed", DONE, result=completed.result if completed else NOTHING, line=line)


async def _stopped(app: Holdfast, run: str, error: Exception, line: int | None) -> Ended:
    refused = isinstance(error, ParameterMismatch)
    status = FAILED if isinstance(error, UsageError) else status_of(error)  # agent code raised it: its run failed
    if isinstance(error, RunStopped) and error.reason == "diverged":
        status = DIVERGED
    problem = problem_of(error)
    state = "stopped" if not refused and await _has_stopped(app, run) else "refused"
    reason = str(error)
    if not isinstance(error, HoldfastError):
        name = type(error).__name__
        # From the record, where secrets are masked: the exception itself may hold them, and terminals are logged.
        reason = (await _recorded_error(app, run) if state == "stopped" else "").removeprefix(name).removeprefix(": ")
        problem = msgspec.structs.replace(problem, message=reason or name, known=_place(error), next_step="")
    if state == "stopped" and not problem.next_step:
        problem = msgspec.structs.replace(problem, next_step=f"holdfast show {run}; after a fix: holdfast resume {run}")
    return Ended(
        run, state, status, reason=reason, line=line,
        problem=msgspec.structs.replace(problem, exit_status=status),
    )  # fmt: skip


async def _has_stopped(app: Holdfast, run: str) -> bool:
    rows = await app.engine.journal.runs(run=run)
    return bool(rows) and rows[0].status == "stopped"


async def _recorded_error(app: Holdfast, run: str) -> str:
    stopped = (await app.service.history(run)).stopped
    return stopped.error if stopped is not None else ""


def _place(error: BaseException) -> str:
    """The last line of the user's own code, which is where to look first."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "holdfast" not in f.filename.split("/")[-3:-1]]
    return f"raised at {frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}" if frames else ""


def tell_end(screen: Screen, ended: Ended) -> None:
    """The result on standard output; what else there is to say on standard error."""
    if screen.as_json:
        screen.document(ended)
        return
    screen.note((ended.run, "bold"), " ", (ended.status, _STYLES.get(ended.status, "bold red")))
    if ended.result is not None:
        screen.block(bytes(ended.result).decode("utf-8", "replace"))
        return
    for line in waiting_lines(ended):
        screen.note(f"  {line}")
    problem = ended.problem
    if problem is None:
        return
    if ended.status != "suspended":
        screen.note((f"{problem.error}: {problem.message}", "red"))
        for label, text in (("Known", problem.known), ("Next", problem.next_step)):
            if text:
                screen.note(f"{label}: {text}")
        if problem.difference:
            screen.err.print(prose(problem.difference))


def waiting_lines(ended: Ended) -> list[str]:
    """What a suspended run waits for, and the commands that answer."""
    lines: list[str] = []
    for wait in ended.waits:
        then = f", then {after_deadline(wait.then)}" if wait.then else ""
        lines.append(wait.asks + (f" (until {moment(wait.due)}{then})" if wait.due else ""))
        lines += [f"  {line}" for line in answers_to(ended.run, wait) if wait.kind != "question"]
    if ended.status == "suspended" and not ended.waits:
        lines.append(ended.reason)
    if any(wait.kind in {"timer", "retry", "verify", "breaker"} for wait in ended.waits):
        lines.append("a worker goes on when it is time: holdfast worker")
    return lines
