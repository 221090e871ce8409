"""`holdfast accounts audit`: who came in, who was turned away, and what each of them did."""

from __future__ import annotations

import click

from holdfast.cli.common import Call, command
from holdfast.inspect.text import moment, safe
from holdfast.interfaces.access_log import AccessLog, Noted


@command(
    "audit",
    examples=(
        "holdfast accounts audit ben",
        "holdfast accounts audit --refused --limit 200",
        "holdfast accounts audit --json | jq '.access[] | select(.deed == \"answer\")'",
    ),
)
@click.argument("name", default="")
@click.option("--refused", is_flag=True, help="Only what was refused.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, metavar="N", help="The newest N; JSON has all. Default: 50."
)
async def audit(call: Call, name: str, refused: bool, limit: int) -> None:
    """Show the decisions about who may: of NAME, of strangers (-), or of everybody.

    Each answer, order and sign-in is there, allowed or refused, recorded before it was
    done. Looking, and strangers that are turned away, are there once an hour for each
    session or address. What was typed on the command line is not: there nobody signs in.
    """
    async with call.looking() as looking:
        found = [one for one in await AccessLog(looking.journal).read(name) if not (refused and one.access.allowed)]
    if call.screen.as_json:
        call.screen.document({"access": [_document(one) for one in found]})
        return
    if not found:
        call.screen.line("Nothing was decided.")
    for one in found[-limit:]:
        _line(call, one)
    if len(found) > limit:
        call.screen.note(f"... and {len(found) - limit:,} before these: --limit {len(found)}")


def _document(one: Noted) -> dict[str, object]:
    said = one.access
    return {
        "at_ms": one.at_ms, "who": said.who, "via": said.via, "deed": said.deed, "allowed": said.allowed,
        "about": said.about, "why": said.why, "address": said.address, "session": said.session,
    }  # fmt: skip


def _line(call: Call, one: Noted) -> None:
    said = one.access
    word = ("allowed", "green") if said.allowed else ("refused", "red")
    told = " ".join(filter(None, (said.deed, said.about)))
    beside = "  ".join(filter(None, (said.why, f"by {said.via}" if said.via else "", said.address)))
    who = said.who or "a stranger"
    call.screen.line((moment(one.at_ms), "dim"), "  ", word, f"  {who}: {safe(told)}  ", (safe(beside), "dim"))
