"""`beforehand dev`: a worker and the web inbox in one process, started anew whenever a file of the program changes.

A changed program is not patched into the running one. The process suspends its runs as at any shutdown and replaces
itself (`execv`), so that what runs afterwards is what a fresh start would run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from beforehand.agent.agent import Agent
from beforehand.cli.apps import AnyAgent, Beforehand, app_of, ending_by_signal, load_targets, reach_of, reach_option
from beforehand.cli.common import CommandCall, by_option, command, policy_option, wait_for
from beforehand.cli.config import policy_source, project_settings, project_targets, shown_path
from beforehand.cli.exit_status import DONE, problem_of, tell
from beforehand.cli.inbox import show_item
from beforehand.cli.worker import WorkerLoop, drive_until
from beforehand.engine.environment import DaemonThreads
from beforehand.errors import BeforehandError, UsageError
from beforehand.extensions import extension, has_extension
from beforehand.installation import console_command
from beforehand.model.shell import to_type
from beforehand.people.items import items

if TYPE_CHECKING:
    from beforehand.control.service import ControlService

    ServeInbox = Callable[[ControlService, int, str, Callable[[str], None]], Coroutine[Any, Any, None]]

_PART: Final = "dev.inbox"
_LOOK_S: Final = 0.5
"""How often the files are looked at. Their times are compared: that works on every file system, and for dozens of files
it costs less than a millisecond."""
_SLOW_S: Final = 3
"""After this time a person is told that the code is still loading."""


class DevOptions(msgspec.Struct, frozen=True):
    """The options of the command. `by` is the name of the person who answers in the web inbox."""

    port: int
    no_inbox: bool
    concurrency: int
    by: str
    reach: str | None = None


@command(
    "dev",
    examples=("beforehand dev desk.py", "beforehand dev desk.py:refund_desk --port 8800", "beforehand dev --no-inbox"),
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="Port of the web inbox.")
@click.option("--no-inbox", is_flag=True, help="Do not serve the web inbox.")
@click.option("--concurrency", default=20, show_default=True, metavar="N", type=click.IntRange(1), help="Runs at once.")
@policy_option
@reach_option
@by_option
def dev(call: CommandCall, targets: tuple[str, ...], **options: Any) -> int:
    """Develop agents: drive their runs, serve the web inbox, and reload when a file changes.

    TARGETs are the agents, as for `beforehand worker`; a file alone names the agents
    in it. The web inbox is on this machine only, and needs beforehand-console. A reload
    suspends what runs and continues it with the new code.
    """
    if wait_for(_develop(call, targets, msgspec.convert(options, DevOptions))):
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very command, no shell
    return DONE


async def _develop(call: CommandCall, targets: tuple[str, ...], options: DevOptions) -> bool:
    """Drive and serve until a signal comes or a file changes. True if a file changed. Raises `UsageError`."""
    agents: dict[str, AnyAgent] = {}
    files = SourceFiles(_of_targets(targets))  # before they are read: a change while they load is one, too
    app: Beforehand | None = None
    shift: WorkerLoop | None = None
    async with AsyncExitStack() as opened:
        stop = opened.enter_context(ending_by_signal())
        try:
            targets = targets or tuple(project_targets())
            files.watch(_of_targets(targets))
            if (loaded := await _loaded(call, targets, files, stop)) is None:
                return True
            agents = loaded
            files.watch((*_own_modules(), *_settings_files(call, options.reach)))
            if targets:  # the settings are read once more to open it, and a file may break at any moment
                app = await opened.enter_async_context(
                    app_of(call, agents.values(), create=True, reach=reach_of(options.reach))
                )
                shift = WorkerLoop(call, app, options.concurrency)  # reads the settings of the monitors, too
        except BeforehandError as error:
            tell(call.screen, problem_of(error))
            call.screen.note(("Waiting for a file to change. Press Ctrl-C to end.", "dim"))
            files.watch(_own_modules(), beside=_of_targets(targets))
            return await _changed(call, files, stop)
        if app is None or shift is None:
            raise UsageError("dev needs the agents to drive", next_step="beforehand dev desk.py:refund_desk")
        call.screen.note(("Driving ", "bold"), f"{', '.join(app.agents)}. A changed file reloads it. Ctrl-C ends it.")
        for target, agent in agents.items():
            given = msgspec.json.encode(sample(agent)).decode()
            call.screen.next(f"in another terminal: {to_type('run', target, given)}")
        async with _beside(_inbox(call, app, options), _report_items(call, app)):
            changing = asyncio.create_task(_changed(call, files, stop))
            await drive_until(shift, app, stop)
            await app.engine.shut_down(list(shift.tasks.values()))
            stop.set()
        if shift.failed is not None:
            raise shift.failed
        return await changing


async def _loaded(
    call: CommandCall, targets: tuple[str, ...], files: SourceFiles, stop: asyncio.Event
) -> dict[str, AnyAgent] | None:
    """The agents by their targets; None where a file changed while their code was loading. Raises `UsageError`.

    Code at module level may never end: the thread that loads it is left behind by the next start, or by the end of
    the process, which waits for no thread then.
    """
    loading = DaemonThreads().call(lambda: load_targets(targets))
    await asyncio.wait({loading}, timeout=_SLOW_S)
    if loading.done():
        return loading.result()
    call.screen.note(("Still loading ", "yellow"), f"{', '.join(targets)}: its code at module level has not ended.")
    changing = asyncio.create_task(_changed(call, files, stop))
    both: set[asyncio.Future[Any]] = {loading, changing}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not changing.done():
        changing.cancel()
        return loading.result()
    if not changing.result():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(DONE)  # nothing is open yet
    return None


@asynccontextmanager
async def _beside(*bodies: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run these beside the block. An error of one ends the block and is raised; they end with it."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(body) for body in bodies]
            yield
            for task in tasks:
                task.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


# --- what is shown ---------------------------------------------------------------------------------------------------


async def _inbox(call: CommandCall, app: Beforehand, options: DevOptions) -> None:
    """Serve the web inbox where it is installed. Raises `UsageError` where it cannot listen."""
    if options.no_inbox:
        return
    if not has_extension("beforehand.command_parts", _PART):
        call.screen.note(("No web inbox: ", "yellow"), f"it is not installed. Next: {console_command()}")
        return
    serve: ServeInbox = extension("beforehand.command_parts", _PART, "the web inbox")
    await serve(app.service, options.port, options.by, lambda text: call.screen.note(("The inbox: ", "bold"), text))


async def _report_items(call: CommandCall, app: Beforehand) -> None:
    """Show each item that comes to wait for a person, with the commands that answer it."""
    shown: set[str] = set()
    clock = app.engine.environment.clock
    while True:
        waiting = {one.item: one for one in await items(app.service.reader)}
        for name in waiting.keys() - shown:
            show_item(call.screen, waiting[name], clock.wall_ms())
        shown = set(waiting)
        await clock.sleep(_LOOK_S)


def sample(agent: Agent[Any, Any]) -> object:
    """An input that fits the agent: the shape is right, and the values mean nothing."""
    try:
        schema = msgspec.json.schema(agent.input_type)
    except (TypeError, RuntimeError):  # msgspec knows no schema of it
        return {}
    return _sample_of(schema, schema.get("$defs", {}))


_SAMPLES: Final[Mapping[str, object]] = {
    "integer": 1, "number": 1, "boolean": True, "null": None, "date": "2030-01-31", "date-time": "2030-01-31T12:00:00Z",
}  # fmt: skip
"""A value of each type and format; of any other a short text."""


def _sample_of(schema: Mapping[str, Any], known: Mapping[str, Any]) -> object:
    if "$ref" in schema:
        return _sample_of(known[schema["$ref"].rpartition("/")[2]], known)
    if "anyOf" in schema:
        return _sample_of(schema["anyOf"][0], known)
    fixed = [schema[key] for key in ("default", "const") if key in schema] or schema.get("enum", [])
    if fixed:
        return fixed[0]
    kind = schema.get("type", "")
    if kind == "object":
        return {name: _sample_of(schema["properties"][name], known) for name in schema.get("required", [])}
    if kind == "array":
        return [_sample_of(one, known) for one in schema.get("prefixItems", [])]
    return _SAMPLES.get(schema.get("format", kind), "A-1")


# --- the files of the program ----------------------------------------------------------------------------------------


class SourceFiles:
    """The files whose change means that the program changed, each as it was when its watch began."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._state: dict[Path, tuple[int, int] | None] = {}
        self._directories: set[Path] = set()
        self.watch(paths)

    def watch(self, paths: Iterable[Path], *, beside: Iterable[Path] = ()) -> None:
        """Watch more files. A new Python file next to one of `beside` counts: one that failed to load may miss it."""
        for path in paths:
            self._state.setdefault(path, _state_of(path))
        self._directories.update(path.parent for path in beside if path.suffix == ".py")

    def changed(self) -> list[Path]:
        """The files that are other than they were, or new, or gone."""
        new = {path for directory in self._directories for path in directory.glob("*.py")} - self._state.keys()
        return sorted(new | {path for path, state in self._state.items() if _state_of(path) != state})


