"""Notices to Slack and Teams by incoming webhooks, in the forms that these document.

Text of a model goes into fields without markup: Slack's `plain_text` and Teams' `TextRun`. An incoming webhook
has no key: without an answer the outcome is unknown, and it is not sent again on a guess.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from beforehand.model.secret import Secret
from beforehand.webhooks.http_post import post
from beforehand.webhooks.notifier import pause_s
from beforehand_console.notify.channel import SendContext, checked_address, checked_name, hidden, judged, revealed
from beforehand_console.notify.compose import BROKEN_UP, Letter, LetterLine, harmless, title, when
from beforehand_console.notify.schedule import Only, Pace

LINES: Final = 10
_SHORT: Final = 300
_MARKS: Final = re.compile(r"([*_~`>|])")


class Slack(msgspec.Struct, frozen=True):
    """A Slack channel by its incoming webhook. The address is a secret: name it, or give it from where you keep it."""

    url: str | Secret
    name: str = "slack"
    only: Only = Only()
    pace: Pace = Pace()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "url", hidden(self.url, f"{checked_name(self.name)}-url"))

    def __repr__(self) -> str:
        return f"Slack({self.name!r})"

    @property
    def receiver(self) -> str:
        """The destination."""
        return f"Slack {self.name}"

    def send(self, letter: Letter, outside: SendContext) -> str:
        """Send it once."""
        return _post(self.url, blocks(letter, outside), outside, "Slack")


class Teams(msgspec.Struct, frozen=True):
    """A Teams channel by a workflow that takes webhooks. The address is a secret, as Slack's is."""

    url: str | Secret
    name: str = "teams"
    only: Only = Only()
    pace: Pace = Pace()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "url", hidden(self.url, f"{checked_name(self.name)}-url"))

    def __repr__(self) -> str:
        return f"Teams({self.name!r})"

    @property
    def receiver(self) -> str:
        """The destination."""
        return f"Teams {self.name}"

    def send(self, letter: Letter, outside: SendContext) -> str:
        """Send it once."""
        return _post(self.url, card(letter, outside), outside, "Teams")


def _post(url: str | Secret, payload: dict[str, Any], outside: SendContext, what: str) -> str:
    assert isinstance(url, Secret), "the channel hid it"
    address = checked_address(revealed(url), what, private=outside.private)
    headers = {"content-type": "application/json", "user-agent": "beforehand"}
    answered = post(address, msgspec.json.encode(payload), headers, private=outside.private)
    at = datetime.fromtimestamp(outside.clock_s, UTC)
    return judged(answered.status, pause_s(answered.retry_after, at), what)


# --- Slack ---------------------------------------------------------------------------------------------


def blocks(letter: Letter, outside: SendContext) -> dict[str, Any]:
    """The payload for Slack: blocks, and a short text for where blocks are not shown."""
    made: list[dict[str, Any]] = [{"type": "header", "text": _plain(title(letter)[:150])}]
    for line in letter.lines[:LINES]:
        facts = "\n".join(f"{name}: {harmless(value, _SHORT)}" for name, value in _about(line))
        made.append({"type": "section", "text": _plain(facts)})
        made.append({"type": "section", "text": _plain(harmless(line.asks))})
        made.append({"type": "section", "text": _plain("\n".join(("Answer:", *line.answers)))})
        if link := outside.link(line):
            made.append({"type": "section", "text": _marked(f"<{link}|Open it in the inbox>")})
        made.append({"type": "divider"})
    made.append({"type": "context", "elements": [_plain("\n".join(_foot(letter)))]})
    text = _MARKS.sub(" ", _escaped(title(letter)))
    return {"text": text, "blocks": made, "unfurl_links": False, "unfurl_media": False}


def _plain(text: str) -> dict[str, Any]:
    """A text without markup. Slack takes 3,000 characters: what is left out of a longer one is named."""
    plain = _escaped(text)
    cut = f"{plain[:2800]}… ({len(plain) - 2800:,} more characters, see the page)" if len(plain) > 2900 else plain
    return {"type": "plain_text", "text": cut or "-", "emoji": False}


def _marked(text: str) -> dict[str, Any]:
    """Markup of our own: `verbatim` keeps Slack from making links of anything else."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# --- Teams ---------------------------------------------------------------------------------------------


def card(letter: Letter, outside: SendContext) -> dict[str, Any]:
    """The payload for Teams: a message with one Adaptive Card."""
    body: list[dict[str, Any]] = [_runs(("", title(letter)), size="Large")]
    actions: list[dict[str, Any]] = []
    for line in letter.lines[:LINES]:
        body += [_runs((f"{name}: ", harmless(value, _SHORT)), spacing="None") for name, value in _about(line)]
        body.append(_runs(("", harmless(line.asks)), separator=True))
        body += [_runs(("", one)) for one in ("Answer:", *line.answers)]
        if link := outside.link(line):
            actions.append({"type": "Action.OpenUrl", "title": f"Open {harmless(line.item, 60)}", "url": link})
    body += [_runs(("", text), isSubtle=True) for text in _foot(letter)]
    content = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": actions[:6],  # as many as a card shows
        "msteams": {"width": "Full"},
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": content}
    return {"type": "message", "attachments": [attachment]}


def _runs(fact: tuple[str, str], *, isSubtle: bool = False, **settings: Any) -> dict[str, Any]:  # noqa: N803 - the card's word
    """One paragraph of plain runs: no markdown is read in them. Double braces would be computed (`{{DATE(...)}}`)."""
    name, value = fact[0], fact[1].replace("{{", "{ {").replace("}}", "} }")
    runs: list[dict[str, Any]] = [{"type": "TextRun", "text": name, "weight": "Bolder"}] if name else []
    runs.append({"type": "TextRun", "text": value or "-", "isSubtle": isSubtle})
    return {"type": "RichTextBlock", "inlines": runs, **settings}


# --- both ----------------------------------------------------------------------------------------------


def _about(line: LetterLine) -> tuple[tuple[str, str], ...]:
    digest = (("Digest", line.digest),) if line.digest else ()
    return (("Item", line.item), *line.facts, *when(line), *digest)


def _foot(letter: Letter) -> list[str]:
    more = letter.more + max(0, len(letter.lines) - LINES)
    return [f"And {more} more: beforehand inbox", BROKEN_UP] if more else [BROKEN_UP]
