"""The ledger streams of accounts, notifications and shadow reviews, for `beforehand doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from beforehand_console.auth.accounts import AccountNote
from beforehand_console.auth.sessions import SessionNote
from beforehand_console.auth.tokens import TokenNote
from beforehand_console.notify.schedule import MISSED, Missed, Sent
from beforehand_console.reviews.shadow_reviews import ShadowReview

KINDS: Final[Mapping[str, Any]] = {
    "accounts": AccountNote,
    "links": dict[str, str],
    "notices": Sent,
    MISSED.rstrip("/"): Missed,
    "sessions": SessionNote,
    "shadow": ShadowReview,
    "sign-in": dict[str, str],
    "tokens": TokenNote,
}
