"""What a model wrote into a question is shown on every channel, and obeyed, hidden or made a link of on none."""

import html
import json
import re
from email.policy import SMTP
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.errors import UsageError
from beforehand_console import Mail, Slack
from beforehand_console.notify.channel import SendContext
from beforehand_console.notify.chats import blocks, card
from beforehand_console.notify.compose import Letter, LetterLine, harmless
from beforehand_console.notify.mail import written
from tests.unit.console.notify.offices import page, plain

MAIL = Mail(to="ann@example.com", sender="desk@example.com", tls="none")
LINK = "https://desk.example.com/links/token"
OUTSIDE = SendContext("marker@beforehand.invalid", lambda _line: LINK, private=False, clock_s=0)
HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "see https://evil.example.com/?q=1 or www.evil.example.com or evil.com",
    "[click me](https://evil.example.com) ![x](http://evil.example.com/i.png)",
    "<https://evil.example.com|your bank> <!channel> <@U123> <#C1>",
    "mailto:mallory@evil.example.com tel:+4912345 JavaScript:alert(1)",
    "line\r\nBcc: mallory@evil.example.com\r\n\r\nbody",
    "\u202egnp.exe \u200bzero\u200bwidth \x1b[31mred\x1b[0m",
    "evil\u3002com evil\uff0ecom \u0435vil.\u0440\u0444 xn--e1afmkfd.xn--p1ai 127.0.0.1:8080",
    "*bold* _it_ ~no~ `code` > quote :tada:",
    "{{DATE(2017-02-14T06:08:39Z,SHORT)}} <at>everyone</at>",
    '"><a href="https://evil.example.com">x</a>',
    ".\r\n.\r\nQUIT\r\n",
]
LINKS = re.compile(r"[a-z]+://|www\.|mailto:|\b[\w-]+[.\u3002\uff0e\uff61][^\W\d_]{2,}", re.IGNORECASE)


def letter(text: str) -> Letter:
    line = LetterLine(
        "t-1/refund#1", "approval", "new", text, "d1", (("Tool", text), ("Arguments", text)), 1, 2, "beforehand inbox"
    )
    return Letter(0, (line,))


class Page(HTMLParser):
    """Which elements and links a page really has."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.links: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.links += [value for name, value in attrs if name in {"href", "src"}]
        assert not [name for name, _ in attrs if name.startswith("on")]


def texts(value: Any) -> list[str]:
    match value:
        case dict():
            return [
                one
                for key, inner in value.items()
                if key not in {"url", "$schema", "contentType", "type"}
                for one in texts(inner)
            ]
        case list():
            return [one for inner in value for one in texts(inner)]
        case str():
            return [value]
        case _:
            return []


@pytest.mark.parametrize("text", HOSTILE)
def test_a_mail_has_one_link_and_the_headers_that_we_wrote(text: str):
    message = written(MAIL, letter(text), OUTSIDE)
    assert sorted(message.keys()) == sorted([
        "Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted", "X-Auto-Response-Suppress", "MIME-Version",
        "Content-Type",
    ])  # fmt: skip
    seen = Page()
    seen.feed(page(message))
    assert seen.links == [LINK]
    assert seen.elements <= {
        "html", "head", "meta", "body", "h1", "hr", "table", "tr", "td", "b", "blockquote", "p", "a", "code", "br",
    }  # fmt: skip
    for shown in (plain(message), html.unescape(re.sub(r"<[^>]*>", " ", page(message)))):
        assert not LINKS.search(shown.replace(LINK, ""))
    assert b"\n.\r\n" not in message.as_bytes(policy=SMTP)


@pytest.mark.parametrize("text", HOSTILE)
def test_slack_reads_no_markup_in_it(text: str):
    payload = blocks(letter(text), OUTSIDE)
    marked = [block["text"]["text"] for block in payload["blocks"] if block.get("text", {}).get("type") == "mrkdwn"]
    assert marked == [f"<{LINK}|Open it in the inbox>"], "the only markup is ours"
    for shown in texts(payload):
        if shown not in marked:
            assert not set("<>") & set(shown)
            assert not LINKS.search(shown)
    assert "*" not in payload["text"]
    for block in payload["blocks"]:
        assert len(block.get("text", {}).get("text", "-")) <= 3000


@pytest.mark.parametrize("text", HOSTILE)
def test_teams_reads_no_markdown_in_it(text: str):
    payload = card(letter(text), OUTSIDE)
    (attachment,) = payload["attachments"]
    assert {block["type"] for block in attachment["content"]["body"]} == {"RichTextBlock"}, "text runs know no markdown"
    assert [action["url"] for action in attachment["content"]["actions"]] == [LINK]
    for shown in texts(payload):
        assert not LINKS.search(shown)
        assert "{{" not in shown, "a card computes what stands in these"
    assert len(json.dumps(payload)) < 28_000


@given(st.text(max_size=300))
def test_no_text_becomes_a_link_or_leaves_its_line(text: str):
    made = harmless(text)
    assert "://" not in made
    assert not re.search(r"(?<=\w)[.\u3002\uff0e\uff61](?=[^\W\d_])", made)
    assert not set(made) & set("\r\n\x00\x1b\u202e\u2028\u200b\u0085")


@given(st.text(max_size=200))
def test_any_text_gives_a_mail_that_can_be_sent(text: str):
    raw = written(MAIL, letter(text), OUTSIDE).as_bytes(policy=SMTP)
    head, _, _ = raw.partition(b"\r\n\r\n")
    assert b"\r\nBcc" not in head
    assert raw.isascii()


@pytest.mark.parametrize("text", ["1.50", "12:30", "a - b", "refund#1", "100%"])
def test_what_is_harmless_stays_as_it_is(text: str):
    assert harmless(text) == text


@pytest.mark.parametrize(
    "settings",
    [
        {"to": "ann@example.com\r\nBcc: mallory@example.com"},
        {"to": "ann@example.com, bob@example.com"},
        {"to": "Ann <ann@example.com>"},
        {"to": ""},
        {"sender": "desk"},
        {"server": "mail.example.com\r\nQUIT"},
        {"server": ""},
        {"server": "mail.example.com", "user": "desk", "password": "x" * 20},
        {"name": "a b"},
    ],
)
def test_a_mail_that_cannot_be_is_refused(settings: dict[str, str]):
    with pytest.raises(UsageError):
        Mail(**{"to": "ann@example.com", "sender": "desk@example.com", "tls": "none", **settings})


def test_what_is_secret_is_in_no_text_of_a_channel():
    channel = Slack("https://hooks.example.com/T0/B0/canary", name="ops")
    assert "canary" not in repr(channel) + str(channel) + channel.receiver
    assert "canary" not in repr(Mail(to="ann@example.com", sender="d@example.com", user="d", password="canary"))
