"""`holdfast tell`: say something to a run, which its code hears before its next write."""

from __future__ import annotations

import click
import msgspec

from holdfast.errors import UsageError
from holdfast.interfaces.cli.common import Call, by_option, command
from holdfast.interfaces.cli.words import safe, sentence
from holdfast.interfaces.heeding import until_taken


class Given(msgspec.Struct, frozen=True):
    """What was told, as `tell --json` gives it. `applied`: the run knows it already."""

    run: str
    text: str
    facts: dict[str, object]
    stop: bool
    by: str
    applied: bool
    next_step: str


@command(
    "tell",
    examples=(
        "holdfast tell trip-17 'I wanted LaGuardia' --fact airport=LGA",
        "holdfast tell trip-17 'use the other card' --fact card=visa-2 --by anna",
        "holdfast tell trip-17 'we are not going' --stop",
    ),
)
@click.argument("run")
@click.argument("text", default="")
@click.option(
    "--fact", "facts", multiple=True, metavar="NAME=VALUE", help="What is so; a VALUE that is no JSON is text."
)
@click.option("--stop", is_flag=True, help="Let no new write begin any more, whatever the code does.")
@click.option("--once", default="", metavar="ID", help="A name for this message: telling it again changes nothing.")
@by_option
async def tell(call: Call, run: str, text: str, facts: tuple[str, ...], stop: bool, **said: str) -> None:
    """Tell RUN something. Its code hears TEXT before it writes anything new.

    A fact corrects what the run knows: what rests on the old value is not sent any more.
    What was sent already is finished first. To end a run whatever its code wants, use
    `holdfast cancel`.
    """
    known = dict(map(_fact, facts))
    async with call.serving() as service:
        applied = await until_taken(service.engine, await service.tell(run, text, facts=known, stop=stop, **said))
    done = Given(run, text, known, stop, said["by"], applied.at_once, f"holdfast resume {run}")
    if call.screen.as_json:
        call.screen.document(done)
        return
    if applied.elsewhere:
        what = f"{applied.note}: nothing new begins before its code has heard it" if applied.at_once else applied.note
        call.screen.line(f"{safe(run)} is told.")
        call.screen.line(sentence(what))
        return
    call.screen.line(f"{safe(run)} is told. Its code hears it before its next write.")
    if applied.at_once:
        call.screen.next(done.next_step)


def _fact(given: str) -> tuple[str, object]:
    name, sign, value = given.partition("=")
    if not (name and sign):
        raise UsageError(f"{given!r} names no fact", next_step="write --fact NAME=VALUE")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value
