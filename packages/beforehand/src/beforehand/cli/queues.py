"""`submit` and `queues`: store runs for workers to start, show what waits, pause, drain and resume queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Coroutine
from datetime import UTC, datetime
from typing import Any, Final, cast

import click
import msgspec

from beforehand.cli.apps import AnyAgent, Beforehand, app_of, load_agent
from beforehand.cli.budget import budget_option
from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.config import undeclared
from beforehand.cli.exit_status import DONE, FAILED, CommandProblem, problem_of
from beforehand.cli.inputs import InputLine, lines_of, one_input, read_moment
from beforehand.cli.undriven import Undriven, UndrivenFinder
from beforehand.control.code_location import unknown_agents
from beforehand.engine.environment import gather_bounded
from beforehand.engine.process import newest_limits
from beforehand.errors import JournalError, UsageError
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.text import ago, count, moment, safe
from beforehand.journal.cells import CallPace, LimitUse, limit_uses, opens_in_ms
from beforehand.journal.host import wall_ms
from beforehand.journal.port import AgentKey, JournalReads, QueueState
from beforehand.model.shell import to_type
from beforehand.queues.call_limits import CallLimit
from beforehand.queues.limits import DEFAULT, Declaration, DeclaredLimits, QueueLimits
from beforehand.queues.modes import QueueMode, QueueWord, Restriction

_AT_ONCE: Final = 500  # submissions that share a commit
_SHOWN: Final = 20
_WORDS: Final = ("list", "pause", "drain", "resume")


class SubmittedLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One submission. `line` is where its input stood in a file of inputs."""

    run: str
    queue: str
    new: bool = False
    line: int | None = None
    problem: CommandProblem | None = None


@command(
    "submit",
    examples=(
        """beforehand submit desk.py:desk '{"id": "17"}' --queue refunds --tenant acme""",
        "beforehand submit desk.py:refund_desk @ticket.json --key ticket-17 --at 2h",
        "beforehand submit shop.agents:desk --inputs tickets.jsonl --priority -3",
    ),
)
@click.argument("target")
@click.argument("given", metavar="[INPUT]", required=False)
@click.option("--inputs", metavar="FILE", help="A .jsonl or .csv file (or -): one run per line.")
@click.option("--queue", default=DEFAULT, show_default=True, metavar="NAME", help="The queue in which it waits.")
@click.option("--priority", default=0, show_default=True, metavar="N", type=int, help="-9 to 9; higher goes first.")
@click.option("--at", metavar="WHEN", help="Do not begin before: 2h, 7d, 2027-01-31T12:00.")
@click.option("--key", metavar="ID", help="Name this submission: the same key is the same run.")
@click.option("--tenant", default="", metavar="NAME", help="For whom it runs: tenants of a queue share it fairly.")
@budget_option
@by_option
async def submit(call: CommandCall, target: str, given: str | None, inputs: str | None, **how: Any) -> int:
    """Store a run of the agent TARGET (file.py:name or module:name) on INPUT; a worker starts it.

    INPUT is JSON text, @file, or - for standard input. The same input, or the same
    key, is the same run: giving the command again changes nothing. With --inputs,
    lines that do not fit are reported and the others are submitted.
    """
    agent = load_agent(target)
    how["at"] = None if how["at"] is None else datetime.fromtimestamp(read_moment(how["at"], wall_ms()) / 1000, UTC)
    if inputs is not None and (given is not None or how["key"] is not None):
        raise UsageError("--inputs names its runs by itself", next_step="leave out INPUT and --key")
    async with app_of(call, [agent], create=True) as app:
        if inputs is None:
            one = await app.submit(agent, one_input(agent, given), **how)
            found = SubmittedLine(one.run, one.queue, one.new)
            _tell_one(call, found, (app.engine.queues.newest or Declaration()).mode(one.queue).paused)
            return DONE
        lines = gather_bounded((_line(app, agent, line, how) for line in lines_of(agent, inputs)), _AT_ONCE)
        ends = sorted([line async for line in lines], key=lambda one: one.line or 0)
    return _tell_many(call, ends)


async def _line(app: Beforehand, agent: AnyAgent, line: InputLine, how: dict[str, Any]) -> SubmittedLine:
    try:
        if line.problem:
            raise UsageError(line.problem)  # noqa: TRY301 - reported like what does not fit
        one = await app.submit(agent, agent.parse_input(line.text), **how)
    except JournalError:
        raise
    except Exception as error:  # noqa: BLE001 - an error in one line ends that line alone
        return SubmittedLine("", how["queue"], line=line.number, problem=problem_of(error))
    return SubmittedLine(one.run, one.queue, one.new, line.number)


