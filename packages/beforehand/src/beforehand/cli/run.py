"""`run`, `resume` and `worker`: drive one run, a file of inputs, or the runs that are due."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Awaitable
from typing import Any, Final

import click
import msgspec

from beforehand.cli.apps import (
    MANY_RUNS_GC,
    AnyAgent,
    Beforehand,
    agents_for,
    app_of,
    load_agent,
    load_agents,
    noted_agents,
    reach_of,
    reach_option,
    with_children,
)
from beforehand.cli.budget import budget_option
from beforehand.cli.common import CommandCall, by_option, command, policy_option
from beforehand.cli.config import project_targets
from beforehand.cli.control import switch
from beforehand.cli.exit_status import DIVERGED, DONE, FAILED, USAGE, WAITS, CommandProblem, problem_of, status_of
from beforehand.cli.inputs import InputLine, lines_in, lines_of, one_input
from beforehand.cli.screen import Screen, grid, phrase, prose
from beforehand.cli.telemetry import WorkerTelemetry, write_logs_as_json
from beforehand.cli.worker import work
from beforehand.engine.environment import gather_bounded
from beforehand.engine.settings import Settings
from beforehand.errors import (
    BeforehandError,
    JournalError,
    ParameterMismatch,
    RunQueued,
    RunStopped,
    RunSuspended,
    UsageError,
)
from beforehand.inspect.reader import waits_of
from beforehand.inspect.text import count, moment
from beforehand.model.records import NOTHING, Raw
from beforehand.model.shell import lines, to_type
from beforehand.model.waits import CHILD, ListedWait, after_deadline
from beforehand.people.items import answers_to


@command(
    "run",
    examples=(
        """beforehand run desk.py:refund_desk '{"id": "17", "order_id": "A-17"}'""",
        "beforehand run desk.py:refund_desk @ticket.json --run-id ticket-17",
        "beforehand run shop.agents:desk --inputs tickets.jsonl --concurrency 50",
        "beforehand run desk.py:refund_desk @ticket.json --budget tokens=50000",
    ),
)
@click.argument("target")
@click.argument("given", metavar="[INPUT]", required=False)
@click.option("--inputs", metavar="FILE", help="A .jsonl or .csv file (or -): one run per line.")
@click.option("--concurrency", default=20, show_default=True, metavar="N", type=click.IntRange(1), help="Runs at once.")
@click.option("--run-id", metavar="ID", help="Name this run; by default the agent's run_id does.")
@budget_option
@policy_option
async def run(call: CommandCall, target: str, given: str | None, inputs: str | None, **how: Any) -> int:
    """Run the agent TARGET (file.py:name or module:name) on INPUT, and print its result.

    INPUT is JSON text, @file, or - for standard input. The same input is the same run:
    giving the command again joins that run, continues it, or reports it. With --inputs,
    lines that do not fit are reported and the others still run.
    """
    agent = load_agent(target)
    agent.budget = how["budget"] or agent.budget
    run_id: str | None = how["run_id"]
    if inputs is not None:
        if given is not None or run_id is not None:
            raise UsageError("--inputs names its runs by itself", next_step="leave out INPUT and --run-id")
        return await run_many(call, agent, inputs, how["concurrency"])
    value = one_input(agent, given)
    async with app_of(call, with_children(agent), create=True) as app:
        name = run_id or agent.run_id_for(value)
        ended = await result_of(app, name, app.run(agent, value, run_id=name))
    return _tell_one(call, ended)


@command("resume", examples=("beforehand resume ticket-17", "beforehand resume ticket-17 --agent desk.py:refund_desk"))
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--all", "everything", is_flag=True, help="End pause --all instead, as unpause --all does.")
@click.option("--agent", "targets", multiple=True, metavar="TARGET", help="The location of its code, if it has moved.")
@policy_option
@by_option
async def resume(call: CommandCall, run_id: str | None, targets: tuple[str, ...], *, everything: bool, by: str) -> int:
    """Continue RUN from its record; reopen it if it stopped.

    Its code is the one named by --agent, or by [tool.beforehand] agents in
    pyproject.toml, or where it was when an app last opened the journal.
    """
    if run_id is None or everything:
        if run_id is not None or targets or not everything:
            raise UsageError("name a run, or --all alone", next_step="see the runs: beforehand ps")
        await switch(call, "unpause", by=by)
        return DONE
    async with call.reader() as reader:
        agents = await agents_for(call, reader, run_id, targets)
    async with app_of(call, agents) as app:
        ended = await result_of(app, run_id, app.resume(run_id, by=by))
        undone = (await app.service.history(run_id)).lifecycle.undone
    if undone is not None:  # it came to the end that was ordered
        status, exit_status = ("partly undone", FAILED) if undone.still_standing or undone.below else ("undone", DONE)
        ended = RunOutput(run_id, status, exit_status, reason=undone.summary)
    return _tell_one(call, ended)


def _tell_one(call: CommandCall, ended: RunOutput) -> int:
    tell_end(call.screen, ended)
    return ended.exit_status


@command(
    "worker",
    examples=(
        "beforehand worker desk.py:refund_desk",
        "beforehand worker --once",
        "beforehand worker --metrics 127.0.0.1:9464 --health 127.0.0.1:8081",
        "beforehand worker --log-json",
    ),
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--concurrency", default=20, show_default=True, metavar="N", type=click.IntRange(1), help="Runs at once.")
@click.option("--once", is_flag=True, help="Drive runs until none is due, and end.")
@click.option("--program", default="", metavar="NAME", help="Drive this program's runs; its code is where it last was.")
@click.option("--private-webhooks", is_flag=True, help="Send webhooks to private addresses, too.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus there, at /metrics.")
@click.option("--health", metavar="HOST:PORT", help="Answer probes there, at /healthz and /readyz.")
@click.option("--trace", is_flag=True, help="Trace runs with the application's OpenTelemetry SDK.")
@click.option("--log-json", is_flag=True, help="Write log lines as JSON, each with its run and operation.")
@policy_option
@reach_option
async def worker(call: CommandCall, targets: tuple[str, ...], concurrency: int, once: bool, **given: Any) -> int:
    """Drive the runs that are due, until interrupted: abandoned runs, retries, timers, events.

    TARGETs are the agents whose runs it drives, and a file alone names all agents in
    it; without any, those listed under [tool.beforehand] agents in pyproject.toml, else
    those that were last opened over this journal. Runs of an agent of the same name in another program are not
    driven. Any number of workers may share one journal on one machine. With
    --reach it also notifies people when they are asked. --metrics needs the extra
    prometheus, and --trace the extra otel and an SDK that your code or
    opentelemetry-instrument configures.
    """
    program = given["program"]
    if program and targets:
        raise UsageError("--program and TARGET both say which code to load", next_step="give one of them")
    agents = [] if program else load_agents(targets or project_targets())
    agents = agents or await noted_agents(call, program)
    if not agents:
        raise UsageError(
            f"the code of the program {program!r} is not where it was, or was never recorded in this journal"
            if program
            else "a worker needs the code of the agents whose runs it drives",
            next_step="beforehand worker desk.py:refund_desk, or [tool.beforehand] agents in pyproject.toml"
            + ('; code that was renamed needs @agent(name="its former name")' if program else ""),
        )
    reach = reach_of(given["reach"])
    if given["log_json"]:
        write_logs_as_json()
    settings = Settings(private_webhooks=given["private_webhooks"], gc_threshold=MANY_RUNS_GC)
    telemetry = WorkerTelemetry.wanted(trace=given["trace"], metrics=given["metrics"], health=given["health"])
    async with app_of(
        call, agents, create=True, settings=settings, reach=reach, telemetry=telemetry.followers
    ) as app, telemetry.serving(call, app):  # fmt: skip
        return await work(call, app, concurrency, once=once)


_STYLES: Final = {"completed": "bold green", "undone": "bold green", "suspended": "bold yellow"}


class RunOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run after it was driven. `line` is where its input stood in a file of inputs."""

    run: str
    status: str
    exit_status: int
    result: Raw | None = None
    reason: str = ""
    waits: list[ListedWait] = []
    problem: CommandProblem | None = None
    line: int | None = None


