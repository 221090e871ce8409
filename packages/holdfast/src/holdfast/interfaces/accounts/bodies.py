"""Bodies of requests: read to their end before anybody looks at them, of the form and size that is expected."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from holdfast.interfaces.accounts.replies import Message, Receive, Refused

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
PATIENCE_S: Final = 20
"""Seconds within which a body has come, or whoever sends it only wants to hold the line."""


async def read_body(headers: Mapping[str, str], receive: Receive, expected: str, largest: int) -> bytes | Refused:
    """The whole body. The API takes JSON and pages take their own forms: no page elsewhere sends JSON unasked."""
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        return Refused(400, "this is no length")
    if len(declared) > 12 or int(declared) > largest:
        return _too_large(largest)
    try:
        async with asyncio.timeout(PATIENCE_S):
            body = await _whole(receive, largest)
    except TimeoutError:
        return Refused(408, f"a body comes within {PATIENCE_S} seconds")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != expected and not isinstance(body, Refused):
        return Refused(415, f"a body is {expected} here")
    return body


def replayed(body: bytes, receive: Receive) -> Receive:
    """Give the app the body that was read, and after it what the server has to say."""
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return given.pop() if given else await receive()

    return next_message


async def _whole(receive: Receive, largest: int) -> bytes | Refused:
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return Refused(400, "it broke off before it was whole")
        body += message.get("body", b"")
        if len(body) > largest:
            return _too_large(largest)
        more = message.get("more_body", False)
    return bytes(body)


def _too_large(largest: int) -> Refused:
    return Refused(413, f"a body has {largest} bytes at most")
