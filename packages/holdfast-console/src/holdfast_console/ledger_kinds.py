"""The ledger streams of accounts and notifications, for `holdfast doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast_console.auth.accounts import AccountNote
from holdfast_console.auth.sessions import SessionNote
from holdfast_console.auth.tokens import TokenNote
from holdfast_console.notify.schedule import MISSED, Missed, Sent

KINDS: Final[Mapping[str, Any]] = {
    "accounts": AccountNote,
    "links": dict[str, str],
    "notices": Sent,
    MISSED.rstrip("/"): Missed,
    "sessions": SessionNote,
    "sign-in": dict[str, str],
    "tokens": TokenNote,
}
