"""`beforehand effects`: the effects of all runs with a business key, a recipient, a tool or a text."""

from __future__ import annotations

from typing import Final, cast

import click

from beforehand.cli.common import CommandCall, command
from beforehand.cli.exit_status import DONE, FAILED
from beforehand.cli.inputs import read_past
from beforehand.errors import UsageError
from beforehand.inspect.effects import EffectQuery, EffectsFound, FoundEffect, find_effects
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.text import ago, count, short
from beforehand.journal.host import wall_ms
from beforehand.journal.port import Reader
from beforehand.model.alike import nearest
from beforehand.model.shell import to_type

_LIMIT: Final = 50
_MARKS: Final = {"succeeded": "ok", "failed": "failed", "unknown": "asks", "cancelled": "off", "compensated": "off"}
_SHOWN: Final = 60


@command(
    "effects",
    examples=(
        "beforehand effects --key ORDER-7",
        "beforehand effects --to ann@mail.test --tool send_email --since 30d",
        "beforehand effects --tool charge --limit 10",
        "beforehand effects 4711 --json | jq -r '.effects[].operation'",
    ),
)
@click.argument("sought", default="", metavar="[TEXT]")
@click.option("--key", default="", metavar="KEY", help="With this business key.")
@click.option("--to", default="", metavar="VALUE", help="With an argument of this value, such as an address.")
@click.option("--text", default="", metavar="TEXT", help="With this text in the arguments or the result.")
@click.option("--tool", default="", metavar="NAME", help="Of this tool.")
@click.option("--agent", default="", metavar="NAME", help="Only effects of this agent's runs.")
@click.option("--since", default="", metavar="WHEN", help="Only effects begun since then: 2h, 7d, 2027-01-31.")
@click.option(
    "--limit", default=_LIMIT, show_default=True, metavar="N", type=click.IntRange(1), help="How many to list."
)
def effects(call: CommandCall, sought: str, limit: int, since: str, **wanted: str) -> int:
    """Find effects over all runs, the newest first. TEXT is the same as --text TEXT.

    It answers questions such as "did we mail this customer?". A business key is found
    at once. The other conditions read the records, the newest first, until there are
    enough: less than a second for a million. Secrets and redacted values are not in the
    journal, and are not found. Exit status 1: no effect fits.
    """
    now = wall_ms()
    if sought and wanted["text"]:
        raise UsageError("TEXT and --text are the same condition", next_step="give one of them")
    wanted["text"] = wanted["text"] or sought
    query = EffectQuery(**wanted, since_ms=read_past(since, now) if since else 0)
    found, remarks = call.read(lambda reader: _found(call, reader, query, limit))
    if not call.screen.wrote_json(found):
        call.screen.columns([_line(one, now) for one in found.effects])
        _sum_up(call, found, remarks)
    return DONE if found.effects else FAILED


async def _found(
    call: CommandCall, reader: JournalReader, query: EffectQuery, limit: int
) -> tuple[EffectsFound, list[str]]:
    """The effects; and remarks about names, for a misspelled one must not be taken for "no such effect"."""
    journal = cast("Reader", reader.journal)  # of a command, it is one
    with call.screen.progress(None) as advance:
        found = await find_effects(
            reader, journal, query, limit, lambda searched, records: advance(f"{searched:,} of {records:,} records")
        )
    remarks = list[str]()
    agents = {agent for agent, _ in await journal.counts()}
    if query.agent and query.agent not in agents:
        near = nearest(query.agent, agents)
        meant = f": did you mean {near}?" if near else "."
        remarks.append(f"No run of an agent {query.agent} is on record at all{meant}")
    if (
        query.tool
        and not found.effects
        and not (await find_effects(reader, journal, EffectQuery(tool=query.tool), 1)).effects
    ):
        remarks.append(f"No operation of a tool {query.tool} is on record at all: is that its name?")
    return found, remarks


def _line(one: FoundEffect, now_ms: int) -> tuple[str, ...]:
    """The cells of one line; the first is the name of its sign."""
    about = one.title or f"{one.tool} {bytes(one.arguments).decode()}"
    when = ago(one.at_ms, now_ms) if one.at_ms else "not sent"
    return _MARKS.get(one.status, "open"), one.operation, one.status, when, short(about, _SHOWN)


def _sum_up(call: CommandCall, found: EffectsFound, remarks: list[str]) -> None:
    statuses = [one.status for one in found.effects]
    each = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    call.screen.line(f"{count(len(statuses), 'effect')}: {each}." if statuses else "No effect in this journal fits.")
    for remark in remarks:
        call.screen.note((remark, "yellow"))
    if found.records:
        newest = "" if found.searched == found.records else f"the newest {found.searched:,} of "
        call.screen.line((f"Searched {newest}{count(found.records, 'record')}.", "dim"))
    for one in found.effects:
        if one.compensated_by and one.status != "compensated":
            remark = f"{one.operation}: whether it was undone is open. Next: {to_type('why', one.compensated_by)}"
            call.screen.line((call.screen.located(remark), "yellow"))
    for run in found.unreadable:
        call.screen.note(("Not searched", "yellow"), f": {run} cannot be read. Next: beforehand verify")
    if found.more:
        call.screen.next(f"more of them: the same command with --limit {2 * len(statuses)}")
    elif found.effects:
        call.screen.next(to_type("why", found.effects[0].operation))
