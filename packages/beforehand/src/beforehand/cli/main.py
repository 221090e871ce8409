"""`beforehand`: the command line. Commands are imported when they are called, so that `--help` is quick."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from beforehand import former_name
from beforehand.extensions import extension, extensions
from beforehand.installation import CONSOLE
from beforehand.model.errors import BeforehandError, UsageError
from beforehand.model.shell import is_placeholder, to_type

# Purpose -> the commands for it: name -> the module of this package that holds it, and its purpose.
# The console brings its commands by entry points; they are listed here so that `--help` is the same without it.
GROUPS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Run agents": {
        "demo": ("demo", "Watch a refund desk survive kills, with and without Beforehand."),
        "run": ("run", "Run an agent on one input, or on a file of them."),
        "init": ("init", "Write a new project: an agent, its tools, and a test."),
        "dev": ("dev", "Drive agents, serve the inbox, and reload when a file changes."),
        "submit": ("queues", "Store runs in a queue, for workers to start under its limits."),
        "worker": ("run", "Drive the runs that are due: abandoned runs, retries, timers."),
        "resume": ("run", "Continue a run from its record; reopen it if it stopped."),
        "pause": ("control", "Pause a run, a tool, or all sending."),
        "unpause": ("control", "Continue a paused run or tool, or all sending."),
        "cancel": ("control", "Cancel a run: nothing more is sent."),
        "undo": ("undo", "Undo a finished run: compensate what it did."),
    },
    "See what happened": {
        "top": ("top", "Watch queues, runs, processes and costs as they change."),
        "ps": ("ps", "List the runs, the newest first."),
        "queues": ("queues", "List the queues: what waits, what runs, and the limits."),
        "schedules": ("schedules", "List, preview, pause and resume schedules."),
        "show": ("show", "Show the timeline of a run, or its state at a step."),
        "why": ("show", "Explain what is known about one operation."),
        "diff": ("diff", "Compare two runs, and show where they part."),
        "effects": ("effects", "Find effects over all runs, by key, tool or text."),
        "budget": ("budget", "Show what a run may use and has used; raise its limits."),
        "costs": ("costs", "Sum up what all runs used and cost, by agent, model or day."),
        "monitors": ("monitors", "Find failures that raised no error, with their evidence."),
        "lessons": ("lessons", "Keep what a finding or a review taught, for later runs."),
        "pending": ("webhooks", "List the awaited answers and events, with deadlines."),
        "replay": ("history", "Recompute a run without effects, and report where it diverges."),
        "fork": ("history", "Start a new run from the beginning of another."),
        "export": ("history", "Write a run as a fixture that a test replays."),
    },
    "Decide and answer": {
        "inbox": ("inbox", "List what needs a person."),
        "answer": ("answer", "Answer an inbox item of any kind."),
        "hand": ("answer", "Delegate, snooze or escalate an inbox item."),
        "resolve": ("control", "State what happened to an operation whose outcome is unknown."),
        "transaction": ("undo", "Decide about a parked transaction, or abort one."),
        "take-over": ("dossier", "Inspect or take over a handed-off run."),
        "tell": ("control", "Send a run a message; it arrives before the next write."),
        "signal": ("control", "Send a run the event that it waits for."),
        "deliver": ("webhooks", "Deliver the answer that an operation waits for."),
        "serve": (CONSOLE, "Serve the inbox in a browser, and the API."),
    },
    "Set rules for approval": {
        "policy": ("policy", "Show, check, test or dry-run an approval policy."),
        "policy calibrate": (CONSOLE, "Propose thresholds from what reviewers found."),
        "standing": ("standing", "Approve calls in advance: add, list, revoke."),
        "accounts": (CONSOLE, "Manage accounts, roles, API tokens and the audit log."),
        "figures": (CONSOLE, "Show how often reviewers overrule the agent."),
        "shadow-reviews": (CONSOLE, "Review calls that were sent without a person."),
        "plant": (CONSOLE, "Plant known-bad questions to check that reviewers look."),
    },
    "Connect other systems": {
        "serve-hooks": ("webhooks", "Receive signed webhooks: the answers that runs wait for."),
        "webhooks": ("webhooks", "Send signed webhooks about what happens to runs."),
        "notices": (CONSOLE, "List sent notifications and their delivery status."),
    },
    "Check tools, agents and the journal": {
        "tools": ("tools", "Show what each tool promises, and what is dangerous about it."),
        "plan": ("plan", "Inspect a plan before it runs: show, check, dry-run, schema."),
        "trial": ("trial", "Count how often an agent passes, with and without faults."),
        "verify": ("doctor", "Verify that no record or ledger entry was changed or removed."),
        "heads": ("doctor", "Print the signed head of the journal, to be kept elsewhere."),
        "doctor": ("doctor", "Examine the journal; rebuild its listing, or trust it again."),
        "completion": ("reference", "Print the shell completion script."),
    },
}
COMMANDS: Final = {name: found for group in GROUPS.values() for name, found in group.items()}
# Names of commands in other tools, and the command that does the same here.
SYNONYMS: Final = {
    "approve": "answer", "deny": "answer", "reject": "answer", "yes": "answer", "no": "answer", "approvals": "inbox",
    "list": "ps", "ls": "ps", "runs": "ps", "status": "ps", "logs": "show", "log": "show", "history": "show",
    "explain": "why", "retry": "resume", "restart": "resume", "start": "run", "stop": "cancel", "kill": "cancel",
    "rollback": "undo", "revert": "undo", "compensate": "undo", "send": "tell", "message": "tell", "check": "verify",
    "web": "serve", "enqueue": "submit", "queue": "queues", "ui": "serve", "users": "accounts", "repair": "doctor",
    "schedule": "schedules", "cron": "schedules", "cost": "costs", "usage": "costs", "tokens": "costs", "watch": "top",
}  # fmt: skip


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""In an argument that was not UTF-8, other bytes come as lone surrogates, which nothing can store or print."""


