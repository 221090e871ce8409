"""`reach.yaml`: the channels that are notified of questions, as a file. It names secrets, and never holds one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from beforehand.errors import UsageError
from beforehand.model.secret import Secret
from beforehand.people.policy.policy_files import parse_yaml
from beforehand_console.notify.apprise import Apprise
from beforehand_console.notify.channel import Channel, hidden
from beforehand_console.notify.chats import Slack, Teams
from beforehand_console.notify.mail import Mail, Tls
from beforehand_console.notify.reach import EVERY, Reach
from beforehand_console.notify.schedule import HOUR, QUARTER, NotifiableKind, Only, Pace

_DURATION: Final = re.compile(r"(\d{1,6})\s*(s|m|min|h|d)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}


class _Only(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kinds: tuple[NotifiableKind, ...] = ()
    tools: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    due_within: str = ""


class _Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"sender": "from"}):
    """How mails are sent, for all of them."""

    sender: str
    server: str = "localhost"
    tls: Tls = "starttls"
    user: str = ""
    password_env: str = ""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One channel: the one of the first four fields that is set says its kind."""

    mail: str = ""
    slack_env: str = ""
    teams_env: str = ""
    apprise_env: str = ""
    name: str = ""
    only: _Only = _Only()
    after: str = ""
    remind_before: str = ""
    remind_every: str = ""
    most: int = 5
    window: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    channels: tuple[_Entry, ...]
    smtp: _Server | None = None
    base_url: str = ""
    link_key_env: str = ""
    every: str = ""


def load_reach(path: Path) -> Reach:
    """Read such a file. Raises `UsageError` naming what does not fit."""
    import yaml  # noqa: PLC0415 - an app that is given channels reads no file

    try:
        found: Any = parse_yaml(path.read_text(encoding="utf-8"))
        file = msgspec.convert(found, _File)
        channels = tuple(_channel(one, file.smtp) for one in file.channels)
        link_key = hidden(Secret(file.link_key_env), "link-key") if file.link_key_env else None
        return Reach(channels, file.base_url, link_key, _span(file.every, EVERY) or EVERY)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {_place(error)}") from error
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(
            f"{path} does not fit: {error}",
            next_step="correct it; the page how-to/notifications of the documentation has the form",
        ) from error


def _channel(one: _Entry, smtp: _Server | None) -> Channel:
    made = [make for word, make in _MAKERS.items() if getattr(one, word)]
    if len(made) != 1:
        raise UsageError(
            f"a channel has one of {', '.join(_MAKERS)}, and this one has {len(made)}",
            next_step="write one channel for each receiver",
        )
    return made[0](one, smtp)


def _mail(one: _Entry, smtp: _Server | None) -> Channel:
    if smtp is None:
        raise UsageError("a mail channel needs a server", next_step="write smtp: {from: desk@example.com, server: ...}")
    password: str | Secret = Secret(smtp.password_env) if smtp.password_env else ""
    return Mail(
        to=one.mail, sender=smtp.sender, server=smtp.server, user=smtp.user, password=password, tls=smtp.tls,
        name=one.name, only=_only(one.only), pace=_pace(one),
    )  # fmt: skip


def _slack(one: _Entry, _smtp: _Server | None) -> Channel:
    return Slack(Secret(one.slack_env), one.name or "slack", _only(one.only), _pace(one))


def _teams(one: _Entry, _smtp: _Server | None) -> Channel:
    return Teams(Secret(one.teams_env), one.name or "teams", _only(one.only), _pace(one))


def _apprise(one: _Entry, _smtp: _Server | None) -> Channel:
    return Apprise(Secret(one.apprise_env), one.name or "apprise", _only(one.only), _pace(one))


_MAKERS: Final[dict[str, Callable[[_Entry, _Server | None], Channel]]] = {
    "mail": _mail,
    "slack_env": _slack,
    "teams_env": _teams,
    "apprise_env": _apprise,
}


def _only(one: _Only) -> Only:
    return Only(one.kinds, one.tools, one.queues, one.people, _span(one.due_within, None))


def _pace(one: _Entry) -> Pace:
    return Pace(
        _span(one.after, timedelta(0)) or timedelta(0),
        _span(one.remind_before, HOUR) or timedelta(0),
        _span(one.remind_every, None),
        one.most,
        _span(one.window, QUARTER) or timedelta(0),
    )


def _span(text: str, default: timedelta | None) -> timedelta | None:
    """A duration such as 15m, 4h or 1d."""
    if not text:
        return default
    found = _DURATION.fullmatch(text)
    if found is None:
        raise UsageError(f"{text[:40]!r} is not a duration", next_step="write 30s, 15m, 4h or 1d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _place(error: Exception) -> str:
    """The place of the mistake; the error's text might hold a secret written there by mistake, such as a password."""
    mark: Any = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}" if mark is not None else type(error).__name__
