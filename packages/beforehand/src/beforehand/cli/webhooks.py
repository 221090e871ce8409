"""`webhooks`, `deliver`, `pending` and `serve-hooks`: notices that go out, and answers that come in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal

import click
import msgspec

from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.inputs import any_json
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.engine.environment import SystemClock
from beforehand.errors import UsageError
from beforehand.inspect.reader import waits_of
from beforehand.inspect.text import count, safe
from beforehand.installation import needing
from beforehand.model.addresses import is_loopback
from beforehand.model.ids import operation_id, split_operation_id
from beforehand.model.records import NOTHING, Raw
from beforehand.model.shell import to_type
from beforehand.model.webhooks import ABOUT_RUNS, KINDS, Kind, Note
from beforehand.people.items import answers_to
from beforehand.webhooks.outgoing import Change, EndpointStatus, Webhooks, endpoint_statuses

if TYPE_CHECKING:
    from beforehand.webhooks.incoming import WebhookSender


_CHANGES: Final[dict[str, Change]] = {"enable": "enable", "disable": "disable", "remove": "remove"}
_WORDS: Final = ("list", "add", *_CHANGES, "resend")


class WebhookOptions(msgspec.Struct, frozen=True):
    """The options beside the word, the name and the address."""

    secrets: tuple[str, ...]
    private: bool
    why: str
    by: str


@command(
    "webhooks",
    examples=(
        "beforehand webhooks",
        "beforehand webhooks add ops https://example.com/in --secret-env OPS_SECRET",
        "beforehand webhooks enable ops",
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
    metavar="EVENT",
    help=f"An event to send: {', '.join(KINDS)}. Default: all events of runs.",
)
@click.option("--private", is_flag=True, help="Allow a private or unencrypted address.")
@click.option("--why", default="", metavar="TEXT", help="Why; it is recorded.")
@by_option
async def webhooks(call: CommandCall, word: str, name: str, url: str, kinds: tuple[Kind, ...], **given: object) -> None:
    """Send signed webhooks (Standard Webhooks) to URL about what happens to runs.

    A notice is recorded in the same commit as its event, and is sent by `beforehand worker` or
    an open app. It is retried for days under one webhook-id. An endpoint that accepts
    nothing in that time, or answers 410 Gone, is disabled. `resend` tries once more to
    send what was given up.
    """
    if word == "list":
        async with call.reader() as reader:
            found = await endpoint_statuses(reader)
        _show(call, found)
        return
    if not name:
        raise UsageError(f"webhooks {word} needs the name of an endpoint")
    options = msgspec.convert(given, WebhookOptions)
    async with call.serving(create=word == "add", private_webhooks=options.private) as service:
        orders = Webhooks(service)
        if word == "add":
            _check_secrets(options.secrets)
            await orders.add(Note("add", name, options.by, options.why, url, options.secrets, kinds or ABOUT_RUNS))
        elif word == "resend":
            again = await orders.resend(name, by=options.by)
            call.screen.note(f"{count(again, 'notice')} sent again by the next worker.")
        else:
            await orders.change(name, _CHANGES[word], by=options.by, why=options.why)
        found = await endpoint_statuses(service.reader)
    _show(call, found)


def _check_secrets(names: tuple[str, ...]) -> None:
    """Each variable holds a secret that can sign. Raises `UsageError`."""
    with needing("webhooks need standardwebhooks", "webhooks"):
        from standardwebhooks import Webhook  # noqa: PLC0415 - an extra
    for name in names:
        try:
            Webhook(os.environ.get(name, ""))
        except Exception as error:
            raise UsageError(
                f"the variable {name} holds no webhook secret", next_step="put one there: whsec_ and base64"
            ) from error


def _show(call: CommandCall, found: list[EndpointStatus]) -> None:
    if call.screen.wrote_json({"webhooks": found}):
        return
    if not found:
        call.screen.line("No endpoint is registered.")
    for one in found:
        delivered = f"  {count(one.delivered, 'notice')} delivered"
        call.screen.line((one.name, "bold"), f"  {safe(one.url)}  {safe(one.state)}")
        call.screen.line(f"{delivered}, {len(one.waiting)} on the way, {len(one.given_up)} given up")
        for run in (*one.waiting[:5], *one.given_up[:5]):
            call.screen.commands(to_type("show", run))


Status = Literal["succeeded", "failed", "pending"]


class Awaited(msgspec.Struct, frozen=True):
    """An awaited answer or event, as `pending --json` lists it. `due_ms`: the deadline on the wall clock, if any.

    `kind` is `answer` for the outcome of an operation, and `event` for an event that code waits for by name.
    `answers` are the commands that bring it.
    """

    operation: str
    asks: str
    due_ms: int | None
    kind: str
    answers: tuple[str, ...] = ()


@command(
    "deliver",
    examples=(
        """beforehand deliver INV-9 --id evt-1 --result '"paid"'""",
        "beforehand deliver INV-9 --id evt-2 --status failed --why 'card refused'",
    ),
)
@click.argument("key")
@click.option(
    "--id", "message", required=True, metavar="ID", help="The id of the message: sending it again changes nothing."
)
@click.option("--result", default=None, metavar="JSON", help="What the call would have returned.")
@click.option("--status", type=click.Choice(["succeeded", "failed", "pending"]), default="succeeded", show_default=True)
@click.option("--why", default="", metavar="TEXT", help="What the answer says; it is recorded.")
@by_option
async def deliver(
    call: CommandCall, key: str, message: str, status: Status, result: str | None, **options: str
) -> None:
    """Deliver the answer that an operation awaits under KEY. An early answer is kept.

    The message is recorded once, under its id. `failed` means that it was refused and nothing
    landed. `pending` is recorded and settles nothing.

    The answer to a call that needed an approval is a statement about it: who started the
    run cannot deliver it, and where only a person who signed in may approve, a signed
    webhook has to. The id is the evidence: give the one by which others find the message.
    """
    if result is not None and status != "succeeded":
        raise UsageError("--result is what a call returned: it goes with --status succeeded")
    stored = NOTHING if result is None else Raw(msgspec.json.encode(any_json(result)))
    arrival = ArrivedAnswer(message, status, stored, options["why"], source=options["by"])
    async with call.serving() as service:
        done = await service.deliver(key, arrival)
    if call.screen.wrote_json(done):
        return
    call.screen.line("Recorded." if done.fresh else "This message was recorded before; nothing was added.")
    if not done.operation:
        call.screen.line(f"Nothing waits for {safe(key)} yet: it is kept until something does.")
        return
    call.screen.next(to_type("resume", split_operation_id(done.operation)[0]))


@command("pending", examples=("beforehand pending", "beforehand pending --json"))
async def pending(call: CommandCall) -> None:
    """List the answers and events that suspended runs wait for, the next deadline first.

    When the deadline of an answer passes, the operation is verified; if that proves nothing,
    a person is asked. `beforehand signal` sends an event. An event without a deadline comes
    last, and is awaited until the deadline of its run.
    """
    async with call.reader() as reader:
        awaited = [
            Awaited(operation_id(row.run, wait.step), wait.asks, wait.due, wait.kind, answers_to(row.run, wait))
            async for row in reader.every_run(status="suspended")
            for wait in waits_of(row)
            if wait.kind in {"answer", "event"}
        ]
    awaited.sort(key=lambda one: (one.due_ms is None, one.due_ms or 0, one.operation))
    if call.screen.wrote_json(awaited):
        return
    now = SystemClock().wall_ms()
    for one in awaited:
        call.screen.line(f"{_left(one.due_ms, now):>10}  {safe(one.asks)}")
        call.screen.commands(*one.answers, indent=" " * 12)
    if not awaited:
        call.screen.line("Nothing is awaited.")


def _left(due: int | None, now: int) -> str:
    if due is None:
        return "-"
    minutes = max(0, due - now) // 60_000
    return f"{minutes // 60} h {minutes % 60:02} m" if due > now else "overdue"


@command(
    "serve-hooks",
    examples=(
        "BANK=whsec_... beforehand serve-hooks --sender bank=BANK:tool=transfer",
        "beforehand serve-hooks --sender bank=BANK:tool=transfer,key=INV-",
    ),
)
@click.option(
    "--sender",
    "spelled",
    multiple=True,
    required=True,
    metavar="NAME=VARIABLE:BINDING",
    help="A sender, the variable with its secret, and tool=..., key=PREFIX (several: with commas), or 'any'.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8900, show_default=True, type=click.IntRange(0, 65535), help="On which port.")
@click.option("--cert", default="", metavar="FILE", help="A certificate with its chain, for TLS.")
@click.option("--key", default="", metavar="FILE", help="The key of that certificate, if it is in another file.")
@click.option(
    "--per-peer", default=64, show_default=True, metavar="N", type=click.IntRange(1), help="Connections per address."
)
async def serve_hooks(
    call: CommandCall, spelled: tuple[str, ...], host: str, port: int, per_peer: int, **files: str
) -> None:
    """Receive signed webhooks, until interrupted: the answers that runs wait for.

    A delivery is {"key", "status", "result" or "why"}, signed by the Standard Webhooks
    rules with the secret in the variable VARIABLE. A sender settles only what it is bound
    to: operations that call one of its tools, under keys with one of its prefixes.
    Workers continue the runs.
    """
    with needing("beforehand serve-hooks needs uvicorn", "webhooks"):
        import uvicorn  # noqa: PLC0415 - an extra
    from beforehand.webhooks.connections import (  # noqa: PLC0415 - an extra, as above
        ConnectionLimits,
        server_config,
        tls_context,
    )
    from beforehand.webhooks.incoming import Hooks  # noqa: PLC0415 - only this command needs them

    senders = [_sender(one) for one in spelled]
    if not files["cert"] and not is_loopback(host):
        raise UsageError(
            f"deliveries would cross the network in clear, so it does not listen on {host or 'every address'}",
            next_step="give a certificate: --cert FILE; or listen on 127.0.0.1, behind a proxy with TLS",
        )
    tls = tls_context(files["cert"], files["key"]) if files["cert"] else None
    async with call.serving() as service:
        app = Hooks(service, senders)
        call.screen.note(f"Taking webhooks on {'https' if tls else 'http'}://{host}:{port}/ until interrupted.")
        config = server_config(app, ConnectionLimits(per_peer=per_peer), tls, host=host, port=port)
        await uvicorn.Server(config).serve()


def _sender(spelled: str) -> WebhookSender:
    """`bank=BANK_SECRET:tool=transfer,key=INV-` as a sender. Raises `UsageError`."""
    from beforehand.webhooks.incoming import WebhookSender  # noqa: PLC0415 - only this command needs them

    named, _, binding = spelled.partition(":")
    name, _, variable = named.partition("=")
    bound: dict[str, list[str]] = {"tool": [], "key": []}
    for part in filter(None, binding.split(",")):
        kind, _, value = part.partition("=")
        if part != "any" and (kind not in bound or not value):
            raise UsageError(
                f"{part} binds the sender {name} to nothing",
                known="a binding is tool=NAME, key=PREFIX, both with a comma, or any",
                next_step=to_type("serve-hooks", "--sender", f"{name}={variable or 'SECRET_ENV'}:tool=TOOL"),
            )
        if part != "any":
            bound[kind].append(value)
    secret = os.environ.get(variable, "")
    sender = WebhookSender(
        name, secret, tuple(bound["tool"]), tuple(bound["key"]), anything="any" in binding.split(",")
    )
    if not secret:
        raise UsageError(
            f"the variable {variable or 'of ' + name} is empty", next_step="export the sender's secret in it: whsec_..."
        )
    return sender
