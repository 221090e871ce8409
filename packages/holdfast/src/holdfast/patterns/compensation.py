"""Compensations for messages, records and money, and for what only a person can fix. For repositories, see `commits`.

Each takes the operation to compensate. Its own effects belong to the compensation,
which has an identity of its own: its marker and key differ from those of the operation that it compensates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from email.message import EmailMessage
from typing import Any, Literal, NoReturn, TypeVar, cast

from holdfast.engine.current_operation import current_operation
from holdfast.errors import Rejected
from holdfast.model.view import Operation

T = TypeVar("T")


def follow_up(operation: Operation[Any], *, sender: str, to: str, subject: str, text: str) -> EmailMessage:
    """A message that corrects one that was sent, in its thread: a sent message cannot be recalled.

    It answers the Message-ID that the first message was given (`current_operation().marker` of its tool) and has one of
    its own, by which the compensation's `verify` can find it. Send it as you send others. Raises `ValueError` for a
    line break in an address or the subject.
    """
    message = EmailMessage()
    message["From"], message["To"] = sender, to
    message["Subject"] = subject if subject.lower().startswith("re:") else f"Re: {subject}"
    message["Message-ID"] = f"<{current_operation().marker}>"
    message["In-Reply-To"] = message["References"] = f"<{operation.marker}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    return message


async def close_or_label(
    operation: Operation[Any],
    *,
    close: Callable[[str], Awaitable[object] | object],
    label: Callable[[str], Awaitable[object] | object],
) -> Literal["closed", "labelled"]:
    """Close a record that should not exist; if that is refused, label it. It is never deleted.

    Others may have seen the record, and its history has to stay readable: both are given a note that says so.
    Only a refusal (`Rejected`) leads to the label; everything else is the compensation's own failure.
    """
    note = f"Made by mistake and taken back: {operation.id}"
    try:
        await _done(close(note))
    except Rejected as refused:
        await _done(label(f"{note} (could not be closed: {refused.message})"))
        return "labelled"
    return "closed"


async def release_or_refund(
    operation: Operation[Any], *, release: Callable[[str], Awaitable[T] | T], refund: Callable[[str], Awaitable[T] | T]
) -> T:
    """Release money that is only held; refund money that was taken.

    A reservation that its transaction confirmed is refunded. Any other is released, and refunded if the service
    refuses to release it (`Rejected`), since it was captured in the meantime. Each has an idempotency key of its
    own, so that the stored refusal of one is not the answer to the other.
    """
    key = current_operation().key
    if not operation.confirmed:
        try:
            return await _done(release(f"{key}-release"))
        except Rejected:
            pass  # no longer held: refund what was taken
    return await _done(refund(f"{key}-refund"))


def for_operator(operation: Operation[Any], why: str) -> NoReturn:
    """Leave it to a person: the transaction is parked, and shows `why` beside what was undone and what was not.

    The person fixes it in the outside system, then runs `holdfast transaction RUN/NAME --accept`. Raises `Rejected`.
    """
    raise Rejected(f"{operation.id} needs a person: {why}", code="review")


async def _done(answer: Awaitable[T] | T) -> T:
    if isinstance(answer, Awaitable):
        return cast("T", await answer)
    return answer
