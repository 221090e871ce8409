"""`Beforehand`: the app. The only place that wires the packages together.

`async with Beforehand("desk.db", agents=[...]) as desk` in async code, `with Beforehand(...) as desk` in
scripts and notebooks. The journal is given by its address, such as a path. The file is long because it is the one place
that knows all packages.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import msgspec

from beforehand.agent.agent import Agent, gather_agents, gather_tools, named_run
from beforehand.agent.submission import Submission
from beforehand.agent.tool import Tool
from beforehand.cli.config import journal_option, located
from beforehand.control.code_location import note_code, stop_if_loading
from beforehand.control.command_ack import wait_until_applied
from beforehand.control.housekeeping import HousekeepingTasks
from beforehand.control.input_checks import check
from beforehand.control.queues import LimitsSource, Submitted, declarations_of, declare_limits, submit
from beforehand.control.schedules import Scheduler, declare_schedules
from beforehand.control.service import ControlService
from beforehand.control.undo import Undone, effects_after
from beforehand.engine.active_run.scopes import outside
from beforehand.engine.breaker import unpausing
from beforehand.engine.commands import apply_commands
from beforehand.engine.engine import LOG, Engine
from beforehand.engine.environment import Environment, checked_loop, gather_bounded, shielded, system_environment
from beforehand.engine.housekeeping import Loop
from beforehand.engine.recovery import Recovery
from beforehand.engine.run_driver import Conclusion, drive_run
from beforehand.engine.settings import Settings
from beforehand.engine.shared_budgets import wake_waiting
from beforehand.engine.tool_protocol import Input
from beforehand.errors import (
    BeforehandError,
    JournalError,
    ParameterMismatch,
    RunBusy,
    RunQueued,
    RunStopped,
    RunSuspended,
    UnknownRun,
    UsageError,
)
from beforehand.extensions import Notifications, Reachable, notifications_of
from beforehand.inspect.text import safe, without_commands
from beforehand.journal.backends import Address, address_of
from beforehand.journal.fork_safety import belongs_here, inherited_app
from beforehand.journal.port import Journal, Worker
from beforehand.model.policy import Policy
from beforehand.model.run_history import RunHistory, compensated
from beforehand.model.shell import lines, to_type
from beforehand.model.stop_reasons import after_stop
from beforehand.model.transaction import WHOLE_RUN, TransactionState
from beforehand.model.usage import PriceSource
from beforehand.model.waits import PEOPLE, answers_with, brings, decode_waits, is_child_wait
from beforehand.model.webhooks import TOOL as WEBHOOK
from beforehand.people.policy.judge import threshold_positions
from beforehand.people.policy.policy_files import judge_of
from beforehand.policies import RunBudget
from beforehand.queues.limits import DEFAULT
from beforehand.webhooks.notifier import Notifier, Tools

if TYPE_CHECKING:
    from beforehand.inspect.stream import StreamEvent
    from beforehand.sync import SyncBeforehand
    from beforehand.telemetry.following import Follower

T = TypeVar("T")
R = TypeVar("R")
AnyAgent = Agent[Any, Any]
AnyTool = Tool[Any, Any]
M = TypeVar("M", bound=Callable[..., Any])


class RunResult(msgspec.Struct, Generic[T, R], frozen=True):
    """The end of one run of `desk.map`. `error` is None if the run completed with `result`."""

    run: str
    input: T
    result: R | None = None
    error: Exception | None = None

    @property
    def status(self) -> str:
        """`completed`, `suspended` or `stopped`; `refused` if the run could not be started."""
        if self.error is None:
            return "completed"
        if isinstance(self.error, RunSuspended):
            return "suspended"
        refused = isinstance(self.error, (UsageError, ParameterMismatch, RunBusy))
        return "refused" if refused else "stopped"


class RunHandle(Generic[R]):
    """A run that was started in the background. Await its `result()`."""

    def __init__(self, run: str, ending: asyncio.Task[R]) -> None:
        self.run = run
        self._ending = ending
        ending.add_done_callback(_looked_at)

    async def result(self) -> R:
        """Return the agent's result. Raises `RunSuspended`, `RunStopped` or what the agent raised."""
        return await shielded(self._ending)

    def done(self) -> bool:
        """True if the run has ended."""
        return self._ending.done()


