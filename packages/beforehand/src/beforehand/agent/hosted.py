"""Runs that are hosted: an agent framework calls tools and models inside a run, in tasks of its own.

`HostedRun` is what every adapter uses. A host's call of a tool is an operation named after the host's id for the call,
and a host's call of a model is a recorded decision. Neither depends on the tasks that the host makes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import copy
import hashlib
import keyword
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

import msgspec

from beforehand.agent.call import outcome_of, outcome_of_left
from beforehand.agent.model_decisions import DecisionSettings, decide
from beforehand.agent.model_prices import named_model
from beforehand.agent.questions import AnswerLimit, ask, question_of
from beforehand.agent.signatures import KNOWN_SHAPE, is_async
from beforehand.agent.tool import Tool, tool
from beforehand.engine import steps
from beforehand.engine.active_run.scopes import SCOPE, Scope
from beforehand.engine.current_operation import AT
from beforehand.engine.exceptions.call_end import describe
from beforehand.engine.exceptions.http import status_code
from beforehand.errors import (
    AmbiguousStep,
    ArgumentError,
    BeforehandError,
    ContractError,
    OutsideRun,
    Rejected,
    ReplayDiverged,
    UsageError,
)
from beforehand.model.ids import NAME_LIMIT, can_name
from beforehand.model.outcome import Outcome
from beforehand.model.parameters import check_offered
from beforehand.model.tool_spec import Shape
from beforehand.model.usage import own_name

if TYPE_CHECKING:
    from datetime import timedelta

    from beforehand.policies import Retry

T = TypeVar("T")
_KEY: Final = re.compile(r"api[ _-]?key", re.IGNORECASE)
"""What an exception of a model's client says that has no key, and so no answer of a service."""
CONTROL: Final = "host:"
"""Begins the code of a call that ended with control flow of its host: nothing landed, and it did not succeed."""


class HostControl(Rejected):
    """Control flow of a host that a tool's body raised ("try again with other arguments"): the call did nothing.

    `payload` is what the adapter needs to raise it again; a replay returns the same one.
    """

    def __init__(self, kind: str, message: str, payload: Any) -> None:
        super().__init__(message or kind, code=CONTROL + kind)
        self.payload = payload


class TurnSettings(msgspec.Struct, frozen=True):
    """Settings of the model calls of a host: `timeout` and `retry` apply to one call.

    With `differs="note"` a question that differs from the recorded one is logged, and the recorded answer counts.
    """

    differs: Literal["diverge", "note"] = "diverge"
    timeout: timedelta | None = None
    retry: Retry | None = None


