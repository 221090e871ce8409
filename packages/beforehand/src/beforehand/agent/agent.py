"""`@agent`: an ordinary async function that the runtime can resume."""

from __future__ import annotations

import functools
import inspect
import string
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Generic, TypeGuard, TypeVar, cast, get_type_hints, overload

from beforehand.agent.run import Run
from beforehand.agent.signatures import shape_of
from beforehand.agent.tool import Tool
from beforehand.engine.active_run.scopes import Scope
from beforehand.engine.claims import check_claims_of_code
from beforehand.engine.tool_protocol import Input
from beforehand.errors import (
    AmbiguousStep,
    ContractError,
    JournalError,
    NameClash,
    OutsideRun,
    ReplayDiverged,
    UsageError,
)
from beforehand.model.canonical.decode import restore
from beforehand.model.canonical.encode import canonical, digest
from beforehand.model.ids import NAME_LIMIT, can_name, checked_run_id
from beforehand.model.system import is_system
from beforehand.model.tool_spec import Shape, classes_of, is_class
from beforehand.model.values import ResultCodec, codec_for
from beforehand.policies import RunBudget, milliseconds

T = TypeVar("T")
R = TypeVar("R")
AnyTool = Tool[Any, Any]
OnError = Callable[[Run, Any, Exception], Coroutine[Any, Any, Any]]
_INPUT: Final = "input"


