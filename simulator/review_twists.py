"""What the planted bugs put in the place of the functions that take a person's word on what nobody could decide."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.model import records as r
from holdfast.people.answers import DidNotHappen, RetrySameKey


def given_up_and_sent(steps: Any) -> Any:
    """That it did not happen is always an order to send it again."""

    def resolved(operation: Any, record: Any, boot: str) -> Any:
        word = "retry" if record.word == "did_not_happen" else record.word
        return steps[r.Resolved](operation, replace(record, word=word), boot)

    return {**steps, r.Resolved: resolved}


def no_means_happened(steps: Any) -> Any:
    """Whatever a person says, it happened."""

    def resolved(operation: Any, record: Any, boot: str) -> Any:
        word = "happened" if record.word == "did_not_happen" else record.word
        return steps[r.Resolved](operation, replace(record, word=word, result=r.Raw(b'"so it seems"')), boot)

    return {**steps, r.Resolved: resolved}


def whatever_its_age(original: Any) -> Any:
    """What is to be sent under the same key is sent as if it had not happened."""

    async def review(service: Any, now: Any, given: Any, by: str) -> Any:
        known = DidNotHappen("retry", given.evidence) if isinstance(given, RetrySameKey) else given
        return await original(service, now, known, by)

    return review
