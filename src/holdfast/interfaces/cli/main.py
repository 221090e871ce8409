"""`holdfast`: the command line. Commands are imported when they are called, so that `--help` is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from holdfast.errors import HoldfastError

# name -> the module of this package that holds it, and what it is for. In the order of a working day.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("playing", "Watch a refund desk survive kills, with and without Holdfast."),
    "run": ("driving", "Run an agent on one input, or on a file of them."),
    "worker": ("driving", "Drive what is due: abandoned runs, retries, timers."),
    "resume": ("driving", "Let a run go on, reopening it if it stopped."),
    "ps": ("reading", "List the runs."),
    "show": ("reading", "Show the timeline of a run, or its state at a step."),
    "why": ("reading", "Explain what is known about one operation."),
    "plan": ("planning", "Look at a plan before it runs: show, check, dry-run, schema."),
    "policy": ("policies", "Look at an escalation policy: show, check, test, dry-run."),
    "resolve": ("ordering", "Say what happened to an operation that no rule could decide."),
    "transaction": ("undoing", "Decide about a parked transaction, or call one off."),
    "undo": ("undoing", "Undo a finished run: compensate what it did."),
    "inbox": ("inbox", "List what waits for a person, or go through it with keys."),
    "answer": ("answering", "Answer a question, or say yes or no to an operation."),
    "hand": ("answering", "Give an item to somebody else, let it rest, make it urgent."),
    "standing": ("standing", "Allow calls beforehand: add, list, revoke."),
    "serve": ("serving", "Show the inbox in a browser, and serve the API."),
    "accounts": ("accounts", "Say who may look, answer, give orders; tokens; who did what."),
    "figures": ("figures", "Show how often people overrule the agent."),
    "plant": ("planting", "Plant known-bad questions, to see whether people look."),
    "take-over": ("handing", "Take a run over that was handed to people; look at its state."),
    "serve-hooks": ("awaiting", "Take signed webhooks: the answers that runs wait for."),
    "webhooks": ("webhooks", "Tell others what happens to runs, by signed webhooks."),
    "notices": ("notices", "Show what people were told when they were asked."),
    "signal": ("ordering", "Give a run the event that it waits for."),
    "deliver": ("awaiting", "Bring the answer that an operation waits for."),
    "pending": ("awaiting", "List what is awaited, with deadlines."),
    "tell": ("telling", "Say something to a run: its code hears it before it writes."),
    "cancel": ("ordering", "Call a run off: nothing more is sent."),
    "pause": ("ordering", "Let a run or a tool rest."),
    "unpause": ("ordering", "Let a paused run or tool go on."),
    "replay": ("history", "Recompute a run without effects, and report where it diverges."),
    "export": ("exporting", "Write a run as a fixture that a test replays."),
    "fork": ("history", "Start a new run from the beginning of another."),
    "tools": ("contracts", "Show what each tool promises, and what is dangerous about it."),
    "trial": ("trialling", "Count how often an agent passes, with and without faults."),
    "verify": ("keeping", "Check that no record and no ledger entry was changed or removed."),
    "heads": ("keeping", "Print the signed head of the journal, to be kept elsewhere."),
    "doctor": ("keeping", "Examine the journal; rebuild its listing, or trust it again."),
    "completion": ("completing", "Print the shell completion script."),
}


class Root(click.Group):
    """The group of all commands. It imports one when it is called, and turns every error into a status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of a working day."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"holdfast.interfaces.cli.{COMMANDS[cmd_name][0]}")
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, purpose) for name, (_, purpose) in COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - the signature is click's; here a status is always the end
        **extra: Any,
    ) -> NoReturn:
        """Run a command and end the process with its status."""
        given = list(sys.argv[1:] if args is None else args)
        _forgive_signs()
        if (bad := next((one for one in given if not _is_utf8(one)), None)) is not None:
            sys.exit(_tell_usage(_not_utf8(bad), as_json="--json" in given))
        status = _guarded(lambda: super(Root, self).main(
            given, prog_name or "holdfast", complete_var, standalone_mode=False, **extra
        ), as_json="--json" in given)  # fmt: skip
        sys.exit(status)


def _guarded(command: Any, *, as_json: bool) -> int:
    """Run it, and tell what went wrong in the way that was asked for."""
    try:
        result = command()
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _tell_usage(error, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted. What was recorded stands; running it again goes on from there.", err=True)
        return 130
    except HoldfastError as error:
        return _tell(error, as_json=as_json)


def _is_utf8(argument: str) -> bool:
    """Whether an argument was UTF-8: other bytes come as lone surrogates, which nothing can store or print."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_utf8(argument: str) -> click.UsageError:
    shown = repr(argument.encode("utf-8", "surrogateescape"))[1:]
    return click.UsageError(f"the argument {shown} is not UTF-8: give it in that encoding, or in a file")


def _tell(error: HoldfastError, *, as_json: bool) -> int:
    from holdfast.interfaces.cli.screen import Screen  # noqa: PLC0415 - only where something went wrong
    from holdfast.interfaces.cli.status import problem_of, tell  # noqa: PLC0415 - as above

    return tell(Screen(as_json=as_json), problem_of(error))


def _tell_usage(error: click.ClickException, *, as_json: bool) -> int:
    from holdfast.interfaces.cli.screen import Screen  # noqa: PLC0415 - only where something went wrong
    from holdfast.interfaces.cli.status import USAGE, Problem, tell  # noqa: PLC0415 - as above

    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else "holdfast"
    problem = Problem("UsageError", error.format_message(), next_step=f"{path} --help", exit_status=USAGE)
    return tell(Screen(as_json=as_json), problem)


def _forgive_signs() -> None:
    """A terminal that cannot show a sign shows a stand-in; it must not end the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from importlib import metadata  # noqa: PLC0415 - slow to import, and only asked for here

        click.echo(f"holdfast {metadata.version('holdfast')}")
        context.exit()


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Exit status: 0 done, 1 failed, 2 usage, 3 waits (for a person, an event, a time), 4 diverged "
    "or chain broken, 130 interrupted.",
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version and end."
)
@click.option("--journal", metavar="PATH", help="The journal, for whatever command follows.")
@click.pass_context
def main(ctx: click.Context, journal: str | None) -> None:
    """Run agents whose every effect is recorded before it is attempted.

    Nothing is repeated on a guess. What no rule can decide, a person resolves.

    The journal is named by --journal, HOLDFAST_JOURNAL, [tool.holdfast] journal in
    the nearest pyproject.toml, else ./holdfast.db.

    \b
    Examples:
      holdfast demo
      holdfast run desk.py:refund_desk '{"id": "17", "order_id": "A-17"}'
      holdfast ps
      holdfast show ticket-17
    """  # noqa: D301 - click reads the sign before the examples
    ctx.obj = journal