class HostedRun:
    """The run in which a host is called, for the host's adapter."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @classmethod
    def current(cls) -> HostedRun | None:
        """The run that this code is in; None outside a run, and inside the body of a tool or the call of a model."""
        scope = SCOPE.get()
        return None if scope is None else cls(scope)

    @property
    def id(self) -> str:
        """The run's name."""
        return self._scope.active.run

    @property
    def instance(self) -> object:
        """The object that stands for this attempt at the run, from its claim to its end or suspension."""
        return self._scope.active

    @property
    def inline(self) -> bool:
        """True in a simulated process, which has no threads: the host must call synchronous functions in the loop."""
        return self._scope.active.process.environment.threads.inline

    def begin(self, name: str) -> str:
        """A name for one more conversation of the host in this branch: `assistant`, then `assistant-2`."""
        counts = self._scope.anchor().counts
        count = counts[f"{name}:"] = counts.get(f"{name}:", 0) + 1
        return name if count == 1 else f"{name}-{count}"

    def stop(self, error: BeforehandError) -> BaseException:
        """The exception that ends the run with this error, whatever the host makes of exceptions."""
        return self._scope.active.break_off(error)

    @contextlib.contextmanager
    def stopping(self) -> Generator[None]:
        """Inside, wrong use and a replay that differs end the run: a host could tell its model, and go on."""
        try:
            yield
        except (UsageError, AmbiguousStep, ReplayDiverged) as error:
            raise self.stop(error) from error

    async def on_loop(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Perform a coroutine on the loop of the run, whichever loop the host awaits it in."""
        loop = self._scope.active.ending.get_loop()
        if asyncio.get_running_loop() is loop:
            return await call()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), loop))

    def step(self, name: str) -> contextlib.AbstractContextManager[Scope]:
        """Name the steps inside after the host's call, in whichever task it is made."""
        return self._scope.hosting(name)

    async def call(self, name: str, tool: Tool[..., Any], arguments: Mapping[str, Any]) -> Outcome[Any]:
        """Perform a tool that the host's model chose, as the host's call of that name. A failure is not raised."""
        with self.step(name) as scope:
            return await _outcome_of_call(scope, tool, tool.spec.bind((), arguments))

    async def call_checked(self, name: str, tool: Tool[..., Any], arguments: str | Mapping[str, Any]) -> Outcome[Any]:
        """As `call`, with arguments that the host did not check. The model is told those that do not fit."""
        try:
            parsed = tool.spec.parsed(arguments)
        except (ArgumentError, TypeError, ValueError) as error:
            return _misfit(f"{self.id}/{name}", tool, error)
        return await self.call(name, tool, parsed)

    def from_thread(self, call: Callable[[], Coroutine[Any, Any, T]], instead: str) -> T:
        """Perform a coroutine on the loop of the run, from a thread of the host.

        Raises `UsageError` on the loop itself, which would wait for itself; `instead` is what does not.
        """
        loop = self._scope.active.ending.get_loop()
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            raise UsageError(
                "a synchronous call of a host blocks the loop of its run",
                known="nothing was sent",
                next_step=f"use await {instead}, or asyncio.to_thread",
            )
        try:
            return asyncio.run_coroutine_threadsafe(call(), loop).result()
        except concurrent.futures.CancelledError as cancelled:
            # The run is suspended or ends. That class is an Exception in a thread, and a host could swallow it.
            raise asyncio.CancelledError from cancelled

    def in_thread(self, function: Callable[[T], Any]) -> Callable[[T], Awaitable[Any]]:
        """A synchronous function of the host, called in a thread of the environment with the host's context."""
        threads = self._scope.active.process.environment.threads
        context = contextvars.copy_context()

        async def call(given: T) -> Any:
            own = _inside(context)
            return await threads.call(lambda: own.run(function, given))

        return call

    async def call_body(
        self, name: str, tool: Tool[..., Any], arguments: Mapping[str, Any], body: Callable[[], Awaitable[Any]]
    ) -> tuple[Outcome[Any], Any]:
        """As `call`, for a tool whose body is this closure. The second value is the payload of the host's control flow.

        The closure runs in the host's own context. After a crash the operation is settled from its record, or waits
        until the host calls again with a closure.
        """
        raised: list[Any] = []
        context = contextvars.copy_context()

        async def late(**_: Any) -> Any:
            try:
                return await _in_context(_inside(context), body)
            except HostControl as control:
                raised.append(control.payload)
                raise

        with self.step(name) as scope:
            outcome = await _outcome_of_call(scope, tool.with_body(late), tool.spec.bind((), arguments))
            if not outcome.code.startswith(CONTROL):
                return outcome, None
            kind = outcome.code.removeprefix(CONTROL)
            fresh = raised[-1] if raised else {"kind": kind, "message": outcome.reason}
            return outcome, await steps.value(scope, "control", lambda: fresh)

    async def ask(self, name: str, text: str, choices: tuple[str, ...] = ()) -> str:
        """The answer of a person to a question of the host: one of `choices`, or any text."""
        with self.step(name) as scope:
            return str(await ask(scope, question_of(text, choices, str), AnswerLimit(), None))

    async def value(self, name: str, fresh: Callable[[], Awaitable[Any]]) -> Any:
        """The plain JSON of `fresh`, from the record where it is there: for what a host finds out or shows.

        Tasks that it leaves behind, such as those of a client, are none of the run.
        """

        async def outside() -> Any:
            token = SCOPE.set(None)
            try:
                return await fresh()
            finally:
                SCOPE.reset(token)

        with self.step(name) as scope:
            return await steps.value(scope, "value", outside)

    async def turn(
        self,
        name: str,
        seen: Any,
        model: Callable[[], Awaitable[Any]],
        settings: TurnSettings | None = None,
        models: Iterable[object] = (),
    ) -> Any:
        """The answer of a model, from the record where it is there. `seen` is what the model is shown, as plain JSON.

        Its `"tools"` are the names of the offered tools. Raises `ContractError` for one with `redact=`.

        `models` are those that may be asked, for limits and budgets: names, or objects that state theirs.
        Leave clocks and ids of this process out of `seen`: a question that differs from the recorded one ends the run
        as diverged.
        """

        async def ask() -> Any:
            try:
                return await model()
            except Exception as error:
                if status_code(error) is None and _KEY.search(str(error)):
                    raise self.stop(_without_key(error)) from error
                raise

        known = self._scope.active.process.tools
        named = cast("Mapping[str, Any]", seen).get("tools", ()) if isinstance(seen, Mapping) else ()
        for offered in named:
            if (tool := known.get(offered)) is not None:
                check_offered(offered, tool.spec.redact)
        ask.__name__ = "model"
        given = settings or TurnSettings()
        decision = DecisionSettings(
            None, given.timeout, given.retry, msgspec.json.encode(seen, order="deterministic"),
            noted=given.differs == "note", models=tuple(named_model(one) for one in models if own_name(one)),
        )  # fmt: skip
        with self.step(name) as scope:
            return await decide(scope, decision, ask, (), {})


async def _outcome_of_call(scope: Scope, tool: Tool[..., Any], arguments: dict[str, Any]) -> Outcome[Any]:
    """Perform a call, or wait for the one that the host cancelled while it was under way and makes again."""
    # The host may offer it under another name, or it came after its question.
    check_offered(tool.name, tool.spec.redact)
    try:
        step = steps.left_by_host(scope, tool, arguments)
        if step is not None:
            return await outcome_of_left(scope, tool, step, arguments)
        return await outcome_of(tool, arguments, None, model=True)
    except ArgumentError as error:
        if scope.active.knows(scope.path):
            raise  # it was recorded once, and may have been sent: "nothing was changed" would be wrong
        return _misfit(f"{scope.active.run}/{scope.path.rstrip('/')}", tool, error)


def _misfit(name: str, tool: Tool[..., Any], error: Exception) -> Outcome[Any]:
    """The outcome of a call whose arguments cannot be used: its model chose them, and is told."""
    return Outcome("failed", name, tool.name, reason=str(error), code="bad_arguments")


def _without_key(error: Exception) -> UsageError:
    """The error for a model without a key: no record says that it failed, so the run can go on once it has one."""
    return UsageError(
        f"the model cannot be asked: {describe(error)}",
        known="nothing was sent",
        next_step="give the model its key, then resume the run",
    )


def has_own_result(outcome: Outcome[Any]) -> bool:
    """True if the call itself succeeded, with a result that is at hand; a model receives the rest as text."""
    return outcome.status == "succeeded" and not outcome.code and not outcome.reused


def name_calls(
    turn: str, calls: list[dict[str, Any]], field: str, prefix: str = "call_", before: Iterable[str] = ()
) -> None:
    """Give each call of a recorded answer an id in `field` that can name a step, and that no other call of it has.

    `before` are ids that the host does not accept a second time. Usable ids of the model stay. A new one follows from
    the turn and the place of the call, so it is the same after a crash; it has the letters and the length that the
    services of models accept. `prefix` marks it for its host.
    """
    taken: set[object] = set(before)
    for place, call in enumerate(calls):
        known: object = call.get(field)
        if not isinstance(known, str) or not can_name(known) or known in taken:
            call[field] = prefix + hashlib.sha256(f"{turn}/{place}".encode()).hexdigest()[:24]
        taken.add(call[field])


_ROOM: Final = 12
"""Characters that a name of a step keeps free for what is added to it: `-2`, `#2`, `.confirmed`."""


def fitting(name: str) -> str:
    """A name that adapters put together, at a length that names a step: its beginning, and a digest of the whole."""
    if len(name) <= NAME_LIMIT - _ROOM:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:24]
    return f"{name[: NAME_LIMIT - _ROOM - len(digest) - 1]}.{digest}"


