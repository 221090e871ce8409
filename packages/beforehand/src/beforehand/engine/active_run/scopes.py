"""Scopes: where a step gets a name that is stable over replay.

Each concurrent branch of agent code is its own scope, numbered by creation order within its parent.
A task factory gives plain asyncio tasks their scope when they are created; tasks made inside tools
and model calls are not numbered.

A host is an agent framework that agent code awaits. It calls steps from tasks of its own, so each of its calls is a
branch with the name that the host has for it (`host_step`), whichever task makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

from beforehand.errors import AmbiguousStep, UsageError
from beforehand.model.ids import NAME_LIMIT, can_name
from beforehand.model.questions import Authority
from beforehand.model.run_history import ABANDONED
from beforehand.model.secret import REVEALED
from beforehand.model.transaction import base_of, named

if TYPE_CHECKING:
    from beforehand.engine.active_run.run import ActiveRun

_AGAIN: Final = "~"
"""Marks, among the counts of a branch, how often a step that code named may come again; not a valid step name."""
SCOPE: Final[ContextVar[Scope | None]] = ContextVar("beforehand_scope", default=None)


class Limit(Protocol):
    """A time limit around a body of agent code, as the branch that it limits knows it."""

    outlived: list[asyncio.Future[None]]

    @property
    def name(self) -> str:
        """Its step."""
        ...

    @property
    def over(self) -> bool:
        """True if no step of its body may begin any more."""
        ...

    @property
    def cancelled(self) -> bool:
        """True once it has cancelled its body in this process."""
        ...


class Scope:
    """One branch of one run instance, or a named section of it.

    `host` is the branch whose task this is: itself, except in a section. Only a host has children, time
    limits and a part in deciding that the run is suspended: `working` is set while the runtime does something for its
    task, `waiting` while that (or the task) only waits. `heard` is the last message that a host knows of: delivered to
    its own code, to the branch which began it, or to one that it began and that has ended. `authority` is
    what its code may do, where the run was handed over to it. `refused` counts the steps that were refused
    because the instance was sealed. `made_in` is where a plain asyncio task was created that has this branch.
    `serves_host` is set once a host has called a step in this branch, and `named` counts the names of such steps.
    `beside_host` counts the branches that agent code begins from then on. `received` is set once the code of a branch
    has received an answer. `began_limited` is set for a branch that began in the body of a time limit.
    """

    __slots__ = (
        "active", "alive", "authority", "began_limited", "beside_host", "children", "counts", "host", "last_received",
        "limits", "made_in", "named", "parent", "path", "received", "refused", "serves_host", "started", "sure",
        "task", "waiting", "working",
    )  # fmt: skip

    def __init__(self, active: ActiveRun, path: str = "", parent: Scope | None = None) -> None:
        self.active = active
        self.path = path
        self.parent = parent
        self.host = self
        self.task: asyncio.Task[Any] | None = None
        self.counts: dict[str, int] = {}
        self.started = 0
        self.limits: list[Limit] = []
        self.children: dict[Scope, None] = {}  # in the order in which they began
        self.alive = True
        self.waiting = 0
        self.working = 0
        self.refused = 0
        self.sure: float | None = None if parent is None else parent.sure
        self.last_received = 0
        self.authority: Authority | None = None
        self.made_in: Scope | None = None
        self.serves_host = False
        self.named: dict[str, int] = {}
        self.beside_host = 0
        self.received = False
        self.began_limited = False

    def expired_limit(self) -> Limit | None:
        """The innermost limit around this branch, or around one that began it, that is over.

        A step in it that is not on record did not end in time. What the world holds now came too late for it: an event,
        an answer of a person or a model, the end of a pause.
        """
        host: Scope | None = self.host
        while host is not None:
            for limit in reversed(host.limits):
                if limit.over:
                    return limit
            host = host.parent
        return None

    def limited(self) -> bool:
        """True if this branch is in the body of a time limit, or began in one.

        A limit that its parent enters later depends on how fast both are, and a replay is faster.
        """
        return bool(self.host.limits) or self.host.began_limited

    def cancelled_by_limit(self) -> bool:
        """True if a time limit around this branch, or around one that began it, has cancelled its body."""
        host: Scope | None = self.host
        while host is not None and not any(limit.cancelled for limit in host.limits):
            host = host.parent
        return host is not None

    def has_message(self) -> bool:
        """True if a message must be delivered to the code of this branch before its next write, or tells it to stop."""
        messages = self.active.history.messages
        return messages is not None and (messages.stop > 0 or messages.last > self.host.last_received)

    def step(self, name: str, explicit: str | None = None) -> str:
        """The next step of this branch: `path/name#occurrence`, or an explicit name used once."""
        if self.task is not None and asyncio.current_task() is not self.task:
            raise AmbiguousStep(
                f"two tasks call steps in one branch: {name}",
                run=self.active.run,
                next_step="start tasks of your own with run.gather or run.map; in a task that a framework started, "
                'name the step, after its own id for the call: with run.step("call_9f2"): ...',
            )
        if explicit is not None:
            _checked(explicit, "a step")
        base = self.path + (name if explicit is None else explicit)
        count = self.counts[base] = self.counts.get(base, 0) + 1
        if explicit is None:
            return f"{base}#{count}"
        if count > 1:
            if count <= self.counts.get(base + _AGAIN, 0) + 1:
                return named(base, count)
            raise UsageError(
                f"the step {base!r} is named twice in one run", next_step="give every explicit step its own name"
            )
        return base

    def next_step(self, name: str) -> str:
        """The name that the next step of this kind will have."""
        return f"{self.path}{name}#{self.counts.get(self.path + name, 0) + 1}"

    def again(self, step: str) -> None:
        """Allow the name of a step again that was cancelled before anything was sent."""
        base = base_of(step)
        self.counts[base + _AGAIN] = self.counts.get(base + _AGAIN, 0) + 1

    def child(self, name: str | None = None) -> Scope:
        """A new branch below this one, named or numbered by creation order."""
        if name is None and self.host.serves_host:
            # Tasks of the host have taken numbers of this branch, and its next version makes more or fewer of them.
            self.beside_host += 1
            return self._below(f"{self.path}~~{self.beside_host}/")
        return self._below(self._path_of(name))

    def beside(self) -> Scope:
        """A branch for one step of this one, which runs the body of that step meanwhile. It shares names and limits."""
        scope = self._below(self.path)
        scope.counts, scope.limits = self.counts, self.host.limits
        self.received = True
        return scope

    def task_branch(self) -> Scope:
        """The branch of a plain asyncio task that is made in this one."""
        branch = self._below(self._path_of(None))
        branch.made_in = self
        return branch

    def _below(self, path: str) -> Scope:
        scope = Scope(self.active, path, self.host)
        scope.began_limited = self.limited()
        scope.last_received, scope.authority = self.host.last_received, self.authority
        self.host.children[scope] = None
        return scope

    def anchor(self) -> Scope:
        """The branch or section of agent code below which plain asyncio tasks (those of a host) made this one."""
        scope = self
        while scope.made_in is not None:
            scope = scope.made_in
        return scope

    def host_step(self, name: str) -> Scope:
        """A branch for one call of a host, named by the host, in whichever task.

        A name that comes again, after the call before it has ended, is numbered. Raises `UsageError` for a name that is
        in use.
        """
        anchor = self.anchor()
        base = anchor.path + _checked(name, "a step of a host")
        count = anchor.named.get(name, 0)
        latest = f"{base}/" if count < 2 else f"{base}#{count}/"
        path = f"{base}#{count + 1}/" if count else f"{base}/"
        anchor.named[name] = count + 1
        if count and self.active.refuse_repeat(path, beside=any(one.path == latest for one in anchor.host.children)):
            raise UsageError(
                f"the host makes two calls at once and names both {name!r}",
                known="nothing was sent for the second",
                next_step="give each call an id of its own, in the host or in the adapter",
            )
        anchor.host.serves_host = True
        self.active.host_calls += 1
        return anchor._below(path)  # noqa: SLF001 - a branch of the same run

    @contextlib.contextmanager
    def hosting(self, name: str) -> Generator[Scope]:
        """The branch of one call of a host, as the present one. It ends with the body.

        A call that the host cancels before it has a record of its own is noted, and cancelled again in a replay: made
        anew there, it would wait for its turn behind what the host did after it.
        """
        scope = self.host_step(name)
        token = SCOPE.set(scope)
        try:
            if self.active.noted(scope.path, ABANDONED):
                raise asyncio.CancelledError("the host's call was cancelled here before")  # noqa: TRY301 - as below
            yield scope
        except asyncio.CancelledError:
            if not (scope.received or scope.started or self.active.knows(scope.path)):
                self.active.note(scope.path, ABANDONED)
            raise
        finally:
            SCOPE.reset(token)
            scope._ended(None)  # noqa: SLF001 - a branch of the same run; its task goes on with other things

    def boundary(self, name: str) -> Scope:
        """The part of this branch inside a transaction: numbered where its name comes again."""
        base = self.path + _checked(name.replace(" ", "-"), "a transaction")
        count = self.counts[base + "/"] = self.counts.get(base + "/", 0) + 1
        base = base if count == 1 else f"{base}#{count}"
        return self._part(named(base, self.active.history.boundaries.renewed.get(base, 1)) + "/")

    def section(self, name: str) -> Scope:
        """A part of this branch whose steps have names of their own; the same task goes on in it."""
        return self._part(self._path_of(name))

    def handed(self, step: str, authority: Authority) -> Scope:
        """The part of this branch in which another agent goes on, with at most this authority."""
        scope = self._part(step + "/")
        scope.authority = authority
        return scope

    def _part(self, path: str) -> Scope:
        scope = Scope(self.active, path)
        scope.host, scope.task, scope.authority = self.host, self.task, self.authority
        return scope

    def _path_of(self, name: str | None) -> str:
        if name is None:
            self.started += 1
            return f"{self.path}~{self.started}/"
        path = f"{self.path}{_checked(name)}/"
        taken = self.counts[path] = self.counts.get(path, 0) + 1
        if taken > 1:
            raise UsageError(f"two branches of one run are named {self.path}{name!r}", next_step="name each once")
        return path

    def enter(self, task: asyncio.Task[Any]) -> None:
        """Bind the branch to its task; the branch ends with it."""
        self.task = task
        task.add_done_callback(self._ended)

    def _ended(self, _task: asyncio.Task[Any] | None) -> None:
        """Branches that outlive this one belong to the one above."""
        self.alive = False
        if self.parent is not None:
            self.parent.last_received = max(self.parent.last_received, self.last_received)
            for child in self.children:
                child.parent = self.parent
            self.parent.children |= self.children
            self.parent.children.pop(self, None)
            self.children = {}
            self.active.waiters.consider_rest()
        else:  # the root: its end is that of the code
            self.active.over()

    def tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks of this branch and of all below it that have not ended, in the order in which they began."""
        own = [self.task] if self.task is not None and not self.task.done() else []
        return own + [task for child in self.children for task in child.tasks()]

    def in_step(self) -> bool:
        """True if the code of this branch, or of one below it, is in a step."""
        return bool(self.waiting or self.working) or any(child.in_step() for child in self.children)

    def at_rest(self) -> bool:
        """True if this branch and all below it wait for the runtime, for each other, or have ended."""
        if not all(child.at_rest() for child in self.children):
            return False
        if not self.alive or self.waiting > 0:
            return True
        if self.working:
            return False
        if self.serves_host:  # its calls decide, and steps in plain tasks; tasks that the host keeps beside them do not
            return any(child.made_in is None or child.in_step() for child in self.children)
        return bool(self.children) or (self.made_in is not None and self.anchor().host.serves_host)


