"""`beforehand accounts audit`: who signed in, who was refused, and what each of them did."""

from __future__ import annotations

import sys
from typing import Any, Final

import click
import msgspec

from beforehand.cli.common import CommandCall, by_option, command
from beforehand.errors import UsageError
from beforehand.inspect.text import moment, safe
from beforehand.model.shell import to_type
from beforehand.webhooks.access_log import Noted, recorded_access
from beforehand_console.auth.accounts import Account, AccountNote, Accounts, every_account
from beforehand_console.auth.authorize import ROLES, Grant, Role
from beforehand_console.auth.passwords import Passwords
from beforehand_console.cli.tokens import token


@command(
    "audit",
    examples=(
        "beforehand accounts audit ben",
        "beforehand accounts audit --refused --limit 200",
        "beforehand accounts audit --json | jq '.access[].deed'",
    ),
)
@click.argument("name", default="")
@click.option("--refused", is_flag=True, help="Only what was refused.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, metavar="N", help="The newest N; JSON has all. Default: 50."
)
async def audit(call: CommandCall, name: str, refused: bool, limit: int) -> None:
    """Show the audit log of all, of NAME, or of strangers (-).

    Each answer, command and sign-in is recorded before it is performed. Reading is recorded
    once an hour for each session, and what is refused for each account and permission, or
    for each address of a stranger. Commands typed on this machine need no sign-in and are not in this log.
    """
    async with call.reader() as reader:
        decisions = [one for one in await recorded_access(reader.journal, name) if not (refused and one.access.allowed)]
    if call.screen.wrote_json({"access": [_document(one) for one in decisions]}):
        return
    if not decisions:
        call.screen.line("Nothing was decided.")
    for one in decisions[-limit:]:
        _decision_line(call, one)
    if len(decisions) > limit:
        call.screen.note(f"... and {len(decisions) - limit:,} before these: --limit {len(decisions)}")


def _document(one: Noted) -> dict[str, object]:
    access = one.access
    return {
        "at_ms": one.at_ms, "who": access.who, "via": access.via, "deed": access.deed, "allowed": access.allowed,
        "about": access.about, "why": access.why, "address": access.address, "session": access.session,
    }  # fmt: skip


def _decision_line(call: CommandCall, one: Noted) -> None:
    access = one.access
    word = ("allowed", "green") if access.allowed else ("refused", "red")
    subject = " ".join(filter(None, (access.deed, access.about)))
    beside = "  ".join(filter(None, (access.why, f"by {access.via}" if access.via else "", access.address)))
    who = access.who or "a stranger"
    call.screen.line((moment(one.at_ms), "dim"), "  ", word, f"  {who}: {safe(subject)}  ", (safe(beside), "dim"))


# `beforehand accounts`: who may do what. A user who can write the journal can add the first admin.


class ListedAccount(msgspec.Struct, frozen=True):
    """An account as it is listed: never its hash."""

    name: str
    grants: tuple[Grant, ...]
    password: bool
    subject: str
    disabled: bool


@click.group("accounts")
def accounts() -> None:
    """Manage accounts, roles, API tokens and the audit log.

    Roles are viewer < answerer < operator < admin; --tool and --queue limit them. The command
    line has no sign-in: a user who can write the journal can do all of this.

    \b
    Examples:
      beforehand accounts add anna --role admin
      beforehand accounts password anna
      beforehand accounts add ben --role answerer --tool refund
      beforehand accounts token add ben --days 30 --note "his phone"
    """  # noqa: D301 - click reads the sign before the examples


def _places(function: Any) -> Any:
    for option in ("tool", "queue"):
        function = click.option(
            f"--{option}", f"{option}s", multiple=True, metavar="NAME", help=f"Only for this {option}; may be repeated."
        )(function)
    return function


@command(
    "add",
    examples=(
        "beforehand accounts add anna --role admin",
        "beforehand accounts add ben --role answerer --tool refund --queue eu",
    ),
)
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What they may do.")
@click.option("--subject", default="", metavar="TEXT", help="Who they are at an OpenID provider: ISSUER#SUB.")
@_places
@by_option
async def add(call: CommandCall, name: str, role: Role, subject: str, by: str, **places: tuple[str, ...]) -> None:
    """Add the account NAME. It has no password until one is given."""
    grant = Grant(role, places["tools"], places["queues"])
    async with call.serving(create=True) as service:
        made = await Accounts(service.engine.journal).add(name, [grant], by=by, subject=subject)
    _say(call, made, f"Next: {to_type('accounts', 'password', name)}")