_END: Final = object()


async def as_they_come(
    begin: Callable[[Callable[[Any], None]], Coroutine[Any, Any, Any]],
) -> AsyncGenerator[tuple[bool, Any]]:
    """The values that a coroutine shows while it works, each as `(False, value)`, and its result as `(True, value)`."""
    shown: asyncio.Queue[Any] = asyncio.Queue()
    work = asyncio.get_running_loop().create_task(begin(shown.put_nowait))
    work.add_done_callback(lambda _: shown.put_nowait(_END))
    try:
        while (value := await shown.get()) is not _END:
            yield False, value
        yield True, await work
    finally:
        work.cancel()


def _inside(context: contextvars.Context) -> contextvars.Context:
    """The context of a host inside the present operation or call of a model, which is outside of the run's code."""
    own = context.copy()
    own.run(AT.set, AT.get())
    own.run(SCOPE.set, None)
    return own


async def _in_context(context: contextvars.Context, body: Callable[[], Awaitable[Any]]) -> Any:
    """Await the body in that context; a call that is cancelled cancels the body."""

    async def run() -> Any:
        return await body()

    return await asyncio.get_running_loop().create_task(run(), context=context)


# --- tools from a schema ----------------------------------------------------------------------------------------------

_TYPES: Final[dict[str, Any]] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list[Any], "object": dict[str, Any],
}  # fmt: skip


