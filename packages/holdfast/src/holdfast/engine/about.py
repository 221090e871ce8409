"""What a caller says about one call besides its arguments, for whoever judges it."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.engine.scopes import Scope
from holdfast.model import records as r


class About(msgspec.Struct, frozen=True, gc=False):
    """How sure its chooser is (0 to 1), what touched its arguments, and why it is sent again if anything is pending."""

    confidence: float | None = None
    taint: str = ""
    again: str = ""


NOTHING_SAID: Final = About()


def with_about(scope: Scope, intent: r.Intent, about: About) -> r.Intent:
    """The intent with it. Where nobody says how sure the call is, the decision before it in its branch does."""
    sure = scope.host.sure if about.confidence is None else about.confidence
    return msgspec.structs.replace(intent, confidence=sure, taint=about.taint, again=about.again)