def _state_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None  # while an editor replaces it; it is a change either way
    return found.st_mtime_ns, found.st_size


def _own_modules() -> set[Path]:
    """The files of the imported modules that are in no environment and no standard library."""
    libraries = {Path(directory).resolve() for directory in (sys.prefix, sys.base_prefix)}
    files = {
        Path(file).resolve()
        for module in list(sys.modules.values())
        if isinstance(file := getattr(module, "__file__", None), str)
    }
    return {file for file in files if not libraries.intersection(file.parents) and "site-packages" not in file.parts}


def _of_targets(targets: Iterable[str]) -> list[Path]:
    """The files that targets name, those beside them (one that failed to load may have failed in any), and settings."""
    named = [Path(one.rpartition(":")[0] if not one.endswith(".py") else one).resolve() for one in targets]
    beside = [one for path in named if path.suffix == ".py" for one in path.parent.glob("*.py")]
    here = Path.cwd()
    return [*named, *beside, *(directory / "pyproject.toml" for directory in (here, *here.parents))]


def _settings_files(call: CommandCall, reach: str | None) -> list[Path]:
    directory, _ = project_settings(Path.cwd())
    named = (policy_source(call.policy), reach_of(reach), directory / "pyproject.toml")
    return [Path(one) for one in named if one is not None]


async def _changed(call: CommandCall, files: SourceFiles, stop: asyncio.Event) -> bool:
    """Wait until a file changes, and set `stop`: True; or until `stop` is set: False."""
    while not stop.is_set():
        if changed := files.changed():
            call.screen.note(("Reloading", "bold"), f": {', '.join(map(shown_path, changed[:3]))} changed.")
            stop.set()
            return True
        try:
            await asyncio.wait_for(stop.wait(), _LOOK_S)
        except TimeoutError:
            continue
    return False