async def result_of(app: Beforehand, run: str, driving: Awaitable[Any], line: int | None = None) -> RunOutput:
    """Wait for a run and return its end. Raises `JournalError` and `UsageError`: those are about the command."""
    try:
        await driving
    except JournalError:
        raise
    except UsageError as error:
        if not await _has_stopped(app, run):
            raise
        return await _stopped(app, run, error, line)
    except RunQueued as error:  # also one that stopped and was reopened: it goes on when it gets a slot
        return RunOutput(run, "queued", WAITS, reason=error.message, problem=problem_of(error), line=line)
    except RunSuspended as error:
        row = await app.service.row(run)
        return RunOutput(
            run, "suspended", WAITS, reason=row.reason, waits=waits_of(row), problem=problem_of(error), line=line
        )
    except Exception as error:  # noqa: BLE001 - an error of agent code is the end of its run
        return await _stopped(app, run, error, line)
    completed = (await app.service.history(run)).lifecycle.completed
    return RunOutput(run, "completed", DONE, result=completed.result if completed else NOTHING, line=line)


async def _stopped(app: Beforehand, run: str, error: Exception, line: int | None) -> RunOutput:
    refused = isinstance(error, ParameterMismatch)
    status = FAILED if isinstance(error, UsageError) else status_of(error)  # agent code raised it: its run failed
    if isinstance(error, RunStopped) and error.reason == "diverged":
        status = DIVERGED
    problem = problem_of(error)
    state = "stopped" if not refused and await _has_stopped(app, run) else "refused"
    reason = str(error)
    if not isinstance(error, BeforehandError):
        name = type(error).__name__
        # From the record, where secrets are masked: the exception itself may hold them, and terminals are logged.
        stopped = (await app.service.history(run)).lifecycle.stopped if state == "stopped" else None
        reason = ("" if stopped is None else stopped.error).removeprefix(name).removeprefix(": ")
        problem = msgspec.structs.replace(problem, message=reason or name, known=_place(error), next_step="")
    if state == "stopped" and not problem.next_step:
        problem = msgspec.structs.replace(problem, next_step=lines(to_type("show", run), to_type("resume", run)))
    return RunOutput(
        run, state, status, reason=reason, line=line,
        problem=msgspec.structs.replace(problem, exit_status=status),
    )  # fmt: skip


