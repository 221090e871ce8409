"""`holdfast monitors`: failures that raised no error, each with its evidence; and what the rules find in the past."""

from __future__ import annotations

import click

from holdfast.cli.common import CommandCall, command
from holdfast.cli.exit_status import DONE, FAILED
from holdfast.cli.inputs import read_past
from holdfast.errors import UsageError
from holdfast.inspect.monitors import MonitorReport, MonitorSettings, SilentFailure, present, recorded
from holdfast.inspect.text import count, moment
from holdfast.journal.host import wall_ms

_WORDS = ("list", "dry-run")


@command(
    "monitors",
    examples=(
        "holdfast monitors",
        "holdfast monitors --silent 2h --json | jq '.report.findings[] | .what'",
        "holdfast monitors dry-run --since 30d",
    ),
)
@click.argument("word", type=click.Choice(_WORDS), default="list", metavar="[list|dry-run]")
@click.option(
    "--silent", default="30m", show_default=True, metavar="TIME", help="How long a driven run may record nothing."
)
@click.option(
    "--recent", default="1d", show_default=True, metavar="TIME", help="The time that is compared with the past."
)
@click.option("--since", default="30d", show_default=True, metavar="WHEN", help="With dry-run: where the past begins.")
def monitors(call: CommandCall, word: str, silent: str, recent: str, since: str) -> int:
    """Find failures that raised no error, each with its evidence.

    Two rules: a run that a process drives and that records nothing, and an agent whose
    writes end unknown, or fail, far more often than in its own 30 days before. dry-run
    lists what the rules would have found in the recorded past. Exit status 1: something
    was found.
    """
    now = wall_ms()
    settings = MonitorSettings(silent_ms=_length("--silent", silent, now), recent_ms=_length("--recent", recent, now))
    since_ms = now - _length("--since", since, now)
    report = call.read(_report(call, word, since_ms, now, settings))
    found = report.findings
    if call.screen.as_json:
        call.screen.document({"at_ms": now, "settings": settings, "report": report})
        return FAILED if found else DONE
    for one in found:
        call.screen.line(("! ", "bold yellow"), (one.agent, "bold"), f"  {one.rule}", _when(word, one))
        call.screen.line(f"  {one.what}")
        for text in one.evidence:
            call.screen.line((f"    {text}", "dim"))
        call.screen.commands(one.command)
    past = f" since {moment(since_ms)}" if word == "dry-run" else ""
    read = f"{count(report.runs, 'run')} read{past}"
    call.screen.line(f"{count(len(found), 'finding')}, {read}." if found else f"Nothing was found, {read}.")
    for run in report.unreadable:
        call.screen.note(("Not judged", "yellow"), f": {run} cannot be read. Next: holdfast verify")
    return FAILED if found else DONE


def _length(option: str, text: str, now_ms: int) -> int:
    """A length of time up to now, in milliseconds. Raises `UsageError`."""
    length = now_ms - read_past(text, now_ms)
    if length <= 0:
        raise UsageError(f"{option} {text} is not a time before now", next_step="write 30m, 12h or 7d")
    return length


def _when(word: str, one: SilentFailure) -> tuple[str, str]:
    return (f"  {moment(one.at_ms)}" if word == "dry-run" else "", "dim")


async def _report(call: CommandCall, word: str, since_ms: int, now_ms: int, settings: MonitorSettings) -> MonitorReport:
    async with call.reader() as reader:
        if word == "dry-run":
            return await recorded(reader, since_ms, now_ms, settings)
        return await present(reader, now_ms, settings)
