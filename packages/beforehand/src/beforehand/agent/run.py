"""`Run`: the interface of agent code to its run. Everything it offers is journaled and replayed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload
from uuid import UUID

from beforehand.agent import children
from beforehand.agent.call import ended_parts, metadata_of
from beforehand.agent.children import ChildRun, WhenParentEnds
from beforehand.agent.inline_effect import InlineEffect, inline_tool
from beforehand.agent.model_calls import ToolBox, call_by_model, offered_tools, tools_for
from beforehand.agent.model_decisions import DecisionSettings, decide
from beforehand.agent.model_prices import Named, named_model
from beforehand.agent.questions import AnswerLimit, ask, question_of, to_people
from beforehand.agent.run_context import RunContext
from beforehand.agent.submission import Submission
from beforehand.agent.tool import Tool
from beforehand.agent.transactions import Held, Transaction, on_commit
from beforehand.engine import durable_waits, steps
from beforehand.engine.active_run.scopes import SCOPE, Scope, branch_task
from beforehand.engine.steps import HandoffInput, hand_over, read_messages
from beforehand.errors import OutsideRun, ResultLost, UsageError
from beforehand.knowledge.conversation import Conversation, ConversationState
from beforehand.knowledge.facts import Facts
from beforehand.knowledge.lessons import AgentLessons
from beforehand.knowledge.memory import Lessons, UserMemory, receipts_digest
from beforehand.model.lessons import ShownLessons
from beforehand.model.messages import Message, message_of
from beforehand.model.outcome import Outcome
from beforehand.model.plan import Plan
from beforehand.model.questions import Question, Scalar, within
from beforehand.model.records.transaction import Pivot
from beforehand.planning.dependencies import named_facts
from beforehand.planning.executor import ExecuteOptions, PlanResult, execute
from beforehand.policies import Retry, RunBudget, milliseconds

if TYPE_CHECKING:
    from beforehand.agent.agent import Agent

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
A = TypeVar("A", bound=Scalar)


class Run:
    """One run of an agent, for the agent's code."""

    def __init__(self, scope: Scope) -> None:
        self._root = scope
        if scope.active.code is None:
            scope.active.code = self
        self._facts = Facts(self._context, scope.active.facts.known)
        self._conversations: dict[str, ConversationState] = {}
        self._lessons_shown: dict[str, ShownLessons] = {}

    @property
    def id(self) -> str:
        """The run's name."""
        return self._root.active.run

    @property
    def tools(self) -> ToolBox:
        """The tools of this agent and of the app, for a model: `run.tools.schemas("openai")`."""
        return ToolBox(offered_tools(self._root))

    @property
    def facts(self) -> Facts:
        """Facts that this run knows or infers, and the steps that rely on them."""
        return self._facts

    # --- models ------------------------------------------------------------------------------------------

    async def decide(self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Ask a model (any async function with a return annotation) and record the decision.

        On replay the recorded answer is returned and the model is not asked. Tokens and cost are read from the `usage`
        field of the result, and the reason and confidence from its fields `why` and `confidence`.
        """
        return await decide(self.scope(), DecisionSettings(), function, args, kwargs)

    def options(
        self,
        *,
        step: str | None = None,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
        fresh: Mapping[str, timedelta] | None = None,
        model: str | Named | tuple[str | Named, ...] = (),
    ) -> Decide:
        """`run.options(timeout=...).decide(...)`: settings for one decision.

        `model` names the model that the function asks, or all that it may ask, for a budget in a currency and
        for the limits of models. An object with a `name` names itself.
        `fresh` names facts with their maximum age: `fresh={"fares": timedelta(minutes=5)}`. If a fact is missing or
        older, the model is not asked and `StaleFacts` is raised.
        """
        models = tuple(map(named_model, model if isinstance(model, tuple) else (model,)))
        return Decide(self, DecisionSettings(step, timeout, retry, models=models), fresh or {})

    async def call(
        self, name: str, arguments: str | bytes | dict[str, Any], *, confidence: float | None = None, taint: str = "",
        again: str | None = None, step: str | None = None,
    ) -> Outcome[Any]:  # fmt: skip
        """Perform a call that a *model* chose. An error of the model is reported in the outcome, never raised.

        An escalation policy receives the model's `confidence` (from 0 to 1, by default that of the previous decision)
        and the source that touched the arguments (`taint="web"`). `again="the reason"` sends the call although an
        effect on the same subject is pending. `step` names the step explicitly, once per run: the model's id of the
        call.
        """
        return await call_by_model(self.scope(), name, arguments, metadata_of(confidence, taint, again), step)

    def effect(
        self, name: str, arguments: Mapping[str, Any], /, *, verify: Callable[..., Any] | None = None,
        settle_window: timedelta | None = None, **clauses: Any,
    ) -> InlineEffect:  # fmt: skip
        """An effect that is declared where it happens, for code that does not need a tool of its own.

            charge = run.effect("charge", {"order": "A-17", "cents": 1290}, idempotency=Key(ttl=timedelta(days=1)))
            async for attempt in charge:
                async with attempt:
                    attempt.result = await pay("A-17", 1290, idempotency_key=attempt.key)
            return charge.result

        The intent is recorded before the block runs, and the outcome after it. If the outcome is already on record, the
        body of the loop does not run. If the contract allows another attempt, it runs again. `arguments` identify the
        effect: a replay with different arguments diverges. The clauses are those of `@tool`. `verify` looks up the
        effect as `@tool.verify` does, with `settle_window`. Without a clause the effect is attempted once, and a person
        is asked if the block was interrupted.
        """
        return InlineEffect(inline_tool(name, arguments, verify, settle_window, clauses), arguments)

    async def wait_pending(self, outcome: Outcome[Any]) -> dict[str, Outcome[Any]]:
        """Wait until every part of a partial success (`outcome.pending`) has ended, and return the outcomes by name.

        If the answer of a part was lost and its outcome cannot be proven, the part waits for a reviewer.
        """
        return await ended_parts(self.scope(), outcome)

    # --- transactions ------------------------------------------------------------------------------------

    def transaction(self, name: str, *, pivot: Pivot = "one") -> Transaction:
        """A transaction: `async with run.transaction("book trip") as booking:`.

        If its body raises, completed effects are compensated in reverse order of start, and `TransactionAborted` is
        raised. `pivot="best effort"` allows more than one held effect that cannot be repeated.
        """
        return Transaction(self.scope(), name, pivot)

    async def on_commit(self, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Held[R]:
        """Hold an effect until the outermost transaction commits. Outside a transaction it is sent immediately."""
        return await on_commit(self.scope(), tool, tool.spec.bind(args, kwargs, strict=True))

    async def execute(
        self, plan: Plan, given: Any = None, *, approve: bool = False, relies_on: Mapping[str, Any] | Iterable[str] = ()
    ) -> PlanResult:
        """Perform a plan durably, as parallel as its dependencies allow, and without asking a model.

        Conditions read `given` as `input`. With `approve` the plan waits until a person has approved exactly this plan:
        `beforehand answer RUN/approve-DIGEST yes`. The facts in `relies_on` apply to every step; a mapping also gives
        the values from which the plan was made.

        Raises `PlanRefused` with all faults before anything runs, `PlanStepFailed`, `PlanAborted`, or `NewPlanNeeded`
        if a precondition became stale or a fact that a step relies on was corrected. If the steps of the plan belong
        together, these errors are the cause of a `TransactionAborted`.
        """
        return await execute(self._context(), plan, ExecuteOptions(given, named_facts(relies_on), approve))

    # --- people ------------------------------------------------------------------------------------------

    @overload
    def ask(
        self,
        text: str,
        *,
        choices: Sequence[A],
        timeout: timedelta | None = None,
        default: A | None = None,
        step: str | None = None,
    ) -> Coroutine[Any, Any, A]: ...
    @overload
    def ask(
        self,
        text: str,
        *,
        returns: type[A],
        timeout: timedelta | None = None,
        default: A | None = None,
        step: str | None = None,
    ) -> Coroutine[Any, Any, A]: ...
    @overload
    def ask(
        self, text: str, *, timeout: timedelta | None = None, default: str | None = None, step: str | None = None
    ) -> Coroutine[Any, Any, str]: ...
    def ask(
        self,
        text: str,
        *,
        choices: Sequence[Any] = (),
        returns: type[Any] = str,
        timeout: timedelta | None = None,
        default: Any = None,
        step: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Ask a person, and wait without a process: `beforehand answer RUN/STEP VALUE --by NAME`.

        The answer is one of `choices`, or any value of `returns` (str, int, float or bool). The first answer is final.
        After `timeout` (a week, unless `Settings.answer_within_ms` says otherwise) the default becomes the answer.
        Raises `TimeoutError` if no default was given.
        """
        return self._ask(question_of(text, choices, returns), AnswerLimit(timeout, default), step)

    async def _ask(self, question: Question, limit: AnswerLimit, step: str | None) -> Scalar:
        """Ask in the branch that awaits the answer, which may differ from the one that called."""
        return await ask(self.scope(), question, limit, step)

    @overload
    async def hand_off(self, to: Agent[T, R], *, why: str = "", state: T) -> R: ...
    @overload
    async def hand_off(
        self, to: str, *, why: str, state: Mapping[str, Any] | None = None, returns: type[A],
        within: timedelta | None = None, default: A | None = None,
    ) -> A: ...  # fmt: skip
    @overload
    async def hand_off(
        self, to: str, *, why: str, state: Mapping[str, Any] | None = None, within: timedelta | None = None,
        default: str | None = None,
    ) -> str: ...  # fmt: skip
    async def hand_off(
        self,
        to: Agent[Any, Any] | str,
        *,
        why: str = "",
        state: Any = None,
        returns: type[Any] = str,
        within: timedelta | None = None,
        default: Any = None,
    ) -> Any:
        """Hand this run over. The run keeps its id, its operations, its waits and its deadline.

        If `to` is an agent, its code continues with `state` as its input, and its result is returned. It can use only
        those of its tools that the run also has.

        Otherwise `to` is a queue of reviewers, such as `"person"`. They see the run with its facts and its effects. A
        reviewer answers, and the answer is returned (a value of `returns`), or takes the run over, which ends the run.
        After `within` (a week, unless `Settings.answer_within_ms` says otherwise) the default is returned. Raises
        `TimeoutError` if no default was given.
        """
        if isinstance(to, str):
            return await to_people(self.scope(), to, question_of(why, (), returns), state, AnswerLimit(within, default))
        return await _to_agent(self.scope(), to, state, why)

    async def messages(self) -> tuple[Message, ...]:
        """The messages sent to this run (`beforehand tell`) and not yet delivered, for code that asks for them itself.

        A message that code does not fetch is raised as `Interrupted` at the next write or wait.
        """
        return tuple(message_of(record) for record in await read_messages(self.scope()))

    def memory(self, user: str) -> UserMemory:
        """The stored knowledge about a user, across runs: `await run.memory("ann").recall()`."""
        return UserMemory(self._context, user)

    @overload
    def lessons(self) -> AgentLessons: ...
    @overload
    def lessons(self, topic: str) -> Lessons: ...
    def lessons(self, topic: str | None = None) -> AgentLessons | Lessons:
        """The lessons that people approved for this agent: `await run.lessons().recall()`.

        With a topic, those that runs noted themselves: `await run.lessons("booking flights").recall()`.
        """
        return AgentLessons(self._context, self._lessons_shown) if topic is None else Lessons(self._context, topic)

    def conversation(self, name: str = "") -> Conversation:
        """A conversation, stored as a stream: that of this run, or that of `name`, which several runs can share."""
        name = name or self.id
        return Conversation(self._context, name, self._conversations.setdefault(name, ConversationState()))

    async def digest(self) -> str:
        """The proven effects of this run and its pending operations, as a block for a prompt.

        It informs a model with a truncated or compacted conversation which effects it must not repeat. Titles and the
        arguments that identify a call come first. Characters that are left out are counted.
        """
        return await receipts_digest(self._context())

    # --- child runs --------------------------------------------------------------------------------------

    async def start(
        self,
        agent: Agent[T, R],
        given: T,
        *,
        queue: str = "",
        priority: int = 0,
        tenant: str = "",
        budget: RunBudget | None = None,
        when_parent_ends: WhenParentEnds = "cancel",
        step: str | None = None,
    ) -> ChildRun[R]:
        """Start a child run of that agent, once, and return at once. `await run.join(child)` waits for its result.

        The child is a run of its own: another worker may drive it. Its id follows from this step. It is cancelled with
        this run, has no later deadline, and shares its budget. A child that was not joined when this run completes is
        cancelled, unless `when_parent_ends="continue"`.

        With a `queue` the child starts when the limits of the queue permit, with the `priority` and `tenant` of
        `app.submit`; without one it starts at once. The tenant is that of this run, unless it is given. `budget` are
        limits of the child beside those of this run.

        Raises `UsageError` if the app does not have the agent, the queue is not declared, or too many runs are above
        the child, and `ParameterMismatch` if another run has its id. Then nothing is stored.
        """
        how = Submission(queue, priority, None, tenant, budget)
        return await children.start(self.scope(), agent, given, how, when_parent_ends, step)

    async def join(self, child: ChildRun[R], *, step: str | None = None) -> R:
        """Wait until a child run has ended, and return its result. Meanwhile this run needs no process.

        Raises `ChildStopped` if the child was stopped, cancelled or undone; the same on replay.
        """
        return await children.join(self.scope(), child, step)

    # --- branches ----------------------------------------------------------------------------------------

    @overload
    async def gather(self, a: Awaitable[T1], b: Awaitable[T2], /) -> tuple[T1, T2]: ...
    @overload
    async def gather(self, a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], /) -> tuple[T1, T2, T3]: ...
    @overload
    async def gather(self, *branches: Awaitable[T]) -> list[T]: ...
    async def gather(self, *branches: Awaitable[Any]) -> Any:
        """Run several branches at once, each with stable step names. The first error cancels the others."""
        scope = self.scope()
        return await _joined(scope, [branch_task(scope.child(), _as_coroutine(branch)) for branch in branches])

    async def map(
        self,
        function: Callable[[T], Awaitable[R]],
        rows: Iterable[T],
        *,
        id: Callable[[T], object],  # noqa: A002 - the spelling users write
    ) -> list[R]:
        """Run `function` over `rows` concurrently. `id` names each branch by its row, so their order may change."""
        scope = self.scope()
        return await _joined(
            scope, [branch_task(scope.child(str(id(row))), _as_coroutine(function(row))) for row in rows]
        )

    @contextlib.asynccontextmanager
    async def task_group(self) -> AsyncGenerator[asyncio.TaskGroup]:
        """An `asyncio.TaskGroup` whose tasks are branches, numbered by creation."""
        scope = self.scope()
        async with _noting_join(scope), _cancelling_once(), asyncio.TaskGroup() as group:
            yield group

    @contextlib.contextmanager
    def branch(self, name: str) -> Any:
        """Name the steps inside: `with run.branch("refund"):`."""
        token = SCOPE.set(self.scope().section(name))
        try:
            yield
        finally:
            SCOPE.reset(token)

    @contextlib.contextmanager
    def step(self, name: str) -> Generator[None]:
        """Name the steps of one call of a framework, in a task that it started: `with run.step("call_9f2"):`.

        Use the framework's own id of the call. It must be the same after a crash, and unique among concurrent calls.
        """
        with self.scope().hosting(name):
            yield

    # --- journaled values, time and events -------------------------------------------------------------------

    async def now(self) -> datetime:
        """The current time in UTC; on replay the recorded time."""
        scope = self.scope()
        ms: int = await steps.value(scope, "now", scope.active.process.wall_ms)
        return datetime.fromtimestamp(ms / 1000, UTC)

    async def random(self) -> float:
        """A random number from 0 to 1; on replay the recorded number."""
        scope = self.scope()
        number: float = await steps.value(scope, "random", lambda: scope.active.process.environment.rng.uniform(0, 1))
        return number

    async def uuid(self) -> UUID:
        """A random identifier; on replay the recorded one."""
        scope = self.scope()
        text: str = await steps.value(scope, "uuid", scope.active.process.environment.rng.token)
        return UUID(text)

    async def version(self, change: str, *, newest: int = 1) -> int:
        """The version of a code change for this run: 0 if it passed this point before the change, otherwise `newest`.

        A run that older code began has no marker here and keeps its old behavior.
        """
        return await steps.version(self.scope(), change, newest)

    async def sleep(self, duration: timedelta) -> None:
        """Pause durably. During a long pause the run does not occupy a process."""
        await durable_waits.sleep(self.scope(), _ms(duration, "sleep"))

    async def wait_for(self, event: str, key: str = "", *, timeout: timedelta | None = None) -> Any:  # noqa: ASYNC109 - a journaled one
        """The next event of that name (and key) from `beforehand signal`; early events are kept.

        Raises `TimeoutError` when the time is up.
        """
        ms = None if timeout is None else _ms(timeout, "wait_for")
        received = await durable_waits.wait_for_event(self.scope(), event, key, ms)
        if received is None:
            raise TimeoutError(f"no event {event!r} came within {timeout}")
        from beforehand.model.values import codec_for  # noqa: PLC0415 - kept beside its only use

        return codec_for(Any).decode(bytes(received.payload))

    @contextlib.asynccontextmanager
    async def timeout(self, duration: timedelta) -> AsyncGenerator[None]:
        """A journaled time limit. If it ended the body, a replay ends the body at the same point.

        Raises `TimeoutError`.
        """
        scope = self.scope()
        limit = durable_waits.TimeLimit(scope, _ms(duration, "timeout"))
        try:
            async with limit.running():
                yield
        except TimeoutError:
            if not limit.fired:
                raise
            raise TimeoutError(f"the time limit of {duration} ended this part of run {self.id}") from None

    # --- inside ------------------------------------------------------------------------------------------------

    def scope(self) -> Scope:
        """The current branch of this run. Raises `UsageError` outside its code."""
        scope = SCOPE.get()
        if scope is None or scope.active is not self._root.active:
            raise UsageError(
                f"run {self.id} was used outside its own branches",
                next_step="use it in the agent's function and in what that awaits or starts",
            )
        return scope

    def _context(self) -> RunContext:
        return RunContext(self.scope())