def _tell_one(call: CommandCall, found: SubmittedLine, paused: Restriction | None) -> None:
    if call.screen.wrote_json(found):
        return
    text = f"waits in the queue {found.queue}" if found.new else "was submitted before"
    call.screen.line((found.run, "bold"), f" {text}" + (f"; the queue is paused {paused}" if paused else ""))
    call.screen.line("Next:")
    first = to_type("queues", "resume", found.queue) if paused else "beforehand worker"
    call.screen.commands(first, to_type("show", found.run))


def _tell_many(call: CommandCall, ends: list[SubmittedLine]) -> int:
    refused = [one for one in ends if one.problem is not None]
    sums = Counter("refused" if one.problem else "submitted" if one.new else "submitted before" for one in ends)
    status = FAILED if refused else DONE
    if call.screen.wrote_json({"outcomes": dict(sums), "exit_status": status, "runs": ends}):
        return status
    for one in refused[:_SHOWN]:
        problem = one.problem
        call.screen.note((f"line {one.line}", "dim"), f" refused: {problem.message if problem else ''}")
    parts = ", ".join(f"{number} {name}" for name, number in sorted(sums.items()))
    call.screen.line((count(len(ends), "line"), "bold"), f": {parts or 'nothing to do'}")
    return status


class ListedQueue(msgspec.Struct, frozen=True):
    """One queue as `queues --json` lists it. `oldest_ms` is how long the oldest ready run has waited for a slot.

    `agents` are those of its ready runs, each with its program.
    """

    queue: str
    waiting: int
    running: int
    oldest_ms: int | None
    limits: QueueLimits
    mode: QueueMode
    agents: tuple[AgentKey, ...] = ()

    def startable(self, gone: Collection[AgentKey]) -> bool:
        """True if a run is ready that is not of an agent whose code is `gone`."""
        return self.oldest_ms is not None and (not self.agents or not set(self.agents) <= set(gone))


class ListedLimit(msgspec.Struct, frozen=True):
    """One limit of calls as `queues --json` lists it, with the operations whose calls are under way.

    `next_ms` is how long no further call may begin; None: until one of those ends.
    """

    name: str
    limit: CallLimit
    in_use: int
    next_ms: int | None
    operations: list[str]


@command(
    "queues",
    examples=(
        "beforehand queues",
        "beforehand queues --json | jq '.queues[] | select(.waiting > 100)'",
        "beforehand queues pause refunds --why 'the bank is closed'",
        "beforehand queues drain refunds",
        "beforehand queues resume refunds",
    ),
)
@click.argument("word", type=click.Choice(_WORDS), default="list", metavar="[list|pause|drain|resume]")
@click.argument("name", default="")
@click.option("--why", default="", metavar="TEXT", help="Why it is paused or drained; it is recorded.")
@by_option
def queues(call: CommandCall, word: str, name: str, why: str, by: str) -> Coroutine[Any, Any, None] | None:
    """List queues and limits of calls (what waits, what runs), or pause, drain and resume a queue.

    A paused queue accepts submissions and starts none of them; runs that have begun
    continue. A queue that is drained refuses submissions, and what waits in it is
    started. Both hold for all processes until the queue is resumed. With NAME only
    that queue is listed.
    """
    if word != "list":
        return _steer(call, cast("QueueWord", word), name, by=by, why=why)
    _list(call, name)
    return None


async def _steer(call: CommandCall, word: QueueWord, name: str, *, by: str, why: str) -> None:
    from beforehand.control.queues import steer_queue  # noqa: PLC0415 - as `submit` has it

    if not name:
        raise UsageError(f"queues {word} needs the name of a queue", next_step="see them: beforehand queues")
    async with call.serving() as service:
        mode, changed = await steer_queue(service.engine, name, word, by=by, why=why)
    if call.screen.wrote_json({"queue": name, "mode": mode, "changed": changed}):
        return
    state = f"{name} is {mode}." if mode else f"{name} accepts submissions and starts them."
    call.screen.line(safe(state if changed else f"Nothing was changed: {state}"))
    if mode:
        call.screen.next(to_type("queues", "resume", name))


