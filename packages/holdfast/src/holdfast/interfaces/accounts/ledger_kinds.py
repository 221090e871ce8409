"""The ledger streams of accounts and notifications, for `holdfast doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.interfaces.accounts.book import AccountNote
from holdfast.interfaces.accounts.sessions import SessionNote
from holdfast.interfaces.accounts.tokens import TokenNote
from holdfast.model.notices import MISSED, Missed, Sent

KINDS: Final[Mapping[str, Any]] = {
    "accounts": AccountNote,
    "links": dict[str, str],
    "notices": Sent,
    MISSED.rstrip("/"): Missed,
    "sessions": SessionNote,
    "sign-in": dict[str, str],
    "tokens": TokenNote,
}
