"""`RunContext`: all that planning and knowledge use of a run.

They are written like agent code: they journal values, ask people, call tools, open branches, and record and read their
own entries in the ledger. They import nothing else of the engine, the journal and the other files of this package
(`tests/tidy/test_boundaries.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from beforehand.agent.call import outcome_of
from beforehand.agent.hosted import asking_tool
from beforehand.agent.model_calls import offered_tools
from beforehand.agent.questions import AnswerLimit, ask, question_of
from beforehand.agent.transactions import Transaction, on_commit
from beforehand.engine import steps
from beforehand.engine.active_run.log import load
from beforehand.engine.active_run.scopes import SCOPE, Scope, branch_task
from beforehand.engine.claims import claims_to_tell
from beforehand.engine.suspension import Ending
from beforehand.errors import ReplayDiverged
from beforehand.journal.entry_codec import read, readable, written
from beforehand.journal.port import LedgerEntry, Post
from beforehand.model.facts import Correction, Fact, Known
from beforehand.model.outcome import Outcome
from beforehand.model.questions import Scalar
from beforehand.model.receipts import digest
from beforehand.model.transaction import WHOLE_RUN, around

if TYPE_CHECKING:
    from beforehand.agent.tool import Tool

T = TypeVar("T")
V = TypeVar("V", int, float, str, dict[str, Any])
AnyTool = Any  # an app's tools are `Tool[Any, Any]`; this module only passes them on


class RunContext:
    """The branch of a run that is executing, for planning and knowledge."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @classmethod
    def current(cls) -> RunContext:
        """The branch that is executing."""
        scope = SCOPE.get()
        assert scope is not None, "only a branch of a run asks for it"
        return cls(scope)

    @property
    def run(self) -> str:
        """The run's name."""
        return self._scope.active.run

    @property
    def agent(self) -> str:
        """The agent whose code this branch runs: that of the run, or the one to which it was handed over."""
        authority, started = self._scope.authority, self._scope.active.history.lifecycle.started
        if authority is not None:
            return authority.agent
        assert started is not None, "agent code runs in a run that has begun"
        return started.agent

    @property
    def path(self) -> str:
        """The path of the branch: the names of its steps begin with it."""
        return self._scope.path

    @property
    def facts(self) -> Known:
        """The facts of the run. `learn` changes them."""
        return self._scope.active.facts.known

    def now_ms(self) -> int:
        """The wall clock, which is not journaled."""
        return self._scope.active.process.wall_ms()

    # --- steps -----------------------------------------------------------------------------------------------------

    async def value(self, what: str, fresh: Callable[[], V | Awaitable[V]]) -> V:
        """The result of `fresh` from the first time this step was taken. It must have no outside effect."""
        return await steps.value(self._scope, what, fresh)

    async def claims_to_tell(self, tools: Sequence[str] | None, result: object, before: str) -> Sequence[str]:
        """The effects that the run claims and nothing proves, to tell a model that was told at `before` last."""
        return await claims_to_tell(self._scope, tools, result, before)

    def next_step(self, what: str) -> str:
        """The name of the next step of this kind: an entry posted under it is posted once, even after a crash."""
        return self._scope.next_step(what)

    async def ask(
        self, text: str, *, choices: Sequence[Scalar] = (), returns: type[Scalar] = str,
        within: timedelta | None = None, step: str | None = None,
    ) -> Scalar:  # fmt: skip
        """A person's answer to a question. Raises `TimeoutError` if none arrives in time."""
        return await ask(self._scope, question_of(text, choices, returns), AnswerLimit(within), step)

    def speaker(self, step: str) -> AbstractContextManager[Callable[[str], None]]:
        """A function that gives pieces of the answer of a step to the readers of `app.stream`, as they come."""
        return self._scope.active.process.live_text.speaker(self.run, step)

    # --- tools -----------------------------------------------------------------------------------------------------

    def tools(self) -> Mapping[str, AnyTool]:
        """The tools that this branch may use, by name."""
        return offered_tools(self._scope)

    async def call(self, tool: Tool[Any, Any], arguments: dict[str, Any]) -> Outcome[Any]:
        """The outcome of a call, which is returned even if it failed."""
        return await outcome_of(tool, arguments, None)

    async def approval(self, what: str, shown: dict[str, Any], step: str) -> Outcome[Any]:
        """The answer of people who approve what is `shown` as they approve a call; a yes settles it.

        The value is the wall clock at which their yes ends, in milliseconds. The same may be asked again.
        """
        self._scope.again(self._scope.path + step)
        return await outcome_of(asking_tool(what, shown), shown, step)

    async def hold(self, tool: Tool[Any, Any], arguments: dict[str, Any]) -> None:
        """Hold an effect until the outermost transaction around this branch commits."""
        await on_commit(self._scope, tool, arguments)

    # --- branches and transactions ---------------------------------------------------------------------------------

    def section(self, name: str) -> RunContext:
        """The part of this branch of that name, numbered where the name comes again."""
        return RunContext(self._scope.boundary(name))

    @contextlib.contextmanager
    def inside(self) -> Generator[None]:
        """The steps of the body belong to this part of the branch."""
        token = SCOPE.set(self._scope)
        try:
            yield
        finally:
            SCOPE.reset(token)

    def start(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A branch of that name, in a task of its own."""
        return branch_task(self._scope.child(name), work)

    def transaction(self, name: str) -> Transaction:
        """A transaction of that name. In its body, `current` is the section inside it."""
        return Transaction(self._scope, name, "one")

    def in_transaction(self) -> bool:
        """True if code has begun a transaction around this branch."""
        boundaries = around(self._scope.path, self._scope.active.history.boundaries.by_name)
        return any(one.name != WHOLE_RUN for one in boundaries)

    # --- facts, and what they change -------------------------------------------------------------------------------

    def learn(self, fact: Fact) -> Correction | None:
        """Take a fact. If it corrects another one, nothing more is sent for steps that rely on that."""
        return self._scope.active.facts.learn(fact)

    def drop_open_steps(self) -> None:
        """Drop the steps under way that rely on a fact which a message corrected."""
        self._scope.active.facts.drop_open_steps()

    # --- records and the ledger ------------------------------------------------------------------------------------

    def diverge(self, why: str, detail: str) -> ReplayDiverged:
        """End the run because its code came back otherwise than recorded; the error to raise."""
        active = self._scope.active
        active.end(Ending("diverged", why))
        return active.replay.divergence(detail)

    async def receipts(self, *others: str) -> str:
        """The effects of the other runs and of this one that are done, and those that are pending, from the records."""
        active = self._scope.active
        tools = active.process.tools
        await active.log.flush()
        histories = [await load(active.process, run) for run in dict.fromkeys((*others, active.run))]
        return digest(histories, lambda tool: tools[tool].subject.named if tool in tools else ())

    async def post(self, stream: str, key: str, entry: object) -> LedgerEntry:
        """Post an entry to the ledger, once under its key; the stored entry that holds the key."""
        return await self._scope.active.process.journal.commit(Post(stream, key, written(entry)))

    def read(self, entry: LedgerEntry, kind: type[T]) -> T:
        """Decode an entry. Raises `Unreadable`."""
        return read(entry, kind)

    async def entries(self, stream: str, kind: type[T]) -> list[tuple[int, T]]:
        """The readable entries of a stream, with their numbers, in order."""
        journal = self._scope.active.process.journal
        found = await readable(journal, await journal.entries(stream), kind)
        return [(entry.id, one) for entry, one in found]