@command("list", examples=("beforehand accounts list", "beforehand accounts list --json"))
async def listing(call: CommandCall) -> None:
    """List the accounts, and what each may do."""
    async with call.reader() as reader:
        accounts = await every_account(reader.journal)
    if call.screen.wrote_json({"accounts": [_shown(one) for one in accounts]}):
        return
    if not accounts:
        call.screen.line("No accounts yet. Next: beforehand accounts add NAME --role admin")
    for one in accounts:
        _line(call, one)


@command(
    "role",
    examples=("beforehand accounts role ben operator", "beforehand accounts role ben viewer --queue eu --also"),
)
@click.argument("name")
@click.argument("role", type=click.Choice(ROLES), metavar="ROLE")
@click.option("--also", is_flag=True, help="Add to the roles instead of replacing them.")
@_places
@by_option
async def role_(call: CommandCall, name: str, role: Role, also: bool, by: str, **places: tuple[str, ...]) -> None:
    """Give NAME the role viewer, answerer, operator or admin."""
    grant = Grant(role, places["tools"], places["queues"])
    async with call.serving() as service:
        book = Accounts(service.engine.journal)
        kept = (await book.known(name)).grants if also else ()
        made = await book.change(name, AccountNote("role", by, grants=(*kept, grant)))
    _say(call, made)


@command("subject", examples=("beforehand accounts subject ben 'https://id.example.com#248289761001'",))
@click.argument("name")
@click.argument("subject")
@by_option
async def subject_(call: CommandCall, name: str, subject: str, by: str) -> None:
    """Link NAME to an OpenID identity, ISSUER#SUB. It ends their sessions.

    `beforehand accounts audit -` shows who signed in there without having an account.
    """
    async with call.serving() as service:
        book = Accounts(service.engine.journal)
        known = await book.by_subject(subject)
        if known is not None and known.name != name:
            raise UsageError(
                f"{known.name} is {subject} already", next_step=to_type("accounts", "subject", known.name, "")
            )
        made = await book.change(name, AccountNote("subject", by, subject=subject))
    _say(call, made)


@command(
    "password", examples=("beforehand accounts password anna", "beforehand accounts password anna --stdin < secret")
)
@click.argument("name")
@click.option("--stdin", "piped", is_flag=True, help="Read it from standard input, up to the end of the line.")
@by_option
async def password(call: CommandCall, name: str, piped: bool, by: str) -> None:
    """Set the password of NAME, asked for here. It ends their sessions.

    It is never an argument: those can be seen by others on the machine.
    """
    async with call.serving() as service:
        book = Accounts(service.engine.journal)
        await book.known(name)
        hashed = Passwords().hashed(_typed_password(piped=piped), name)
        made = await book.change(name, AccountNote("password", by, hash=hashed))
    _say(call, made)


def _typed_password(*, piped: bool) -> str:
    if piped:
        line = sys.stdin.buffer.readline().decode("utf-8", "surrogateescape")  # non-UTF-8 bytes are refused as such
        return line.rstrip("\r\n")
    if not sys.stdin.isatty():
        raise UsageError("a password can be typed only at a terminal", next_step="pipe it in with --stdin")
    asked: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return asked


_WORDS: Final[dict[str, tuple[str, str]]] = {
    "disable": (
        "Disable the account NAME.\n\nThe user is signed out and may do nothing; their tokens no longer sign in.",
        "disable",
    ),
    "enable": ("Enable the account NAME again.\n\nIts roles are those that it had before.", "enable"),
    "signout": ("End all sessions of NAME.\n\nTokens stay: revoke those one by one.", "out"),
}


def _declared(word: str) -> click.Command:
    about, noted = _WORDS[word]

    async def change(call: CommandCall, name: str, why: str, by: str) -> None:
        note = msgspec.convert({"word": noted, "by": by, "why": why}, AccountNote)
        async with call.serving() as service:
            made = await Accounts(service.engine.journal).change(name, note)
        _say(call, made)

    change.__doc__ = about
    why = click.option("--why", default="", metavar="TEXT", help="Why; it is recorded.")
    return command(word, examples=(to_type("accounts", word, "ben"),))(click.argument("name")(why(by_option(change))))


def _say(call: CommandCall, account: Account, next_step: str = "") -> None:
    if call.screen.wrote_json(_shown(account)):
        return
    _line(call, account)
    if next_step and not account.subject:
        call.screen.note(next_step)


def _shown(account: Account) -> ListedAccount:
    return ListedAccount(account.name, account.grants, bool(account.hash), account.subject, account.disabled)


def _line(call: CommandCall, account: Account) -> None:
    states = ["disabled"] if account.disabled else []
    if not account.hash and not account.subject:
        states.append("no password")
    grants = "; ".join(map(str, account.grants))
    call.screen.line((account.name, "bold"), f"  {safe(grants)}", ("".join(f"  {state}" for state in states), "dim"))


for _command in (add, listing, role_, password, subject_, *map(_declared, _WORDS), token, audit):
    accounts.add_command(_command)