def _list(call: CommandCall, name: str) -> None:
    limits, listed, calls, remarks, gone = call.read(lambda reader: _found(reader, name))
    if call.screen.as_json:
        document = {"queues": listed, "agents": limits.agents, "tenants": limits.tenants, "calls": calls}
        call.screen.document(document)
        return
    now = wall_ms()
    call.screen.columns([_cells(one, now) for one in listed])
    for one in listed:
        for state, restriction in (("paused", one.mode.paused), ("draining", one.mode.draining)):
            if restriction is not None:
                when = f"since {moment(restriction.at_ms)}"
                call.screen.line((safe(f"{one.queue} is {state} {when} {restriction}"), "yellow"))
    shares = [
        f"{kind} {name}: {share.concurrency} at once"
        for kind, some in (("agent", limits.agents), ("tenant", limits.tenants))
        for name, share in some.items()
        if share.concurrency is not None
    ]
    for line in [*shares, *map(_limit_line, calls)]:
        call.screen.line((line, "dim"))
    call.screen.line((f"{count(sum(one.waiting for one in listed), 'run')} waiting", "dim"))
    for remark in remarks:
        call.screen.note((remark, "yellow"))
    for (agent, _), lost in gone.items():
        call.screen.line((f"Runs of {agent} {lost.why}.", "yellow"))
        call.screen.next(lost.command)
    if any(one.startable(gone) and not one.running and one.mode.paused is None for one in listed):
        call.screen.next("beforehand worker")


async def _found(
    reader: JournalReader, only: str
) -> tuple[DeclaredLimits, list[ListedQueue], list[ListedLimit], list[str], dict[AgentKey, Undriven]]:
    limits, listed = await list_queues(reader, wall_ms(), only)
    calls = [] if only else await list_calls(reader.journal, limits)
    gone = await UndrivenFinder(reader, wall_ms()).lost(key for one in listed for key in one.agents)
    remarks = await unknown_agents(reader.journal, limits.limited_agents())
    return limits, listed, calls, [*remarks, *undeclared("limit", limits.by_name())], gone


async def list_calls(journal: JournalReads, limits: DeclaredLimits) -> list[ListedLimit]:
    """The limits of calls, by name, with what is in use."""
    now, found = journal.clock(), list[ListedLimit]()
    uses = {use.name: use for use in await limit_uses(journal)}
    for name in sorted({*uses, *limits.names_of_calls()}):
        if (limit := limits.named(name)) is None:
            continue
        use = uses.get(name, LimitUse(name, (), CallPace()))
        full = limit.at_once is not None and len(use.permits) >= limit.at_once
        opens = None if full else opens_in_ms(limit.cell(), use.pace, now.epoch, now.earliest_ms)
        found.append(ListedLimit(name, limit, len(use.permits), opens, [one.operation for one in use.permits]))
    return found


def _limit_line(one: ListedLimit) -> str:
    limit = one.limit
    declared = [f"{limit.at_once} at once"] if limit.at_once is not None else []
    declared += [limit.rate + (f" (burst {limit.burst})" if limit.burst > 1 else "")] if limit.rate else []
    free = "when one ends" if one.next_ms is None else f"in {one.next_ms / 1000:.1f} s" if one.next_ms else "now"
    return f"{one.name}: {', '.join(declared) or 'no limit'}; {one.in_use} under way, the next may begin {free}"


async def list_queues(reader: JournalReader, now_ms: int, only: str = "") -> tuple[DeclaredLimits, list[ListedQueue]]:
    """The limits in force, and the queues by name. Raises `UsageError` if the queue `only` does not exist."""
    newest = await newest_limits(reader.journal) or Declaration()
    states = {state.queue: state for state in await reader.journal.queues()}
    if only and only not in states:
        newest.check_known(only)
    restricted = {name for name, mode in newest.modes.items() if mode}
    names = [only] if only else sorted({*newest.limits.queues, *states, *restricted})
    return newest.limits, [_queue(states.get(name, QueueState(name, 0, 0)), newest, now_ms) for name in names]


def _queue(state: QueueState, newest: Declaration, now_ms: int) -> ListedQueue:
    waited = None if state.oldest_ms is None or state.oldest_ms > now_ms else now_ms - state.oldest_ms
    limits, mode = newest.limits.queue(state.queue), newest.mode(state.queue)
    return ListedQueue(state.queue, state.waiting, state.running, waited, limits, mode, state.agents)


def _cells(one: ListedQueue, now_ms: int) -> tuple[str, ...]:
    limits = one.limits
    per_key = limits.per_key if limits.key else None
    declared = {"at once": limits.concurrency, "per tenant": limits.per_tenant, "per key": per_key}
    shown = ", ".join(f"{number} {name}" for name, number in declared.items() if number is not None)
    oldest = "" if one.oldest_ms is None else f"oldest {ago(now_ms - one.oldest_ms, now_ms)}"
    mark = "open" if one.waiting or oldest or one.mode else "ok"
    return mark, one.queue, f"{one.waiting:,} waiting", f"{one.running:,} running", oldest, shown or "no limit"
