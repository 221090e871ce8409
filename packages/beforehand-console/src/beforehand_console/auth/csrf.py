"""CSRF check based on the Fetch Metadata and Origin headers. Pure: headers in, a reason to refuse out.

Browsers say where a request comes from, and no page can make them lie: `Sec-Fetch-Site` (Fetch Metadata) and `Origin`.
A request that changes something must prove that it comes from here, or carry a token, which no browser adds by itself.
"""

from __future__ import annotations

from typing import Final

import msgspec

SAFE: Final = frozenset({"GET", "HEAD"})
UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OWN: Final = frozenset({"same-origin", "none"})  # none: a person typed the address, or followed a bookmark
_EMBEDDED: Final = frozenset({"object", "embed", "iframe", "frame", "fencedframe"})


class RequestOrigin(msgspec.Struct, frozen=True):
    """The origin of a request, by its own headers. None: it does not say."""

    method: str
    origin: str | None = None
    site: str | None = None  # Sec-Fetch-Site
    mode: str | None = None  # Sec-Fetch-Mode
    dest: str | None = None  # Sec-Fetch-Dest
    has_token: bool = False


def refusal(request: RequestOrigin, own: str) -> str:
    """Why it is refused; empty if it may pass. `own` is the origin under which the server was addressed."""
    if request.method in SAFE:
        return _of_safe(request)
    if request.site is not None and request.site not in _OWN:
        return f"it comes from another site (Sec-Fetch-Site: {request.site})"
    if request.origin is not None and request.origin.lower() != own:
        return "it comes from another origin"
    if request.site is None and request.origin is None and not request.has_token:
        return "it does not say where it comes from: a browser would, and a program sends a token"
    return ""


def _of_safe(request: RequestOrigin) -> str:
    """Check a safe request: links from elsewhere may lead here; other sites may not load our pages into theirs."""
    if request.site is None or request.site in _OWN:
        return ""
    is_link = request.mode == "navigate" and request.dest not in _EMBEDDED
    return "" if is_link else f"it is loaded by another site (Sec-Fetch-Site: {request.site})"
