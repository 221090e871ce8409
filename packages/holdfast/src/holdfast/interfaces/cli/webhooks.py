"""`holdfast webhooks`: who is told of what happens to runs, and what became of each notice."""

from __future__ import annotations

import os
from typing import Final

import click
import msgspec

from holdfast.errors import UsageError
from holdfast.interfaces.cli.common import Call, by_option, command
from holdfast.interfaces.cli.screen import Screen
from holdfast.interfaces.cli.words import count, safe
from holdfast.interfaces.webhooks import Change, Told, Webhooks, told
from holdfast.model.webhooks import ABOUT_RUNS, KINDS, Kind, Note

_CHANGES: Final[dict[str, Change]] = {"enable": "enable", "disable": "disable", "remove": "remove"}
_WORDS: Final = ("list", "add", *_CHANGES, "resend")


class Given(msgspec.Struct, frozen=True):
    """What was said beside the word, the name and the address."""

    secrets: tuple[str, ...]
    private: bool
    why: str
    by: str


@command(
    "webhooks",
    examples=(
        "holdfast webhooks",
        "holdfast webhooks add ops https://example.com/hooks --secret-env OPS_SECRET",
        "holdfast webhooks enable ops",
    ),
)
@click.argument("word", type=click.Choice(_WORDS), default="list", metavar="[list|add|enable|disable|remove|resend]")
@click.argument("name", default="")
@click.argument("url", default="")
@click.option(
    "--secret-env", "secrets", multiple=True, metavar="NAME", help="A variable with its secret, newest first."
)
@click.option(
    "--on",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="What to tell; all that happens to runs if not given.",
)
@click.option("--private", is_flag=True, help="Let the address be a private one, or unencrypted.")
@click.option("--why", default="", metavar="TEXT", help="Why; it is recorded.")
@by_option
async def webhooks(call: Call, word: str, name: str, url: str, kinds: tuple[Kind, ...], **given: object) -> None:
    """Tell others what happens to runs: by signed POSTs (Standard Webhooks) to URL.

    A notice is durable with what it tells, and is sent by `holdfast worker` or an
    open app, again and again for days under one webhook-id. An endpoint that takes
    nothing in all that time, or answers 410 Gone, is disabled. `resend` orders one
    more try of what was given up.
    """
    if word == "list":
        async with call.looking() as looking:
            found = await told(looking)
        _show(call, found)
        return
    if not name:
        raise UsageError(f"webhooks {word} wants the name of an endpoint")
    said = msgspec.convert(given, Given)
    async with call.serving(create=word == "add", private_webhooks=said.private) as service:
        orders = Webhooks(service)
        if word == "add":
            _check_secrets(said.secrets)
            await orders.add(Note("add", name, said.by, said.why, url, said.secrets, kinds or ABOUT_RUNS))
        elif word == "resend":
            again = await orders.resend(name, by=said.by)
            call.screen.note(f"{count(again, 'notice')} sent again by the next worker.")
        else:
            await orders.change(name, _CHANGES[word], by=said.by, why=said.why)
        found = await told(service.looking)
    _show(call, found)


def _check_secrets(names: tuple[str, ...]) -> None:
    """Each variable holds a secret that can sign. Raises `UsageError`."""
    try:
        from standardwebhooks import Webhook  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise UsageError(
            "webhooks need the package that signs them", next_step="pip install 'holdfast[server]'"
        ) from error
    for name in names:
        try:
            Webhook(os.environ.get(name, ""))
        except Exception as error:
            raise UsageError(
                f"the variable {name} holds no webhook secret", next_step="put one there: whsec_ and base64"
            ) from error


def _show(call: Call, found: list[Told]) -> None:
    if call.screen.as_json:
        call.screen.document({"webhooks": found})
        return
    if not found:
        call.screen.line("Nobody is told.")
    for one in found:
        _show_one(call.screen, one)


def _show_one(screen: Screen, one: Told) -> None:
    screen.line((one.name, "bold"), f"  {safe(one.url)}  {safe(one.state)}")
    screen.line(
        f"  {count(one.delivered, 'notice')} delivered, {len(one.waiting)} on the way, {len(one.given_up)} given up"
    )
    for run in (*one.waiting[:5], *one.given_up[:5]):
        screen.line(f"  holdfast show {run}")