class Agent(Generic[T, R]):
    """An agent: a function of a run and one input. Start it with `desk.run(agent, input)`."""

    def __init__(
        self,
        function: Callable[[Run, T], Coroutine[Any, Any, R]],
        *,
        run_id: str | None,
        tools: tuple[AnyTool, ...] | None,
        version: str,
        deadline: timedelta | None,
        name: str | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self.name = name or function.__name__
        self.program = "" if is_system(self.name) else program_of(function)
        """The program that the agent belongs to. Agents of the same name in two programs are different agents."""
        self.version = version
        self.deadline_ms = None if deadline is None else milliseconds(deadline)
        self.template = run_id
        self.requires: tuple[str, ...] = ()
        """The tools whose effects must be in place when a run completes."""
        self.budget: RunBudget | None = None
        """The limits of each run that is started without limits of its own."""
        self.on_error: OnError | None = None
        """The function that ends a run whose code raised, in place of a stop."""
        self.declared_tools = tools
        shape = shape_of(function, "agent")
        self.input_type: Any = _input_type(shape, self.name)
        self._input_classes = classes_of(self.input_type)
        self.codec: ResultCodec = codec_for(_result_type(function))
        self.where = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        if run_id is not None:
            _check_template(run_id, self.input_type, tuple(shape.types)[1], self.name)

    def __repr__(self) -> str:
        """The agent's name."""
        return f"<agent {self.name}>"

    def __call__(self, run: Run, given: T, /) -> Coroutine[object, object, R]:
        """Raise `OutsideRun`: only an app starts agents, so that it can record what they do."""
        raise OutsideRun(
            f"the agent {self.name} was called directly",
            known=f"it was given {type(run).__name__} and {type(given).__name__}",
            next_step=f"run it with: desk.run({self.name}, input), "
            f"or {self.name}.__wrapped__(run, input) inside another run",
        )

    @property
    def tools(self) -> tuple[AnyTool, ...]:
        """The agent's declared tools, otherwise those that are visible in its module."""
        if self.declared_tools is not None:
            return self.declared_tools
        module = sys.modules.get(self.__wrapped__.__module__)
        seen = {**vars(module)} if module is not None else dict[str, Any]()
        # A file that a profiler or a notebook runs has its own names, whatever module `sys.modules` holds by its name.
        seen.update(getattr(inspect.unwrap(self.__wrapped__), "__globals__", {}))
        seen.update(_closure(self.__wrapped__))
        found = {id(value): value for value in seen.values() if _is_tool(value)}
        return tuple(found.values())

    def run_id_for(self, given: T) -> str:
        """The run's id, from the template. Raises `UsageError` if the agent has none."""
        if self.template is None:
            raise UsageError(
                f"the agent {self.name} does not say how its runs are named",
                next_step=f'declare @agent(run_id="{self.name}-{{input.id}}"), or pass run_id=',
            )
        name = self.named(self.template, given, "the run id", "pass run_id=")
        return checked_run_id(name, next_step="change the run_id template of the agent, or pass run_id=")

    def named(self, template: str, given: T, what: str, otherwise: str) -> str:
        """A template filled with the fields of this input. Raises `UsageError` for a field that the input lacks."""
        try:
            return _fill(template, given)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            self._check(given)
            raise UsageError(
                f"{what} {template!r} of agent {self.name} cannot be made from this input: {error}",
                next_step=f"give the input that field, or {otherwise}",
            ) from error

    def stored_input(self, given: T, secret: bytes) -> Input:
        """The input as it is recorded.

        Raises `UsageError` if it is of another class than the agent takes, and `ArgumentError` if it has no canonical
        form.
        """
        self._check(given)
        form = canonical({_INPUT: given})
        return Input(form, digest(secret, form), budget=self.budget)

    def _check(self, given: T) -> None:
        if not isinstance(given, self._input_classes):
            raise UsageError(
                f"this input does not fit the agent {self.name}: it is of the type {type(given).__name__}",
                next_step=f"it takes {getattr(self.input_type, '__name__', self.input_type)}",
            )

    def parse_input(self, text: bytes) -> T:
        """An input from JSON text (a file, a command line). Raises `UsageError` that names the invalid part."""
        try:
            return codec_for(self.input_type).decode(text)  # type: ignore[return-value]  # decoded by T's own annotation
        except ValueError as error:
            why = error.__cause__ or error  # without the advice about stored results
            raise UsageError(
                f"this input does not fit the agent {self.name}: {why}",
                next_step=f"it takes {getattr(self.input_type, '__name__', self.input_type)}",
            ) from error

    def begin(self, scope: Scope, stored_input: bytes) -> Coroutine[Any, Any, R]:
        """The coroutine of one instance."""
        given = restore(stored_input, {_INPUT: self.input_type})[_INPUT]
        if self.on_error is not None:
            return self._guarded(self.on_error, Run(scope), given)
        return self.__wrapped__(Run(scope), given)  # type: ignore[arg-type]  # restored by T's own annotation

    async def _guarded(self, on_error: OnError, run: Run, given: Any) -> R:
        """The result of the code, or of `on_error` where it raised. What no code can mend is raised as it is."""
        try:
            result = await self.__wrapped__(run, given)
            await check_claims_of_code(run.scope(), self.requires, result)
        except (ReplayDiverged, AmbiguousStep, JournalError):
            raise
        except Exception as error:  # noqa: BLE001 - this is where the author says what becomes of any exception
            result = await on_error(run, given, error)
        return result


class _Decorator:
    """The decorator that `@agent(...)` returns."""

    def __init__(
        self, settings: Mapping[str, Any], requires: tuple[str, ...] = (), program: str | None = None,
        on_error: OnError | None = None, budget: RunBudget | None = None,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._budget = budget
        self._on_error = on_error
        self._requires = requires
        self._program = program

    def __call__(self, function: Callable[[Run, T], Coroutine[Any, Any, R]], /) -> Agent[T, R]:
        """Declare `function`. Raises `ContractError` unless it is async and takes a run and one input."""
        name = self._settings["name"] or getattr(function, "__name__", repr(function))
        if not can_name(name):
            raise ContractError(
                f"{name[:NAME_LIMIT]!r} cannot name an agent",
                next_step=f"use name= with 1 to {NAME_LIMIT} printable characters without / ~ and #",
            )
        if self._program is not None and not can_name(self._program):
            raise ContractError(
                f"{self._program[:NAME_LIMIT]!r} cannot name a program",
                next_step=f"use program= with 1 to {NAME_LIMIT} printable characters without / ~ and #",
            )
        if not inspect.iscoroutinefunction(function):
            raise ContractError(
                f"the agent {name} is not async", next_step=f"write: async def {name}(run: Run, ...) -> ..."
            )
        if len(inspect.signature(function).parameters) != 2:
            raise ContractError(
                f"the agent {name} does not take a run and one input",
                next_step=f"write: async def {name}(run: Run, ticket: Ticket) -> ...; "
                "put several values into one class",
            )
        made = Agent(function, **self._settings)
        if self._on_error is not None and not _takes_an_error(self._on_error):
            raise ContractError(
                f"on_error= of agent {name} is not an async function of three parameters",
                next_step="write: async def on_error(run: Run, given: ..., error: Exception) -> ...",
            )
        if self._budget is not None and not isinstance(self._budget, RunBudget):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
            raise ContractError(
                f"budget={self._budget!r} of agent {name} is not a RunBudget",
                next_step="from beforehand.policies import RunBudget, and write: budget=RunBudget(tokens=50_000)",
            )
        made.requires, made.on_error, made.budget = self._requires, self._on_error, self._budget
        made.program = self._program or made.program
        return made


@overload
def agent(function: Callable[[Run, T], Coroutine[Any, Any, R]], /) -> Agent[T, R]: ...
@overload
def agent(
    *,
    run_id: str | None = None,
    tools: Iterable[AnyTool] | None = None,
    version: str = "",
    deadline: timedelta | None = None,
    name: str | None = None,
    program: str | None = None,
    requires: Iterable[AnyTool | str] = (),
    budget: RunBudget | None = None,
    on_error: OnError | None = None,
) -> _Decorator: ...
def agent(
    function: Callable[[Run, T], Coroutine[Any, Any, R]] | None = None,
    /,
    *,
    run_id: str | None = None,
    tools: Iterable[AnyTool] | None = None,
    version: str = "",
    deadline: timedelta | None = None,
    name: str | None = None,
    program: str | None = None,
    requires: Iterable[AnyTool | str] = (),
    budget: RunBudget | None = None,
    on_error: OnError | None = None,
) -> _Decorator | Agent[T, R]:
    """Declare an agent. Without arguments, the caller that starts a run names it.

    - `run_id`: the template of a run's id, filled from the input: `"ticket-{ticket.id}"`. The same id is the same run.
    - `tools`: the tools that the agent may use; by default those that are visible in its module.
    - `version`: your name for this version of the code. It is recorded with each run.
    - `deadline`: the longest duration of a run. After it nothing more is sent, and no model asked.
    - `program`: the program that the agent belongs to, by default the module that defines it (`shop.desk`). Only that
      program's workers drive its runs, so two programs may have agents with the same name. Declare the former name if
      the module is moved or renamed, and different names if two programs have modules with the same name.
    - `requires`: tools (or their names) whose effects must be in place when a run completes. A run that returns
      without them, or with a foreign `Receipt`, raises `ClaimUnproven`, which names what is missing.
    - `budget`: the limits of each run: tokens, model calls, effects and cost. A run may be started with others.
    - `on_error`: an async function of the run, its input and the exception that its code raised. Its steps are recorded
      like others, and its result becomes the result of the run. Without `on_error`, or if the function raises, the run
      is stopped and appears in the inbox. It does not receive a divergence, an error of the journal, or a bug in the
      code of a model.
    """
    chosen = tuple(tools) if tools is not None else None
    required = tuple(one if isinstance(one, str) else one.name for one in requires)
    settings = {"run_id": run_id, "tools": chosen, "version": version, "deadline": deadline, "name": name}
    decorator = _Decorator(settings, required, program, on_error, budget)
    return decorator if function is None else decorator(function)


def _takes_an_error(function: object) -> bool:
    return inspect.iscoroutinefunction(function) and len(inspect.signature(function).parameters) == 3


def _input_type(shape: Shape, name: str) -> Any:
    parameter = tuple(shape.types)[1]
    kind = shape.types[parameter]
    if kind is Any and shape.signature.parameters[parameter].annotation is inspect.Parameter.empty:
        raise ContractError(
            f"the input of agent {name} has no annotation",
            next_step="annotate it, so that recorded inputs can be read back: "
            f"{parameter}: dict[str, str], or a dataclass",
        )
    return kind


def _result_type(function: Callable[..., Any]) -> Any:
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):
        return Any
    return hints.get("return", Any)


def _check_template(template: str, kind: Any, parameter: str, name: str) -> None:
    """Refuse templates that name fields which the input type does not have."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise ContractError(f"the run id {template!r} of agent {name} cannot be read: {error}") from error
    for field in fields:
        first = field.partition(".")[2].partition(".")[0].partition("[")[0]
        known = _fields(kind)
        root = field.partition(".")[0].partition("[")[0]
        if not first and root != parameter and known is not None and root in known:
            raise ContractError(
                f"the run id {template!r} of agent {name} names {root!r}, which is a field of its input",
                next_step=f"name the input first: {{{parameter}.{root}}}",
            )
        if first and known is not None and first not in known:
            raise ContractError(
                f"the run id {template!r} of agent {name} names {first!r}, which its input does not have",
                known=f"fields: {', '.join(sorted(known))}",
            )
    if "{" not in template:
        raise ContractError(
            f"the run id {template!r} of agent {name} is the same for every input",
            next_step='name a field of the input: run_id="ticket-{ticket.id}"',
        )


def _fields(kind: object) -> frozenset[str] | None:
    """The names that values of this type have; None if that cannot be known."""
    if not is_class(kind) or issubclass(kind, dict) or not getattr(kind, "__annotations__", None):
        return None
    known: set[str] = set()
    for base in kind.__mro__:
        known |= set(getattr(base, "__annotations__", {})) | set(vars(base))
    return frozenset(known)


def _fill(template: str, given: Any) -> str:
    """The template with the input's fields. Every placeholder's first name stands for the input itself."""
    parts: list[str] = []
    for text, path, spec, conversion in _parts_of(template):
        parts.append(text)
        if path is not None:
            value = functools.reduce(_get, path, given)
            shown = str(value) if conversion != "r" else repr(value)
            parts.append(format(shown, spec))
    return "".join(parts)


@functools.lru_cache(maxsize=256)  # a queue has one key template for all of its runs
def _parts_of(template: str) -> tuple[tuple[str, list[str] | None, str, str | None], ...]:
    """The texts of a template, each with the path, the format and the conversion of the placeholder behind it."""
    return tuple(
        (text, None if field is None else field.replace("[", ".").replace("]", "").split(".")[1:], spec or "", how)
        for text, field, spec, how in string.Formatter().parse(template)
    )


def _get(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)[name]
    return value[int(name)] if name.isdecimal() else getattr(value, name)


def _is_tool(value: object) -> TypeGuard[AnyTool]:
    return isinstance(value, Tool)


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that a function defined inside another one can see there, and those that these functions see."""
    found: dict[str, Any] = {}
    pending, looked = [function], {function}
    while pending:
        nonlocals = inspect.getclosurevars(pending.pop()).nonlocals
        found.update(nonlocals)
        inner = {value for value in nonlocals.values() if inspect.isfunction(value)} - looked
        pending.extend(inner)
        looked |= inner
    return found


# --- the program that an agent belongs to -----------------------------------------------------------------------------


TYPED: Final = "__main__"
"""The program of code that is in no file: a notebook, a prompt, `python -c`."""
_PACKAGE_FILES: Final = ("__init__.py", "__init__.pyc")
_OF_A_PACKAGE: Final = frozenset({"__main__", "__init__"})


def program_of(function: Callable[..., Any]) -> str:
    """The dotted name of the module that defines `function`; its text fits a record, whatever the file is called."""
    # Not from `sys.modules`: a file that a profiler or a notebook runs has its own names.
    names: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    file = names.get("__file__")
    name = _name_of_file(Path(file)) if isinstance(file, str) else str(names.get("__name__", TYPED))
    return name.encode("utf-8", "replace").decode()[-NAME_LIMIT:] or TYPED


def _name_of_file(path: Path) -> str:
    """`shop.desk` for a file in the package `shop`, `desk` for one in no package, and the package for its own files.

    The climb ends at a directory that cannot be imported: its name may be that of a deployment.
    """
    path = path.absolute()
    parts, directory = ([] if path.stem in _OF_A_PACKAGE else [path.stem]), path.parent
    while directory.name.isidentifier() and any((directory / file).is_file() for file in _PACKAGE_FILES):
        parts.insert(0, directory.name)
        directory = directory.parent
    return ".".join(parts) or path.parent.stem or TYPED


# --- an app's agents and tools ----------------------------------------------------------------------------------------


AnyAgent = Agent[Any, Any]


def named_run(agent: AnyAgent | str, given: Any, run_id: str | None, known: Iterable[str], what: str = "run_id") -> str:
    """The id of a run: the one that the argument `what` gives, or the one that the agent makes. Raises `UsageError`."""
    if not isinstance(agent, Agent):
        here = ", ".join(sorted(name for name in known if not is_system(name)))
        raise UsageError(
            f"{agent!r} is not an agent",
            known=f"nothing was stored; the agents of this app are {here or 'none'}",
            next_step="give the object that @agent(...) declares, and not its name",
        )
    if run_id is None:
        return agent.run_id_for(given)
    return checked_run_id(run_id, f"{what}=", f"give a {what} of these characters; without one, the agent makes it")


def gather_agents(agents: Iterable[AnyAgent]) -> dict[str, AnyAgent]:
    """Agents by name. Raises `NameClash` naming both places, `ContractError` for a name that the runtime reserves."""
    found: dict[str, AnyAgent] = {}
    for one in agents:
        if not isinstance(one, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
            raise ContractError(
                f"{one!r} is not an agent", next_step="declare it with @agent(...) on an async function"
            )
        if is_system(one.name):
            raise ContractError(f"the agent {one.name!r} has a name that the runtime reserves", next_step="rename it")
        other = found.setdefault(one.name, one)
        if not _same(other, one):
            raise _clash("agents", one.name, other.where, one.where)
    return found


def gather_tools(agents: Iterable[AnyAgent], extra: Iterable[AnyTool]) -> dict[str, AnyTool]:
    """The tools of these agents, and `extra`. A function that is declared again replaces its earlier declaration."""
    found: dict[str, AnyTool] = {}
    given = [*(tool for agent in agents for tool in agent.tools), *extra]
    for one in (*given, *(other for tool in given if isinstance(tool, Tool) for other in tool.companions.values())):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
        if not isinstance(one, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
            raise ContractError(f"{one!r} is not a tool", next_step="declare it with @tool")
        other = found.get(one.name)
        if other is not None and not _same(other, one):
            raise _clash("tools", one.name, other.where, one.where)
        if one.contract.expects and not one.contract.verifies:
            raise ContractError(
                f"tool {one.name} declares expected evidence, but no verifier reads it",
                next_step=f"register @{one.name}.verify(...), or drop @{one.name}.expect",
            )
        found[one.name] = one
    return found


def _same(one: AnyAgent | AnyTool, other: AnyAgent | AnyTool) -> bool:
    """The same module and qualified name: a cell run again, or a reload."""
    ours, theirs = one.__wrapped__, other.__wrapped__
    return (ours.__module__, ours.__qualname__) == (theirs.__module__, theirs.__qualname__)


def _clash(what: str, name: str, first: str, second: str) -> NameClash:
    return NameClash(
        f"two {what} of this app are named {name!r}",
        known=f"one at {first}, one at {second}",
        next_step="give one of them another name with name=",
    )
