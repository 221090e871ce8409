"""Shared parts of all commands: their options, and the journal they open for as long as they need it."""

from __future__ import annotations

import getpass
import inspect
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from beforehand.cli.config import existing_journal, journal_address, named_by
from beforehand.cli.screen import Screen
from beforehand.errors import BeforehandError
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.text import marked, safe
from beforehand.journal.port import Reader

if TYPE_CHECKING:
    from beforehand.control.service import ControlService
    from beforehand.engine.tool_protocol import AgentCode, ToolCode

T = TypeVar("T")
_POLICY: Final = "beforehand.policy"


class CommandCall:
    """One call of a command: its journal, its policy, and its output."""

    def __init__(self, journal: str | None, *, as_json: bool, policy: str | None = None) -> None:
        self.journal: Final = journal
        self.policy: Final = policy
        self.screen: Final = Screen(as_json=as_json, journal=named_by(journal) if journal else "")
        self._distrust_noted = False

    @asynccontextmanager
    async def reader(self, *, tells_doubts: bool = True) -> AsyncGenerator[JournalReader]:
        """Open the journal to read it. It has to exist; a read-only or distrusted one is reported."""
        async with self.with_raw_reader(tells_doubts=tells_doubts) as (reader, _):
            yield reader

    @asynccontextmanager
    async def with_raw_reader(self, *, tells_doubts: bool = True) -> AsyncGenerator[tuple[JournalReader, Reader]]:
        """As `reader`, with the raw one beside it: for commands about the journal as a whole."""
        journal = existing_journal(self.journal).reader()
        identity = await journal.open()
        for notice in identity.notices if identity.untouched else ():
            logging.getLogger("beforehand").warning(notice)
        if tells_doubts and identity.trust == "distrustful" and not self._distrust_noted:
            self._distrust_noted = True
            self.screen.note(("This journal is not trusted", "yellow"), f": {identity.reason}. Next: beforehand doctor")
        try:
            yield JournalReader(journal, identity), journal
        finally:
            await journal.close()

    def read(self, question: Callable[[JournalReader], Coroutine[Any, Any, T]]) -> T:
        """The answer of the open journal to a question. An event loop, half of the time, only where its reads wait."""

        async def answered() -> T:
            async with self.reader() as reader:
                return await question(reader)

        waits = existing_journal(self.journal).reads_wait
        return wait_for(answered()) if waits else without_waiting(answered())

    @asynccontextmanager
    async def serving(
        self,
        tools: Mapping[str, ToolCode] = MappingProxyType({}),
        agents: Mapping[str, AgentCode] = MappingProxyType({}),
        *,
        create: bool = False,
        private_webhooks: bool = False,
    ) -> AsyncGenerator[ControlService]:
        """Open the journal to give commands, in the name of the person who types them.

        No code is needed for that; `tools` and `agents` are the code at hand.
        """
        # The engine is imported here: a command that only reads starts without it.
        from beforehand.control.service import ControlService  # noqa: PLC0415 - see above
        from beforehand.engine.engine import Engine  # noqa: PLC0415 - as above
        from beforehand.engine.environment import system_environment  # noqa: PLC0415 - as above
        from beforehand.engine.settings import Settings  # noqa: PLC0415 - as above
        from beforehand.journal import host  # noqa: PLC0415 - as above

        address = journal_address(self.journal) if create else existing_journal(self.journal)
        settings = Settings(private_webhooks=private_webhooks)
        engine = Engine(address.journal(), system_environment(), settings, tools, agents, host.this_process)
        try:
            await engine.open()
        except BaseException:
            await engine.journal.close()
            raise
        try:
            yield ControlService(engine, via="typed")
        finally:
            await engine.close()


def command(name: str, *, examples: tuple[str, ...]) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with `--journal` and `--json`, whose function is given a `CommandCall` first.

    The function may be async; what it returns is the exit status.
    """

    def declare(function: Callable[..., Any]) -> click.Command:
        def body(journal: str | None, as_json: bool, **options: Any) -> int | None:
            logger = logging.getLogger("beforehand")
            if not logger.handlers:
                logger.addHandler(_Remarks(logging.WARNING))
            context = click.get_current_context()
            call = CommandCall(journal or context.find_root().obj, as_json=as_json, policy=context.meta.get(_POLICY))
            try:
                result: Any = function(call, **options)
                status: int | None = wait_for(result) if inspect.iscoroutine(result) else result
                sys.stdout.flush()
            except BeforehandError as error:
                error.next_step = call.screen.located(error.next_step)
                raise
            except BrokenPipeError:  # `beforehand show RUN | head`: no reader is left
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return None
            return status

        shown = "\n".join(f"  {line}" for line in examples)
        body.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n\b\nExamples:\n{shown}"
        own: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))  # where click keeps them
        shared = [
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON document and nothing else."),
            click.Option(["--journal"], metavar="PATH", help="The journal; `beforehand --help` says which else."),
        ]
        declared: click.Command = click.command(name, params=[*own, *shared])(body)
        return declared

    return declare


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it to its end in a loop of its own."""
    import asyncio  # noqa: PLC0415 - half of the time in which a list is there

    return asyncio.run(coroutine)


def without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to its end what never suspends, without an event loop: the reads of a journal whose `reads_wait` is false."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    coroutine.close()
    raise RuntimeError("this waits for something: it needs a loop")


def login_name() -> str:
    """The name of the person who gives a command, unless `--by` gives one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"


def by_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--by NAME`: the person who gives the command."""

    def named(_context: click.Context, _parameter: click.Parameter, by: str) -> str:
        from beforehand.control.input_checks import checked_by  # noqa: PLC0415 - a command that reads needs none of it

        return checked_by(by)

    about = "Your name; your login name if not given."
    return click.option("--by", metavar="NAME", default=login_name, callback=named, help=about)(function)


def policy_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--policy FILE`: the escalation policy by which operations are judged. It is found in `Call.policy`."""

    def keep(context: click.Context, _parameter: click.Parameter, named: str | None) -> None:
        context.meta[_POLICY] = named

    about = "The escalation policy, a file or installed:NAME; by default the project's."
    return click.option("--policy", metavar="FILE", expose_value=False, callback=keep, help=about)(function)


class _Remarks(logging.Handler):
    """Remarks of the runtime, on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(safe(marked(f"beforehand: {record.getMessage()}"), lines=True), err=True)