def current_run() -> Run:
    """The run whose code is running. Raises `OutsideRun` outside a run, inside a tool and inside a model call."""
    scope = SCOPE.get()
    if scope is None:
        raise OutsideRun(
            "current_run() was called where no code of a run is running",
            next_step="call it in an @agent function and in what that awaits or starts; "
            "inside a tool, current_operation() says what is performed",
        )
    found = scope.active.code
    assert isinstance(found, Run), scope.active.run
    return found


class Decide:
    """One decision with settings of its own."""

    def __init__(self, run: Run, settings: DecisionSettings, fresh: Mapping[str, timedelta]) -> None:
        self._run = run
        self._settings = settings
        self._fresh = fresh

    async def decide(self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `Run.decide`, with these settings."""
        for name, age in self._fresh.items():
            await self._run.facts.require(age, name)
        return await decide(self._run.scope(), self._settings, function, args, kwargs)


async def _to_agent(scope: Scope, agent: Agent[T, R], given: T, why: str) -> R:
    """Continue this run with that agent, and return its result in its stored form."""
    active = scope.active
    stored = agent.stored_input(given, active.process.identity.secret)
    held = frozenset(offered_tools(scope))
    authority = within(scope.authority, agent.name, held & tools_for(active, agent), active.run)
    section = await hand_over(scope, agent, HandoffInput(stored.stored, stored.digest, why), authority)
    token = SCOPE.set(section)
    try:
        result = await agent.begin(section, stored.stored)
    finally:
        SCOPE.reset(token)
    try:
        _, value = agent.codec.round_trip(result)
    except ValueError as problem:
        raise ResultLost(f"the result of {agent.name} in run {active.run} could not be stored: {problem}") from problem
    returned: R = value
    return returned


def _ms(duration: timedelta, what: str) -> int:
    span = milliseconds(duration)
    if span < 0:
        raise UsageError(f"{what}({duration}) is negative", next_step="give a duration of zero or more")
    return span


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    """Any awaitable as a coroutine, for a task."""
    return await awaitable


async def _joined(scope: Scope, tasks: list[asyncio.Task[R]]) -> list[R]:
    async with _noting_join(scope):
        results = await _all_of(tasks)
    return results  # noqa: RET504 - for mypy, a block that returns inside may also suppress an error, and not return


@contextlib.asynccontextmanager
async def _noting_join(scope: Scope) -> AsyncGenerator[None]:
    """Note under a time limit that branches were joined, whatever they raised: code may be cancelled just before it."""
    try:
        yield
    except Exception:
        await steps.join_branches(scope)
        raise
    await steps.join_branches(scope)


@contextlib.asynccontextmanager
async def _cancelling_once() -> AsyncGenerator[None]:
    """Before Python 3.13 a failed task group leaves its task cancelled: a time limit around it could not tell why."""
    task = asyncio.current_task()
    assert task is not None, "asyncio runs a task"
    before = task.cancelling()
    try:
        yield
    except BaseExceptionGroup:
        if sys.version_info < (3, 13) and task.cancelling() > before:
            task.uncancel()
        raise


async def _all_of(tasks: list[asyncio.Task[R]]) -> list[R]:
    """Return all results in order; the first error cancels the rest and is raised when they have ended."""
    if not tasks:
        return []
    try:
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)  # cancelled again, with this task, on their way out
    failed = [task for task in tasks if task.cancelled() or task.exception()]  # asyncio logs what is never looked at
    for task in failed:
        if task in done:
            task.result()
    return [task.result() for task in tasks]
