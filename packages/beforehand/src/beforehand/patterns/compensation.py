"""Compensations for messages, records and money, and for what only a person can fix. For repositories, see `commits`.

Each takes the operation to compensate. Its own effects belong to the compensation,
which has an identity of its own: its marker and key differ from those of the operation that it compensates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from email.message import EmailMessage
from typing import Any, Literal, NoReturn, TypeVar, cast

from beforehand.engine.current_operation import current_operation
from beforehand.errors import Rejected
from beforehand.model.view import Operation

T = TypeVar("T")


def follow_up(operation: Operation[Any], *, sender: str, to: str, subject: str, text: str) -> EmailMessage:
    """A message that corrects a sent message, in the same thread. A sent message cannot be recalled.

    It replies to the Message-ID of the first message (`current_operation().marker` of its tool). It has a Message-ID of
    its own, by which the compensation's `verify` can find it. Send it like other messages. Raises `ValueError` for a
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
    """Close a record that should not exist, or label it if closing is refused. It is never deleted.

    Others may have seen the record, so its history has to stay readable. `close` and `label` both receive a note that
    says so. Only a refusal (`Rejected`) leads to the label; every other error is a failure of the compensation.
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
    """Release money that is only held, or refund money that was taken.

    A reservation that its transaction confirmed is refunded. Any other reservation is released. If the service refuses
    to release it (`Rejected`), it was captured in the meantime and is refunded. Both calls have an idempotency key of
    their own, so that the stored refusal of one is not the answer to the other.
    """
    key = current_operation().key
    if not operation.confirmed:
        try:
            return await _done(release(f"{key}-release"))
        except Rejected:
            pass  # no longer held: refund what was taken
    return await _done(refund(f"{key}-refund"))


def for_operator(operation: Operation[Any], why: str) -> NoReturn:
    """Leave the compensation to a person. The transaction is parked with `why`, what was undone and what was not.

    The person corrects the outside system, then runs `beforehand transaction RUN/NAME --accept`. Raises `Rejected`.
    """
    raise Rejected(f"{operation.id} needs a person: {why}", code="review")


async def _done(answer: Awaitable[T] | T) -> T:
    if isinstance(answer, Awaitable):
        return cast("T", await answer)
    return answer