def _opened(method: M) -> M:
    """A method that refuses an app that is not open at the call: a coroutine that is never awaited says nothing."""

    @functools.wraps(method)
    def checked(app: Beforehand, *args: Any, **options: Any) -> Any:
        _ = app.engine
        return method(app, *args, **options)

    return cast("M", checked)


class Beforehand:
    """An app: agents and their tools over one journal.

    Open it first: `async with Beforehand(...) as app`. Until then a call of `run`, or of another method that needs the
    journal, raises `UsageError`; it does not wait until its coroutine is awaited.

    `policy` is an escalation policy, the YAML file that holds one, or `installed:NAME` for the policy of an installed
    distribution: it defines which operations of these agents are sent without approval, and which a person approves
    first. Raises `UsageError` for an invalid policy.

    While the app is open, it also drives runs of its agents that were abandoned or are due, unless `recover=False`.
    `reach` says who is notified when a person is asked: channels, a `Reach`, or the path of a `reach.yaml`. It needs
    `beforehand-console`. `queues` are the limits of the queues to which runs are submitted, or the YAML file that
    declares them and the schedules, or the contents of such a file; every process that uses this journal applies them.
    `telemetry` traces or measures the runs: `OpenTelemetry()`, `Prometheus()`, or both in a list. `prices` is the list
    of prices that budgets in a currency count with, or the YAML file that holds one; by default it is that of
    `genai-prices`, if it is installed.
    `settings`, `environment` and `worker` are for tests and unusual deployments.
    """

    def __init__(
        self,
        journal: str | os.PathLike[str] | Address | Journal,
        *,
        agents: Iterable[AnyAgent] = (),
        tools: Iterable[AnyTool] = (),
        policy: str | os.PathLike[str] | Policy | None = None,
        settings: Settings | None = None,
        environment: Environment | None = None,
        worker: Callable[[str], Worker] | None = None,
        recover: bool = True,
        reach: Reachable | None = None,
        queues: LimitsSource | None = None,
        telemetry: Follower | Iterable[Follower] = (),
        prices: PriceSource | str | os.PathLike[str] | None = None,
    ) -> None:
        self._address: Address | None = None
        if isinstance(journal, (str, os.PathLike, Address)):
            self._address = address_of(journal)
            journal = self._address.journal()
        self._environment = environment or system_environment()
        self._journal, self._tracing = journal, None
        if telemetry != ():
            from beforehand.telemetry.following import followed  # noqa: PLC0415 - few apps use it

            self._journal, self._tracing = followed(journal, self._environment, telemetry)
        self._settings = settings or Settings()
        self._worker = worker or _this_process
        self._recovers = recover
        self._reach = reach
        self._recovery: Loop | None = None
        self.agents = gather_agents(agents)
        self.tools = gather_tools(self.agents.values(), tools)
        self.judge = judge_of(policy)
        self._declared = declarations_of(queues)
        self._prices = _prices_of(prices)
        self._engine: Engine | None = None
        self._housekeeping: HousekeepingTasks | None = None
        self._system: dict[str, AnyAgent] = {}  # the system's own agents, whose runs send notices
        self._running: dict[str, asyncio.Task[Conclusion]] = {}
        self.is_inherited = False
        """True if this process was forked from the one that opened the app."""
        self._given: dict[str, Input] = {}

    # --- open and close --------------------------------------------------------------------------------------

    async def open(self) -> Beforehand:
        """Open the journal and start the engine. Raises `JournalError` if that is not safe."""
        stop_if_loading()
        self.checked_here()
        checked_loop()
        notifier, notifications = Notifier(), self._notifications()
        self._system = {notifier.agent.name: notifier.agent}
        makers: dict[str, Callable[[str], AnyTool]] = {WEBHOOK: notifier.tool_for}
        if notifications is not None:
            self._system[notifications.agent.name] = notifications.agent
            makers[notifications.tool_prefix] = notifications.tool_for
        tools = Tools(self.tools, makers)
        agents = {**self.agents, **self._system}
        engine = notifier.engine = Engine(self._journal, self._environment, self._settings, tools, agents, self._worker)
        engine.policy, engine.tracing, engine.prices = self.judge, self._tracing, self._prices
        try:
            await engine.open()
            if self._declared.limits is not None:
                for remark in await declare_limits(engine, self._declared.limits):
                    LOG.warning("queues: %s", remark)
            await wake_waiting(engine)
            await engine.wake_unpaused()
            if self._declared.schedules is not None:
                for remark in await declare_schedules(engine, self._declared.schedules, self.agents):
                    LOG.warning("schedules: %s", remark)
            if self.judge is not None:
                engine.policy = self.judge.moved(await threshold_positions(engine.journal))
            notify = notifications.begin(engine) if notifications is not None else None
        except BaseException:
            await self._journal.close()
            raise
        self._engine = engine
        belongs_here(self)
        if self._address is not None and engine.identity.trust == "trusted":
            await note_code(engine.journal, self.agents.values())
        looks = self._recovers and bool(self.agents)
        scheduler = Scheduler(engine, self.agents, on_time=looks)
        self._housekeeping = HousekeepingTasks(ControlService(engine), notifier.agent, notify, scheduler.fire)
        if looks:
            recovery = Recovery(engine, self.drive, self._housekeeping.run)
            self._recovery = engine.housekeeping.keep("the task that looks for abandoned runs", recovery.keep_looking)
        return self

    async def aclose(self) -> None:
        """Let calls in flight end within the grace time, suspend the runs, and release the journal."""
        if self.is_inherited:
            return  # a child that leaves the block of its parent: the parent closes it
        engine, self._engine = self._engine, None
        if engine is None:
            return
        if self._recovery is not None:
            self._recovery.cancel()  # first: what it would start now, it would start to abandon
        await engine.shut_down(list(self._running.values()))
        await engine.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @contextlib.asynccontextmanager
    async def lifespan(self, _server: object) -> AsyncGenerator[None]:
        """Open the app for as long as an ASGI server runs: `FastAPI(lifespan=desk.lifespan)`."""
        async with self:
            yield

    def __enter__(self) -> SyncBeforehand:
        stop_if_loading()  # before a thread is started for the loop
        from beforehand.sync import SyncBeforehand  # noqa: PLC0415 - the synchronous API imports this module

        self._sync = SyncBeforehand(self)
        return self._sync.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sync.close()

    @property
    def engine(self) -> Engine:
        """The open engine. Raises `UsageError` before `open` and after `aclose`."""
        if self.is_inherited:
            raise inherited_app()
        if self._engine is None:
            raise UsageError(
                "the app is not open" if self._housekeeping is None else "the app is closed",
                known="nothing was started",
                next_step="use it inside its block: async with Beforehand(...) as app; "
                "in a script: with Beforehand(...) as app",
            )
        return self._engine

    def checked_here(self) -> None:
        """Raise `UsageError` in a process that was forked after the app was opened, because it has no running loop."""
        if self.is_inherited:
            raise inherited_app()

    def disown(self) -> None:
        """Refuse every use, in a forked child. The engine's objects are kept, so that none of them is closed."""
        self.is_inherited = True

    async def run_housekeeping(self) -> None:
        """Send webhook notices and finish interrupted deliveries. Workers and open apps call it."""
        if self._housekeeping is not None:
            await self._housekeeping.run()

    @property
    def service(self) -> ControlService:
        """The use cases that the command line and other interfaces offer."""
        return ControlService(self.engine)

    # --- running ---------------------------------------------------------------------------------------------

    @_opened
    async def run(
        self,
        agent: Agent[T, R],
        given: T,
        *,
        run_id: str | None = None,
        by: str = "",
        budget: RunBudget | None = None,
    ) -> R:
        """Run the agent on one input, or join or report the run of that id. It can be called any number of times.

        `by` names the person who asks for the run, if any. Another person then has to approve what it asks about.
        `budget` are the limits of the run, in place of those of its agent. A run that exists keeps those that it has.

        While the run only waits for its children, this waits too. Raises `RunSuspended` if the run waits for a person,
        an event or a distant time, `RunStopped` if it stopped earlier, `ParameterMismatch` if the id exists with
        another input, and every exception of the agent itself.
        """
        check("by", by, str)
        checked_loop()
        name = named_run(agent, given, run_id, self.agents)
        stored = _limited(agent.stored_input(given, self.engine.identity.secret), budget)
        stored = msgspec.structs.replace(stored, by=by)
        conclusion = await self._conclude(name, agent, stored)
        return self._result(agent, conclusion)

    def start(
        self,
        agent: Agent[T, R],
        given: T,
        *,
        run_id: str | None = None,
        by: str = "",
        budget: RunBudget | None = None,
    ) -> RunHandle[R]:
        """Start a run in the background."""
        name = named_run(agent, given, run_id, self.agents)
        running = self.run(agent, given, run_id=name, by=by, budget=budget)
        return RunHandle(name, asyncio.get_running_loop().create_task(running))

    @_opened
    async def submit(
        self,
        agent: Agent[T, R],
        given: T,
        *,
        queue: str = DEFAULT,
        priority: int = 0,
        at: datetime | None = None,
        key: str | None = None,
        tenant: str = "",
        by: str = "",
        budget: RunBudget | None = None,
    ) -> Submitted:
        """Store a run in a queue; a worker, or an open app with this agent, starts it when the limits permit.

        `key` is the id of the run, by default the one that the agent's `run_id` gives. A key that is submitted again
        refers to the same run. `priority` is from -9 to 9. A higher priority starts first, and waiting raises it. `at`
        is the earliest time at which the run starts. `budget` are its limits, in place of those of its agent.

        The run is durable when this returns. If the process dies meanwhile, the whole run is stored or none of it:
        submit it again under the same key.

        Raises `QueueFull` if the queue is full, `QueueDraining` if it is drained, `ParameterMismatch` if the key was
        submitted with another input, and `UsageError` for a queue or tenant that is not declared.
        """
        return await submit(self.engine, agent, given, Submission(queue, priority, at, tenant, budget), key=key, by=by)

    @_opened
    def map(self, agent: Agent[T, R], inputs: Iterable[T], *, concurrency: int = 20) -> AsyncGenerator[RunResult[T, R]]:
        """Run the agent over many inputs, `concurrency` at a time, in the order in which they end.

        An error of one run is not raised: it is in the `RunResult` of that run.
        """
        if concurrency < 1:
            raise UsageError(f"concurrency={concurrency} starts no run", next_step="give at least 1")
        return gather_bounded((self._one(agent, given) for given in inputs), concurrency)

    def stream(
        self,
        agent: Agent[T, R],
        given: T,
        *,
        run_id: str | None = None,
        after: int = 0,
        budget: RunBudget | None = None,
    ) -> AsyncGenerator[StreamEvent]:
        """Run the agent as `run` does, and yield the events of the run until it is completed, suspended or stopped.

        `after` is the position of the last event that the caller has received. Only later events are yielded, each
        once. Text deltas are provisional: an `answer` replaces them, and `turn_restarted` makes those of its step void.
        The run continues if the caller stops reading. `budget` is that of `run`.
        """
        check("after", after, int)
        from beforehand.inspect.stream import events_of  # noqa: PLC0415 - with it come the clients of models

        name = named_run(agent, given, run_id, self.agents)
        stored = _limited(agent.stored_input(given, self.engine.identity.secret), budget)
        return events_of(self.engine, name, lambda: self._conclude(name, agent, stored), after)

    @_opened
    async def resume(self, run_id: str, *, by: str = "operator") -> Any:
        """Drive an existing run again, and return its result as `run` does. `by` reopens a stopped run."""
        check("run_id", run_id, str)
        check("by", by, str)
        conclusion = await self._conclude(run_id, None, None, reopener=by)
        row = (await self.engine.journal.runs(run=run_id))[0]
        return self._result(self._system.get(row.agent) or self.agents[row.agent], conclusion)

    @_opened
    async def undo(self, run_id: str, *, by: str, why: str = "") -> Undone:
        """Undo a finished run and the runs below it: each effect is compensated by an operation of its own.

        The last effect of a run is undone first, and runs below it that are under way are cancelled before.
        A second call, for example after a crash, continues the undo and returns the same result. The result lists
        effects that cannot be undone. A run is undone once those below it are. Raises `UsageError` for a run that has
        not ended, and an error that stopped the undo of one of the runs, once those not above it have been undone.
        """
        await self.service.undo(run_id, by=by, why=why)
        found: dict[str, tuple[RunHistory, Conclusion | None]] = {}
        names = [run_id]
        for name in names:  # it grows
            with contextlib.suppress(UnknownRun):  # its parent ended before it was stored
                found[name] = await self._undo_one(name, by)
                children = found[name][0].children
                names += () if children is None else children.by_name
        for name in reversed(found):  # a run is undone once those below it are
            conclusion = found[name][1]
            if conclusion is not None and is_child_wait(conclusion.waits):
                found[name] = await self._undo_one(name, by)
        tree = [history for history, _ in found.values()]
        conclusions = [conclusion for _, conclusion in found.values() if conclusion is not None]
        if errors := [conclusion.error for conclusion in conclusions if conclusion.error is not None]:
            raise self._told(errors[0])
        rests = [conclusion for conclusion in conclusions if conclusion.status == "suspended"]
        whole = tree[0].boundaries.by_name.get(WHOLE_RUN) or TransactionState(WHOLE_RUN, "aborting")
        effects = tuple(effect for history in tree for effect in effects_after(history))
        below = tuple(history.run for history in tree[1:])
        waits = (
            [conclusion.reason for conclusion in rests if not is_child_wait(conclusion.waits)]
            or [f"a person is asked about {one.operation}" for one in effects if one.state == "asked"]
            or [conclusion.reason for conclusion in rests]
        )
        doubted = tuple(step for step in whole.undone if compensated(tree[0], step) != "undone")
        undone = tuple(step for step in whole.undone if step not in doubted)
        below_it = () if tree[0].lifecycle.undone is None else tree[0].lifecycle.undone.below
        standing = (*whole.still_standing, *doubted, *below_it)
        return Undone(run_id, whole.phase, undone, standing, "; ".join(waits), effects, below)

    async def _undo_one(self, run: str, by: str) -> tuple[RunHistory, Conclusion | None]:
        """Drive the undo of one run as far as it goes; a run that was under way ends first. Raises `UnknownRun`."""
        row, history = await self.service.row(run), await self.service.history(run)
        if not history.undo_state:  # the process that ordered it has died, or another one drives the run
            applied = await apply_commands(self.engine, self.engine.active_runs, run)
            applied = await wait_until_applied(self.engine, applied)
            history = await self.service.history(run)
            if not (history.undo_state or applied.at_once):
                return history, Conclusion(run, "suspended", f"run {run}: {applied.note}")
        conclusion: Conclusion | None = None
        while history.undo_state in {"ordered", "begun"}:
            if row.agent not in self.agents:
                missing = f"run {run} waits for a process with the code of the agent {row.agent}"
                return history, Conclusion(run, "suspended", missing)
            if conclusion is not None and (conclusion.status == "suspended" or history.undo_state == "begun"):
                break
            conclusion = await self._conclude(run, None, None, reopener=by, waits=False)
            history = await self.service.history(run)
        return history, conclusion

    @_opened
    async def drive(self, run_id: str) -> Conclusion:
        """Drive an existing run once, and return its conclusion. Workers call it.

        Raises `RunQueued` for a run of a queue that has no slot. It does not wait for one.
        """
        return await self._conclude(run_id, None, None, waits=False)

    # --- inside --------------------------------------------------------------------------------------------------

    def _notifications(self) -> Notifications | None:
        return None if self._reach is None else notifications_of(self._reach)

    async def _one(self, agent: Agent[T, R], given: T) -> RunResult[T, R]:
        name = ""
        try:
            name = named_run(agent, given, None, self.agents)
            result: R = await self.run(agent, given, run_id=name)
            return RunResult(name, given, result)
        except JournalError:
            raise
        except Exception as error:  # noqa: BLE001 - one run's error is that run's result here
            return RunResult(name, given, error=error)

    async def _conclude(
        self, run: str, agent: AnyAgent | None, given: Input | None, *, reopener: str = "", waits: bool = True
    ) -> Conclusion:
        """Join the run in this process, or drive it; while another process has it, wait for that one."""
        while True:
            task = self._running.get(run)
            if task is None:
                driving = drive_run(self.engine, run, agent, given, reopener=reopener)
                task = asyncio.get_running_loop().create_task(driving, context=outside())
                self._running[run] = task
                if given is not None:
                    self._given[run] = given
                task.add_done_callback(functools.partial(self._ended, run))
            elif given is not None:
                self._same_input(run, given)
            try:
                conclusion = await shielded(task)
                if not (self._recovers and waits and is_child_wait(conclusion.waits)):
                    return conclusion
            except RunQueued:
                if not (self._recovers and waits):
                    raise
            except RunBusy:
                await self.engine.environment.clock.sleep(self._settings.poll_ms / 1000)
                continue
            if (rests := await self._until_begun(run)) is not None:
                return rests

    async def _until_begun(self, run: str) -> Conclusion | None:
        """Wait while a run is not driven here. Its conclusion, if it waits for something but a slot or its children."""
        while run not in self._running:
            row = (await self.engine.journal.runs(run=run))[0]
            rests = row.status == "suspended" and row.due_ms is None and row.owner is None
            if rests and not is_child_wait(decode_waits(row.waits)):
                return Conclusion(run, "suspended", row.reason)
            if row.status not in {"queued", "running", "suspended"}:
                return None
            await self.engine.environment.clock.sleep(self._settings.poll_ms / 1000)
        return None

    def _ended(self, run: str, _task: asyncio.Task[Conclusion]) -> None:
        self._running.pop(run, None)
        self._given.pop(run, None)

    def _same_input(self, run: str, given: Input) -> None:
        """Refuse to join a run with another input, from the moment when its first caller asked for it."""
        active = self.engine.active_runs.get(run)
        first = self._given.get(run) or (active.history.lifecycle.started if active is not None else None)
        if first is not None and first.digest != given.digest:
            raise ParameterMismatch(
                f"run {run} is running with another input", run=run, known="nothing was sent for this call",
                next_step="a run id names one input: use another id",
            )  # fmt: skip

    def _result(self, agent: Agent[Any, R], conclusion: Conclusion) -> R:
        """The result of a run that completed; otherwise raises its error."""
        if conclusion.status == "completed":
            return agent.codec.decode(conclusion.result)  # type: ignore[return-value]  # decoded by R's own annotation
        raise self._told(_error_of(conclusion))

    def _told(self, error: BaseException) -> BaseException:
        """The error with next steps that work where they are printed; texts of services and models stay on one line."""
        if isinstance(error, BeforehandError):
            option = "" if self._address is None else journal_option(self._address)
            error.message, error.known = safe(error.message), safe(error.known)
            error.next_step = located(error.next_step, option)
        return error


