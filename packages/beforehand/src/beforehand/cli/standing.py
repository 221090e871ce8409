"""`beforehand standing`: standing permissions, their use, and their end."""

from __future__ import annotations

import click

from beforehand.cli.apps import all_tools_at_hand
from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.inputs import read_moment
from beforehand.engine.environment import SystemClock
from beforehand.inspect.text import moment, safe
from beforehand.model.shell import to_type
from beforehand.model.standing_permission import StandingPermission
from beforehand.people.standing_permissions import add_standing, list_standing, revoke_standing


@click.group("standing")
def standing() -> None:
    """Standing permissions: calls that are approved in advance."""


@command(
    "add",
    examples=(
        "beforehand standing add --tool refund --where 'cents <= 5000' --until 7d",
        "beforehand standing add --tool refund --until 7d --times 20",
        "beforehand standing add --tool refund --until 7d --amount cents --total 5000",
    ),
)
@click.option("--tool", required=True, metavar="NAME", help="The tool whose calls are approved.")
@click.option("--where", default="true", metavar="CEL", help="A condition over the parameters. Default: every call.")
@click.option("--until", required=True, metavar="TIME", help="When it ends: a date, a time in UTC, or 12h, 7d.")
@click.option("--times", default=0, type=click.IntRange(min=0), metavar="N", help="Maximum number of uses.")
@click.option("--amount", default="", metavar="NAME", help="The parameter that --total adds up.")
@click.option(
    "--total", default=0.0, type=click.FloatRange(min=0), metavar="X", help="Maximum sum of --amount over all uses."
)
@click.option("--why", default="", metavar="TEXT", help="Why; it is recorded.")
@by_option
async def add(call: CommandCall, tool: str, until: str, times: int, total: float, **options: str) -> None:
    """Approve calls of a tool in advance, within limits.

    Calls that match are sent where the tool's gate would ask a person. Each use is counted in
    the commit that starts the call, so that two processes cannot overspend it. A standing
    permission never replaces the second of two approvers.
    """
    now_ms = SystemClock().wall_ms()
    wanted = StandingPermission(
        "",
        tool,
        options["by"],
        read_moment(until, now_ms),
        options["where"],
        times,
        total,
        options["amount"],
        options["why"],
    )
    tools = await all_tools_at_hand(call)
    async with call.serving(tools) as service:
        given = await add_standing(service.engine, wanted)
        if tool not in tools and not await service.reader.has_used(tool):
            call.screen.note(
                (f"No run in this journal has used a tool named {safe(tool)} so far. Check the name.", "yellow")
            )
    if call.screen.wrote_json(given):
        return
    call.screen.line(f"{given.id} is given by {safe(given.by)}, until {moment(given.until_ms)}.")
    call.screen.line(("Revoke it: ", "dim"), to_type("standing", "revoke", given.id))


@command("list", examples=("beforehand standing list", "beforehand standing list --tool refund --json"))
@click.option("--tool", default="", metavar="NAME", help="Only those for this tool.")
async def listed(call: CommandCall, tool: str) -> None:
    """List the standing permissions, with their use."""
    async with call.reader() as reader:
        found = await list_standing(reader, SystemClock().wall_ms(), tool)
    if call.screen.wrote_json(found):
        return
    for one in found:
        given, spent = one.standing, one.spent
        ends = (f"  {one.ended}", "red")
        call.screen.line((given.id, "cyan"), f"  {safe(given.tool)} where {safe(given.where)}", ends)
        times = f"{spent.times} of {given.times}" if given.times else f"{spent.times}"
        total = f", {spent.sum:g} of {given.total:g} {safe(given.amount)}" if given.total else ""
        note = f": {safe(given.note)}" if given.note else ""
        call.screen.line(f"  by {safe(given.by)} until {moment(given.until_ms)}, used {times} times{total}{note}")
    if not found:
        call.screen.line("No standing permissions yet.")


@command("revoke", examples=("beforehand standing revoke s-1a2b3c4d --by anna --why 'enough'",))
@click.argument("permission")
@click.option("--why", default="", metavar="TEXT", help="Why; it is recorded.")
@by_option
async def revoke(call: CommandCall, permission: str, why: str, by: str) -> None:
    """Revoke PERMISSION: no further call is sent under it."""
    async with call.serving() as service:
        spent = await revoke_standing(service.engine, permission, by=by, why=why)
    if call.screen.wrote_json(spent):
        return
    call.screen.line(f"{permission} is revoked; it was used {spent.times} times.")


standing.add_command(add)
standing.add_command(listed)
standing.add_command(revoke)