def tool_from_schema(
    function: Callable[..., Any],
    *,
    name: str,
    parameters: Mapping[str, Any],
    description: str = "",
    late: bool = False,
    **clauses: Any,
) -> Tool[..., Any]:
    """A tool from a JSON schema of its parameters, with a function that takes them by keyword.

    The other clauses are those of `@tool`. `late` marks a tool whose body is only in the code of a host. Recovery
    settles its operations from their records, or waits for the host. Raises `ContractError` for a schema of anything
    but an object.
    """

    def called(**arguments: Any) -> Any:
        return function(**arguments)

    async def awaited(**arguments: Any) -> Any:
        return await function(**arguments)

    body: Callable[..., Any] = awaited if is_async(function) else called
    body.__name__ = body.__qualname__ = name
    body.__module__, body.__doc__ = getattr(function, "__module__", __name__), description or None
    body.__dict__[KNOWN_SHAPE] = _shape_from(name, parameters)
    made = tool(name=name, **clauses)(body)
    made.late = late
    return made


def late_tool(
    name: str, parameters: Mapping[str, Any], clauses: Mapping[str, Any], description: str = ""
) -> Tool[..., Any]:
    """A tool whose body comes with each call (`HostedRun.call_body`)."""
    return tool_from_schema(_no_body, name=name, parameters=parameters, description=description, late=True, **clauses)


def asking_tool(name: str, parameters: Iterable[str]) -> Tool[..., Any]:
    """A tool whose call asks people to approve its arguments, and sends nothing."""
    made = late_tool(name, schema_of(parameters), {"effect": "read"})
    made.asks_only = True
    return made.asking()


def schema_of(arguments: Iterable[str], parameters: Mapping[str, Any] = MappingProxyType({})) -> Mapping[str, Any]:
    """The schema of a tool that takes these arguments whatever its parameters say: the host judges them."""
    properties: dict[str, Any] = {**{one: {} for one in arguments}, **parameters.get("properties", {})}
    return {**parameters, "properties": properties, "required": []}


_MOST_DESCRIBED: Final = 1000
_DESCRIBED: Final[dict[tuple[str, str, bool], tuple[Any, Any, Tool[..., Any]]]] = {}
"""The last tool of each name, with the schema and the clauses that it was made from."""


def described_tool(
    name: str,
    parameters: Mapping[str, Any],
    clauses: Mapping[str, Any],
    *,
    arguments: Mapping[str, Any] | None = None,
    description: str = "",
    asked: bool = False,
) -> Tool[..., Any]:
    """A `late_tool` of a host, which describes its tools at each call: made once for each description.

    Given `arguments`, it takes these whatever its parameters say. `asked` gives it a gate that always asks. All calls
    share it, so nothing (such as a verifier) is declared on it.
    """
    schema = parameters if arguments is None else schema_of(arguments, parameters)
    which = name, description, asked
    schema_known, clauses_known, known = _DESCRIBED.get(which, (None, None, None))
    if known is not None and schema_known == schema and clauses_known == clauses:
        return known
    made = late_tool(name, schema, clauses, description)
    made = made.asking() if asked else made
    if len(_DESCRIBED) >= _MOST_DESCRIBED:
        _DESCRIBED.clear()
    _DESCRIBED[which] = copy.deepcopy(schema), dict(clauses), made
    return made


async def _no_body() -> None:
    """A placeholder for the missing body of a tool. It is never called."""


def _shape_from(name: str, given: object) -> Shape:
    shown = str(given)[:200]
    schema = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {"type": "none"})
    properties: object = schema.get("properties", {})
    required: object = schema.get("required", [])
    described = isinstance(properties, Mapping) and isinstance(required, list)
    if schema.get("type", "object") != "object" or not described:
        raise ContractError(
            f"tool {name}: its parameters are not a JSON schema of an object",
            known=f"the schema is {shown}",
            next_step='write {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}',
        )
    known = cast("Mapping[str, Any]", properties)
    types = {one: _type_of(part) for one, part in known.items()}
    named = [one for one in known if one.isidentifier() and not keyword.iskeyword(one)]
    return Shape(
        name=name,
        signature=Signature([Parameter(one, Parameter.KEYWORD_ONLY) for one in named]),
        positional=(),
        types=types,
        defaults={},
        required=frozenset(cast("list[str]", required)) & types.keys(),
        returns=Any,
        schema=dict(schema),
    )


def _type_of(part: object) -> Any:
    """The Python type of a property whose schema is one plain type; any JSON value for the rest."""
    kind: object = cast("Mapping[str, Any]", part).get("type") if isinstance(part, Mapping) else None
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any


def in_hosted_run(what: str) -> HostedRun:
    """The present run. Raises `OutsideRun`, which names what was called."""
    hosted = HostedRun.current()
    if hosted is None:
        raise OutsideRun(
            f"{what} was called outside a run, so nothing of it could be recorded",
            known="nothing was sent",
            next_step="call it in an @agent function that Beforehand runs",
        )
    return hosted