def _error_of(conclusion: Conclusion) -> Exception:
    """The error of a run that is suspended or stopped."""
    run, why = conclusion.run, without_commands(conclusion.reason)
    if conclusion.status == "suspended":
        return RunSuspended(
            why if why.startswith(f"run {run} ") else f"run {run} waits: {why}", run=run,
            known="everything done so far is recorded", next_step=_answer(conclusion),
        )  # fmt: skip
    if isinstance(conclusion.error, Exception):
        return conclusion.error
    known, go_on = after_stop(run, conclusion.reason)
    return RunStopped(
        f"run {run} stopped ({why}): {without_commands(conclusion.detail)}", run=run, reason=conclusion.reason,
        known=known, next_step=lines(*filter(None, (to_type("show", run), go_on))),
    )  # fmt: skip


def _prices_of(source: PriceSource | str | os.PathLike[str] | None) -> Callable[[], PriceSource]:
    """The list of prices: the faults of one that is given are named now; the published one is read if it is needed."""

    @functools.cache
    def found() -> PriceSource:
        from beforehand.inspect.prices import price_list  # noqa: PLC0415 - most apps have no budget in a currency

        return price_list(source)

    if source is not None:
        found()
    return found


def _limited(stored: Input, budget: RunBudget | None) -> Input:
    """The input of a run with these limits in place of those of its agent, if they are given."""
    if budget is None:
        return stored
    check("budget", budget, RunBudget)
    return msgspec.structs.replace(stored, budget=budget)


def _looked_at(ending: asyncio.Task[Any]) -> None:
    """Mark the error as retrieved: it is on record, so asyncio must not warn if the caller ignores the handle."""
    if not ending.cancelled():
        ending.exception()


def _answer(conclusion: Conclusion) -> str:
    """The command that answers what a suspended run waits for."""
    asked = next((wait for wait in conclusion.waits if wait.kind in PEOPLE), None)
    if asked is not None:
        answers = answers_with(
            conclusion.run, asked.kind, asked.step, sent=asked.sent, shown=asked.shown, result=asked.result
        )
        return lines(*answers, to_type("resume", conclusion.run))
    if tool := next((wait.tool for wait in conclusion.waits if wait.kind == "paused"), ""):
        return unpausing(tool)
    if "paused" in conclusion.reason:
        return to_type("unpause", conclusion.run)
    awaited = [one for wait in conclusion.waits for one in brings(conclusion.run, wait.kind, wait.shown, wait.tool)]
    if awaited:
        return lines(*awaited)
    return f"a worker continues it when it is due; by hand: {to_type('resume', conclusion.run)}"


def _this_process(worker: str) -> Worker:
    from beforehand.journal.host import this_process  # noqa: PLC0415 - not needed before an app is opened

    return this_process(worker)