async def _has_stopped(app: Beforehand, run: str) -> bool:
    rows = await app.engine.journal.runs(run=run)
    return bool(rows) and rows[0].status == "stopped"


def _place(error: BaseException) -> str:
    """The last line of the user's own code, which is where to look first."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "beforehand" not in f.filename.split("/")[-3:-1]]
    return f"raised at {frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}" if frames else ""


def tell_end(screen: Screen, ended: RunOutput) -> None:
    """Print the result on standard output; remarks go to standard error."""
    if screen.wrote_json(ended):
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
        parts = [("Known", problem.known), ("Next", problem.next_step)]
        for line in "\n".join(f"{label}: {text}" for label, text in parts if text).splitlines():
            screen.note(line.rstrip())
        if problem.difference:
            screen.err.print(prose(problem.difference))


def waiting_lines(ended: RunOutput) -> list[str]:
    """The waits of a suspended run, and the commands that answer."""
    lines: list[str] = []
    for wait in ended.waits:
        then = f", then {after_deadline(wait.then)}" if wait.then else ""
        lines.append(wait.asks + (f" (until {moment(wait.due)}{then})" if wait.due else ""))
        lines += [f"  {line}" for line in answers_to(ended.run, wait)]
    if ended.status == "suspended" and not ended.waits:
        lines.append(ended.reason)
    if any(wait.kind in {"timer", "retry", "verify", "breaker", "limit", CHILD} for wait in ended.waits):
        lines.append("a worker continues it when it is due: beforehand worker")
    return lines


_WORST_FIRST: Final = (4, 1, 2, 3, 0)
_SHOWN: Final = 20
_MARKS: Final = {"completed": "ok", "suspended": "asks", "stopped": "failed", "refused": "failed"}


class Summary(msgspec.Struct, frozen=True):
    """All lines of a file, in the order of their lines."""

    outcomes: dict[str, int]
    exit_status: int
    runs: list[RunOutput]


async def run_many(call: CommandCall, agent: AnyAgent, inputs: str, concurrency: int) -> int:
    """Run the agent once per line. The status is the worst of all."""
    ends: list[RunOutput] = []
    outcomes: Counter[str] = Counter()
    try:
        total = lines_in(inputs)
    except OSError:
        total = sum(1 for _ in lines_of(agent, inputs))  # reports an unreadable file
    async with app_of(call, with_children(agent), create=True, settings=Settings(gc_threshold=MANY_RUNS_GC)) as app:
        with call.screen.progress(total) as advance:
            calls = (_one(app, agent, line) for line in lines_of(agent, inputs))  # read as there is room for them
            async for ended in gather_bounded(calls, concurrency):
                ends.append(ended)
                outcomes[ended.status] += 1
                advance(", ".join(f"{number} {status}" for status, number in outcomes.items()))
    ends.sort(key=lambda ended: ended.line or 0)
    statuses = {ended.exit_status for ended in ends}
    # A line that does not fit is a failure of this batch, not of the command line.
    status = next((worst for worst in _WORST_FIRST if worst in statuses), DONE)
    summary = Summary(dict(outcomes), 1 if status == USAGE else status, ends)
    if not call.screen.wrote_json(summary):
        _tell(call.screen, summary)
    return summary.exit_status


async def _one(app: Beforehand, agent: AnyAgent, line: InputLine) -> RunOutput:
    run = ""
    if line.problem:
        return _refused(run, line, UsageError(line.problem))
    try:
        value = agent.parse_input(line.text)
        run = agent.run_id_for(value)
        return await result_of(app, run, app.run(agent, value, run_id=run), line.number)
    except JournalError:
        raise
    except Exception as error:  # noqa: BLE001 - an error in one line ends that line alone
        return _refused(run, line, error)


def _refused(run: str, line: InputLine, error: Exception) -> RunOutput:
    problem = problem_of(error)
    return RunOutput(run, "refused", problem.exit_status, reason=problem.message, problem=problem, line=line.number)


def _tell(screen: Screen, summary: Summary) -> None:
    """Report the lines that did not complete, and how many ended how."""
    rest = [ended for ended in summary.runs if ended.status != "completed"]
    rows: list[tuple[Any, ...]] = []
    for ended in rest[:_SHOWN]:
        problem = ended.problem if ended.status != "suspended" else None
        why = ended.reason if problem is None else f"{problem.error}: {problem.message}"
        mark, line = screen.mark(_MARKS.get(ended.status, "info")), phrase((f"line {ended.line}", "dim"))
        rows.append((mark, line, phrase((ended.run or "-", "bold")), phrase(ended.status), phrase(why)))
    if rows:
        screen.show(grid(rows, (1,)))
        if len(rest) > _SHOWN:
            screen.line(f"... and {len(rest) - _SHOWN} more, of which --json has all: beforehand ps")
        screen.line("")
    parts = [f"{number} {status}" for status, number in sorted(summary.outcomes.items())]
    screen.line((count(len(summary.runs), "line"), "bold"), f": {', '.join(parts) or 'nothing to do'}")
    if summary.outcomes.get("suspended"):
        screen.next("beforehand inbox (for people), beforehand pending (for answers)")