class Root(click.Group):
    """The group of all commands. It imports one when it is called, and turns every error into a status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help page."""
        del ctx
        return [*COMMANDS, *_added()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        del ctx
        module, _ = COMMANDS.get(cmd_name) or ("", "")
        found: click.Command | None = None
        if module == CONSOLE or (not module and cmd_name in _added()):
            try:
                found = extension("beforehand.commands", cmd_name, to_type(*cmd_name.split()))
            except UsageError as error:  # it takes anything, and says how to install it
                found = _Missing(cmd_name, error)
        elif module:
            found = getattr(import_module(f"beforehand.cli.{module}"), cmd_name.replace("-", "_"))
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was typed. An unknown one is refused, with the known names that are spelled alike."""
        if (both := " ".join(args[:2])) in COMMANDS:  # another distribution's, beside ours of the first word
            args = [both, *args[2:]]
        if args and not args[0].startswith("-") and args[0] not in COMMANDS and args[0] not in _added():
            typed = args[0].lower()
            alike = [SYNONYMS[typed]] if typed in SYNONYMS else get_close_matches(typed, COMMANDS, n=3, cutoff=0.6)
            alike = args[1:2] if args[1:] and args[1] in COMMANDS else alike  # `runs diff A B`
            meant = f" Did you mean {' or '.join(alike)}?" if alike else ""
            ctx.fail(f"no such command: {args[0]}.{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The groups of commands, without importing any of them."""
        del ctx
        width = max(len(name) for name in COMMANDS if " " not in name)
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), purpose) for name, (_, purpose) in commands.items()])
        if added := _added():
            with formatter.section("Added by other distributions"):
                formatter.write_dl([(name.ljust(width), f"From {source}.") for name, source in added.items()])
        if hidden := _added(used=False):
            with formatter.section("Not used, for Beforehand has a command of that name"):
                formatter.write_dl([(name.ljust(width), f"From {source}.") for name, source in hidden.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - the signature is click's; here a status is always the end
        **extra: Any,
    ) -> NoReturn:
        """Run a command and end the process with its status."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        for stream in (sys.stdout, sys.stderr):  # a sign that the terminal cannot show does not end the command
            if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
                reconfigure(errors="backslashreplace")
        if (bad := next(filter(_SURROGATE.search, given), None)) is not None:
            shown = repr(bad.encode("utf-8", "surrogateescape"))[1:]
            odd = click.UsageError(f"the argument {shown} is not UTF-8: give it in that encoding, or in a file")
            sys.exit(_tell_usage(odd, as_json="--json" in given))
        if (left := next((one for one in given if is_placeholder(one)), None)) is not None:
            unmade = click.UsageError(f"{left} stands for something that you choose: nothing was done")
            sys.exit(_tell_usage(unmade, as_json="--json" in given))
        status = _guarded(lambda: super(Root, self).main(
            given, prog_name or "beforehand", complete_var, standalone_mode=False, **extra
        ), as_json="--json" in given)  # fmt: skip
        sys.exit(status)


def _added(*, used: bool = True) -> dict[str, str]:
    """The commands of distributions other than the console, each with its distribution; or those that are not `used`.

    A command of ours is never replaced by one of the same name.
    """
    found = {one.name: one.dist.name if one.dist else "" for one in extensions("beforehand.commands")}
    ours = {name for name, (module, _) in COMMANDS.items() if module != CONSOLE}
    if used:
        return {name: source for name, source in found.items() if name not in COMMANDS}
    return {name: source for name, source in found.items() if name in ours}


class _Missing(click.Command):
    """A command whose distribution is not installed: with any arguments it raises the error that says so."""

    def __init__(self, name: str, error: UsageError) -> None:
        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(name, context_settings=anything, add_help_option=False)
        self._error = error

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Raise it."""
        del ctx
        raise self._error


def _guarded(command: Any, *, as_json: bool) -> int:
    """Run it, and report an error in the form that was asked for."""
    try:
        result = command()
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _tell_usage(error, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted. What was recorded is kept; the same command continues from there.", err=True)
        return 130
    except BeforehandError as error:
        return _tell(error, as_json=as_json)


def _tell(error: BeforehandError, *, as_json: bool) -> int:
    from beforehand.cli.exit_status import problem_of, tell  # noqa: PLC0415 - as above
    from beforehand.cli.screen import Screen  # noqa: PLC0415 - only where something went wrong

    return tell(Screen(as_json=as_json), problem_of(error))


def _tell_usage(error: click.ClickException, *, as_json: bool) -> int:
    from beforehand.cli.exit_status import USAGE, CommandProblem, tell  # noqa: PLC0415 - as above
    from beforehand.cli.screen import Screen  # noqa: PLC0415 - only where something went wrong

    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else "beforehand"
    problem = CommandProblem("UsageError", error.format_message(), next_step=f"{path} --help", exit_status=USAGE)
    return tell(Screen(as_json=as_json), problem)


def _version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from importlib import metadata  # noqa: PLC0415 - slow to import, and only asked for here

        click.echo("beforehand " + metadata.version("beforehand"))
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

    Nothing is repeated on a guess. If Beforehand cannot tell whether a call went
    through, it asks you.

    The journal is the one named by --journal, BEFOREHAND_JOURNAL, or [tool.beforehand]
    journal in the nearest pyproject.toml; else ./beforehand.db; else the only
    journal in this directory.

    \b
    Examples:
      beforehand demo
      beforehand run desk.py:refund_desk '{"id": "17", "order_id": "A-17"}'
      beforehand ps
      beforehand show ticket-17
    """  # noqa: D301 - click reads the sign before the examples
    for remark in former_name.of_variables(os.environ):
        click.echo(remark, err=True)
    ctx.obj = journal
