"""`beforehand accounts token`: tokens for programs, each shown once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from beforehand.cli.common import CommandCall, by_option, command
from beforehand.engine.environment import SystemClock
from beforehand.inspect.text import safe
from beforehand.model.shell import to_type
from beforehand_console.auth.accounts import Accounts
from beforehand_console.auth.authorize import ROLES, Grant, Role
from beforehand_console.auth.tokens import Token, TokenNote, Tokens, every_token

DAY_MS: Final = 86_400_000


class NewToken(msgspec.Struct, frozen=True):
    """A new token as JSON: the one time that its secret is shown."""

    id: str
    account: str
    secret: str
    ends_ms: int


class TokenOptions(msgspec.Struct, frozen=True):
    """The options that narrow a token."""

    days: int
    role: Role | None
    tools: tuple[str, ...]
    queues: tuple[str, ...]
    tenants: tuple[str, ...]
    note: str
    by: str

    @property
    def limits(self) -> tuple[Grant, ...]:
        """The grants that narrow the token; empty if none was given: then it may do what its account may."""
        if self.role is None and not self.tools and not self.queues:
            return ()
        return (Grant(self.role or "operator", self.tools, self.queues),)


@click.group("token")
def token() -> None:
    """Tokens for programs: `Authorization: Bearer bh_...`.

    \b
    Examples:
      beforehand accounts token add ben --days 30
      beforehand accounts token list
      beforehand accounts token revoke 3f9a2c
    """  # noqa: D301 - click reads the sign before the examples


@command(
    "add",
    examples=(
        "beforehand accounts token add ben --days 30 --note nightly --role viewer",
        "beforehand accounts token add ben --tool refund --json | jq -r .secret",
    ),
)
@click.argument("name")
@click.option("--days", default=90, show_default=True, type=click.IntRange(1, 366), help="Days until it ends.")
@click.option("--role", type=click.Choice(ROLES), help="At most this role; at most the account's own anyway.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Only for this tool; may be repeated.")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only for this queue; may be repeated.")
@click.option(
    "--tenant", "tenants", multiple=True, metavar="NAME", help="Submits for this tenant only; may be repeated."
)
@click.option("--note", default="", metavar="TEXT", help="What it is for.")
@by_option
async def add(call: CommandCall, name: str, **given: object) -> None:
    """Make a token for the account NAME, and print it once.

    A token never has more rights than its account has at that moment. Only its digest is
    kept.
    """
    options = msgspec.convert(given, TokenOptions)
    async with call.serving() as service:
        engine = service.engine
        ends_ms = engine.environment.clock.wall_ms() + options.days * DAY_MS
        note = TokenNote("add", options.by, name, options.limits, ends_ms, options.note, options.tenants)
        secret, made = await Tokens(engine.journal, Accounts(engine.journal)).add(note, engine.environment.rng)
    if call.screen.wrote_json(NewToken(made.id, name, secret, ends_ms)):
        return
    call.screen.line(secret)
    call.screen.note(f"It is not shown again. To end it: {to_type('accounts', 'token', 'revoke', made.id)}")


@command("list", examples=("beforehand accounts token list", "beforehand accounts token list ben --json"))
@click.argument("name", default="")
async def listing(call: CommandCall, name: str) -> None:
    """List all tokens or those of NAME, with their rights and end."""
    async with call.reader() as reader:
        tokens = await every_token(reader.journal, name)
    if call.screen.wrote_json({"tokens": tokens}):
        return
    if not tokens:
        call.screen.line("No tokens.")
    for one in tokens:
        _line(call, one)


@command("revoke", examples=("beforehand accounts token revoke 3f9a2c",))
@click.argument("id_", metavar="ID")
@by_option
async def revoke(call: CommandCall, id_: str, by: str) -> None:
    """Revoke the token whose id begins with ID. Its open connections end at once."""
    async with call.serving() as service:
        journal = service.engine.journal
        ended = await Tokens(journal, Accounts(journal)).revoke(id_, by=by)
    if not call.screen.wrote_json(ended):
        _line(call, ended)


def _line(call: CommandCall, one: Token) -> None:
    ended = one.ends_ms <= SystemClock().wall_ms()
    until = f"until {datetime.fromtimestamp(one.ends_ms / 1000, UTC):%Y-%m-%d}"
    state = "revoked" if one.revoked else "ended" if ended else until
    limits = "; ".join(map(str, one.limits)) or "all that the account may"
    limits += f"; submits for {', '.join(one.tenants)}" if one.tenants else ""
    call.screen.line((one.id, "bold"), f"  {one.account}  {state}  {safe(limits)}  {safe(one.note)}".rstrip())


for _command in (add, listing, revoke):
    token.add_command(_command)
