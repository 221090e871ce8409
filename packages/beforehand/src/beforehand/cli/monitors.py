"""`beforehand monitors`: failures that raised no error, each with its evidence; and what the rules find in the past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from msgspec.structs import replace

from beforehand.cli.common import CommandCall, by_option, command, wait_for
from beforehand.cli.config import project_monitors
from beforehand.cli.exit_status import DONE, FAILED
from beforehand.cli.inputs import read_moment, read_past
from beforehand.cli.screen import Screen
from beforehand.control.code_location import unknown_agents
from beforehand.errors import UsageError
from beforehand.inspect.monitors.counting import FINE_MS, PORTION, RecordTallies
from beforehand.inspect.monitors.findings import Acknowledgement, acknowledge
from beforehand.inspect.monitors.passes import MonitorReport, present, recorded, with_acknowledged
from beforehand.inspect.monitors.rules import MonitorSettings, SilentFailure
from beforehand.inspect.monitors.tallies import HOUR_MS
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.text import count, moment, safe
from beforehand.journal.host import wall_ms
from beforehand.model.shell import to_type

_WORDS = ("list", "dry-run", "pass", "ack")


@command(
    "monitors",
    examples=(
        "beforehand monitors",
        "beforehand monitors --silent 2h --json | jq '.report.findings[] | .what'",
        "beforehand monitors ack 3f9c2b1e --why 'the bank was down; they know'",
        "beforehand monitors dry-run --since 30d",
    ),
)
@click.argument("word", type=click.Choice(_WORDS), default="list", metavar="[list|dry-run|pass|ack]")
@click.argument("finding", default="", metavar="[FINDING]")
@click.option("--silent", metavar="TIME", help="How long a driven run may record nothing. Default: 30m.")
@click.option("--recent", metavar="TIME", help="The time that is compared with the past. Default: 1d.")
@click.option("--since", default="30d", show_default=True, metavar="WHEN", help="With dry-run: where the past begins.")
@click.option("--all", "everything", is_flag=True, help="With list: also those that are acknowledged.")
@click.option("--why", default="", metavar="TEXT", help="With ack: a note; it is recorded.")
@click.option("--until", metavar="WHEN", help="With ack: when it is shown again in any case. Default: never.")
@by_option
def monitors(call: CommandCall, word: str, finding: str, **given: Any) -> int:
    """Find failures that raised no error, each with its evidence.

    The rules compare what each agent did in the last day with its own 30 days before,
    and look at runs, queues and schedules that wait. dry-run lists what they would have
    found in the recorded past. ack FINDING acknowledges one: it is shown again once
    there is new evidence. Exit status 1: something was found.

    A worker looks every minute, and stores its counts of each 10,000 records. Without
    one, pass does that. Bounds of the rules, also for single agents, are in
    [tool.beforehand.monitors] of pyproject.toml.
    """
    now = wall_ms()
    settings, since_ms = _settings(given, now), now - _length("--since", given["since"], now)
    until_ms = 0 if given["until"] is None else read_moment(given["until"], now)
    if given["until"] is not None and (word != "ack" or until_ms <= now):
        raise UsageError(
            f"--until {given['until']} is over" if word == "ack" else f"{word} takes no --until",
            next_step="beforehand monitors ack FINDING --until 7d",
        )
    if bool(finding) != (word == "ack"):
        raise UsageError(
            "ack needs the name of a finding" if word == "ack" else f"{word} takes no finding",
            next_step="see the findings with their names: beforehand monitors",
        )
    if settings.recent_ms % HOUR_MS:
        raise UsageError(f"--recent {given['recent']} is not in whole hours", next_step="write 12h or 1d")
    if word != "dry-run" and settings.recent_ms > FINE_MS:
        raise UsageError(
            "--recent is at most 2d here", next_step=to_type("monitors", "dry-run", "--recent", given["recent"])
        )
    if word == "pass":
        return wait_for(_pass(call, now, settings))
    if word == "ack":
        seen = Acknowledgement(finding, 0, given["by"], given["why"], until_ms)
        return wait_for(_acknowledge(call, seen, now, settings))
    report, remarks = call.read(
        lambda reader: _report(reader, word, since_ms, now, settings, everything=bool(given["everything"]))
    )
    if not call.screen.wrote_json({"at_ms": now, "settings": settings, "report": report}):
        _show(call.screen, report, since_ms if word == "dry-run" else None)
    for remark in remarks:
        call.screen.note((remark, "yellow"))
    return FAILED if report.findings else DONE


def _show(screen: Screen, report: MonitorReport, since_ms: int | None) -> None:
    found = report.findings
    for one in found:
        show_finding(screen, one, dated=since_ms is not None)
    past = f" since {moment(since_ms)}" if since_ms is not None else ""
    read = f"{count(report.runs, 'run')} read{past}"
    screen.line(f"{count(len(found), 'finding')}, {read}." if found else f"Nothing was found, {read}.")
    if report.acknowledged:
        screen.line(f"{count(report.acknowledged, 'finding')} acknowledged: beforehand monitors --all")
    for run in report.unreadable:
        screen.note(("Not judged", "yellow"), f": {run} cannot be read. Next: beforehand verify")


def show_finding(screen: Screen, one: SilentFailure, *, dated: bool = False) -> None:
    """Print a finding, with the command that shows more."""
    when = f"  {moment(one.at_ms)}" if dated else f"  {one.id}"
    screen.line(("! ", "bold yellow"), (safe(one.agent), "bold"), f"  {one.rule}", (when, "dim"))
    screen.line(f"  {safe(one.what)}")
    for text in one.evidence:
        screen.line((f"    {safe(text)}", "dim"))
    screen.commands(one.command)


async def _pass(call: CommandCall, now_ms: int, settings: MonitorSettings) -> int:
    """Count everything, and store what is whole."""
    tallies = RecordTallies()
    async with call.serving() as service:
        while not await tallies.count(service.reader, now_ms, settings, service.engine.journal):
            pass
    if not call.screen.wrote_json({"records": tallies.through, "stored": tallies.whole}):
        stored = f"the counts of {tallies.whole:,} are stored, in portions of {PORTION:,}"
        call.screen.line(f"{count(tallies.through, 'record')} counted; {stored}.")
    return DONE


async def _acknowledge(call: CommandCall, wanted: Acknowledgement, now_ms: int, settings: MonitorSettings) -> int:
    async with call.serving() as service:
        found = (await with_acknowledged(service.reader, now_ms, settings)).findings
        chosen = next((one for one in found if one.id == wanted.id), None)
        if chosen is None:
            known = ", ".join(one.id for one in found) or "there is none"
            raise UsageError(
                f"{wanted.id!r} is not a finding of now", known=f"findings: {known}", next_step="beforehand monitors"
            )
        seen = replace(wanted, newest_ms=chosen.newest_ms)
        await acknowledge(service.engine.journal, service.engine.outbox, seen, now_ms)
    if not call.screen.wrote_json(chosen):
        until = f", or at {moment(wanted.until_ms)}" if wanted.until_ms else ""
        call.screen.line(f"Acknowledged by {safe(wanted.by)}. It is shown again once there is new evidence{until}.")
    return DONE


async def _report(
    reader: JournalReader, word: str, since_ms: int, now_ms: int, settings: MonitorSettings, *, everything: bool
) -> tuple[MonitorReport, list[str]]:
    """The findings; and remarks on bounds of agents that do not exist."""
    named = {f"[tool.beforehand.monitors.agents.{agent}] judges no run": agent for agent in settings.agents}
    remarks = await unknown_agents(reader.journal, named)
    if word == "dry-run":
        return await recorded(reader, since_ms, now_ms, settings), remarks
    return await (with_acknowledged if everything else present)(reader, now_ms, settings), remarks


def declared_settings() -> MonitorSettings:
    """The bounds of the project. Raises `UsageError`."""
    where, table = project_monitors()
    if not table:
        return MonitorSettings()
    from beforehand.inspect.monitors.tuning import tuned  # noqa: PLC0415 - only where there is something to read

    return tuned(table, where)


def _settings(given: Mapping[str, str | None], now_ms: int) -> MonitorSettings:
    """The bounds of the project, with those of the command line in their place, for all agents."""
    settings = declared_settings()
    for name in ("silent", "recent"):
        if (text := given[name]) is not None:
            span = {f"{name}_ms": _length(f"--{name}", text, now_ms)}
            agents = {agent: replace(one, **span) for agent, one in settings.agents.items()}
            settings = replace(settings, agents=agents, **span)
    return settings


def _length(option: str, text: str, now_ms: int) -> int:
    """A length of time up to now, in milliseconds. Raises `UsageError`."""
    length = now_ms - read_past(text, now_ms)
    if length <= 0:
        raise UsageError(f"{option} {text} is not a time before now", next_step="write 30m, 12h or 7d")
    return length