def _checked(name: str, what: str = "a branch") -> str:
    if not can_name(name):
        raise UsageError(
            f"{name[:NAME_LIMIT]!r} cannot name {what}",
            next_step=f"use 1 to {NAME_LIMIT} printable characters without / ~ and #",
        )
    return name


class _Numbering:
    """The apps of one loop share its task factory; `previous` comes back when the last of them closes."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous
        self.users = 0


_NUMBERED: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Numbering]] = WeakKeyDictionary()


def number_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Give each task that agent code makes on this loop a branch, from here on."""
    numbering = _NUMBERED.get(loop)
    if numbering is None:
        numbering = _NUMBERED[loop] = _Numbering(loop.get_task_factory())
        loop.set_task_factory(_numbering_factory(numbering.previous))
    numbering.users += 1


def stop_numbering(loop: asyncio.AbstractEventLoop) -> None:
    """Unregister one app from this loop."""
    numbering = _NUMBERED.get(loop)
    if numbering is None:
        return
    numbering.users -= 1
    if numbering.users == 0:
        loop.set_task_factory(numbering.previous)
        del _NUMBERED[loop]


def _numbering_factory(
    previous: Any,  # the loop's former task factory: asyncio types it loosely
) -> Any:  # the same
    """A task factory that numbers tasks made by agent code and leaves all others alone."""

    def factory(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        **options: Any,  # passed on as they came
    ) -> asyncio.Task[Any]:
        scope = SCOPE.get()
        branch = scope.task_branch() if scope is not None and options.get("context") is None else None
        if branch is not None:
            context = contextvars.copy_context()
            context.run(SCOPE.set, branch)
            options["context"] = context
        task: asyncio.Task[Any] = (
            previous(loop, coro, **options) if previous else asyncio.Task(coro, loop=loop, **options)
        )
        if branch is not None:
            branch.enter(task)
        return task

    return factory


def outside() -> contextvars.Context:
    """The present context outside of agent code: a task of the runtime is no branch, and not cancelled with one."""
    context = contextvars.copy_context()
    context.run(SCOPE.set, None)
    return context


def branch_task(scope: Scope, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Run `coro` as the task of `scope`."""
    context = contextvars.copy_context()
    context.run(SCOPE.set, scope)
    context.run(REVEALED.set, scope.active.masks.reveal)
    task = asyncio.get_running_loop().create_task(coro, context=context)
    scope.enter(task)
    return task
