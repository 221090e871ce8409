"""`beforehand notices`: the sent notices, their channels, and their delivery status."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from beforehand.cli.apps import Beforehand, app_of, reach_of, reach_option
from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.screen import Screen
from beforehand.engine.environment import SystemClock, SystemRng
from beforehand.engine.settings import Settings
from beforehand.errors import BeforehandError, UsageError
from beforehand.inspect.signing_keys import keep_keys, load_keys
from beforehand.inspect.text import ago, count, safe
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Post
from beforehand.model.shell import to_type
from beforehand_console.links import KEYS
from beforehand_console.notify.reach import reach_from
from beforehand_console.notify.schedule import Sent, run_of, stream_of
from beforehand_console.notify.status import NAMED, ChannelStatus, DueNotice, NoticeStatus, channel_statuses, due_now

_WORDS: Final = ("list", "test", "rotate")
_COLOURS: Final = {"sent": "green", "on the way": "yellow", "quiet": "dim", "unknown": "red", "failed": "red"}
FAILED: Final = 1


class NoticesOptions(msgspec.Struct, frozen=True):
    """The options of `beforehand notices`."""

    limit: int
    reach: str | None
    private_webhooks: bool
    by: str


@command(
    "notices",
    examples=(
        "beforehand notices",
        "beforehand notices test --reach reach.yaml",
        "beforehand notices test ops",
        "beforehand notices rotate",
    ),
)
@click.argument("word", type=click.Choice(_WORDS), default="list", metavar="[list|test|rotate]")
@click.argument("channel", default="")
@click.option("--limit", default=10, show_default=True, metavar="N", type=click.IntRange(1), help="How many of each.")
@click.option("--private-webhooks", is_flag=True, help="Allow chats at private addresses.")
@reach_option
@by_option
async def notices(call: CommandCall, word: str, channel: str, **given: object) -> int | None:
    """List sent notifications with their channels and delivery status, and what is due.

    `test` sends a test notice through each channel, or through CHANNEL, and reports the
    result. `rotate` makes a new key for signed links; links signed with the previous key
    stay valid until they expire.
    """
    options = msgspec.convert(given, NoticesOptions)
    if word == "rotate":
        async with call.reader() as reader:
            _rotate(call, reader.identity.sidecar(KEYS))
        return None
    if word == "test":
        return await _test(call, channel, options)
    path = reach_of(options.reach)
    channels = [one for one in reach_from(path).channels if channel in ("", one.name)] if path is not None else []
    async with call.reader() as reader:
        found = await channel_statuses(reader, limit=options.limit, channel=channel)
        due = await due_now(reader, channels, SystemClock().wall_ms())
    if call.screen.wrote_json({"channels": found, "due": due} if path is not None else {"channels": found}):
        return None
    if not found:
        call.screen.line("No notifications were sent yet.")
    for one in found:
        _show(call.screen, one)
    for next_one in due:
        _show_due(call.screen, next_one)
    return None


async def _test(call: CommandCall, channel: str, options: NoticesOptions) -> int:
    """Send a test notice through each channel; the exit status says whether all of them were taken."""
    path = reach_of(options.reach)
    if path is None:
        raise UsageError(
            "no recipients are configured",
            next_step="name the file: --reach reach.yaml, or [tool.beforehand] reach in pyproject.toml",
        )
    reach = reach_from(path)
    names = [one.name for one in reach.channels if channel in ("", one.name)]
    if not names:
        raise UsageError(f"{path} has no channel {channel}", known=f"channels: {', '.join(sorted(reach.by_name))}")
    settings = Settings(private_webhooks=options.private_webhooks)
    async with app_of(call, (), create=True, settings=settings, reach=reach) as app:
        results = [await _test_one(app, name, options.by) for name in names]
    if not call.screen.wrote_json({"tested": results}):
        for name, one in zip(names, results, strict=True):
            call.screen.line((name, "bold"), "  ", (one.state, _COLOURS[one.state]), f"  {safe(one.said)}")
    return 0 if all(one.state == "sent" for one in results) else FAILED


async def _test_one(app: Beforehand, name: str, by: str) -> NoticeStatus:
    engine = app.engine
    sent = Sent(engine.environment.clock.wall_ms(), test=by)
    while True:
        number = len(await engine.journal.entries(stream_of(name))) + 1
        entry = await engine.journal.commit(Post(stream_of(name), str(number), written(sent)))
        if entry.fresh:
            break
    await app.run_housekeeping()
    try:
        await app.drive(run_of(name, number))
    except BeforehandError as error:
        return NoticeStatus(run_of(name, number), number, "failed", str(error), sent.at_ms, [], [], 0, by)
    (status,) = await channel_statuses(app.service.reader, limit=1, channel=name)
    return status.notices[0]


def _rotate(call: CommandCall, path: Path | None) -> None:
    keys = load_keys(path) if path is not None else None
    if path is None or keys is None:
        raise UsageError(
            "this journal has no link key yet", known="it is made when the first link is signed",
            next_step="a key that was given to Reach(link_key=...) is rotated where it is kept: the new one first",
        )  # fmt: skip
    keep_keys(path, keys.rotated(SystemRng().token() + SystemRng().token()))
    call.screen.line("Links are signed with a new key from the next start of a worker or an app on.")


def _show(screen: Screen, one: ChannelStatus) -> None:
    screen.line((one.channel, "bold"), f"  {count(one.messages, 'message')}")
    screen.line(f"  {len(one.on_the_way)} on the way, {len(one.unknown)} unknown, {len(one.failed)} not sent")
    now_ms = SystemClock().wall_ms()
    for notice in one.notices:
        screen.line(
            "  ", (notice.state, _COLOURS[notice.state]), f"  {ago(notice.at_ms, now_ms)}  {safe(_about(notice))}"
        )
        if notice.state in {"unknown", "failed"}:
            screen.line(f"    {safe(notice.said)}")
            screen.commands(to_type("show", notice.run), indent="    ")


def _show_due(screen: Screen, one: DueNotice) -> None:
    """Show the notice that a worker would send to this channel now."""
    if not one.items:
        return
    rest = f" and {len(one.items) - NAMED} more" if len(one.items) > NAMED else ""
    screen.line(("due", "yellow"), f"  {one.channel} ({safe(one.receiver)}), {', '.join(one.words)}:")
    screen.line(f"  {safe(', '.join(one.items[:NAMED]))}{rest}")
    screen.line(("  every app with a reach sends it, and: beforehand worker", "dim"))


def _about(notice: NoticeStatus) -> str:
    if notice.test:
        return f"a test, asked for by {notice.test}"
    word = "" if notice.words == ["new"] else f" ({', '.join(notice.words)})"
    rest = f" and {notice.about - 1} more" if notice.about > 1 else ""
    return f"{notice.items[0]}{rest}{word}"
