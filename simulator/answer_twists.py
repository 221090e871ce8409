"""What the planted bugs put in the place of the functions that await answers."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.control.service import Delivered
from holdfast.errors import JournalError, UsageError
from holdfast.journal.port import Post
from holdfast.model.decision.evidence import EVIDENCE
from holdfast.model.decision.moves import Attempt, Settle
from holdfast.model.ids import stream


def counted_each_time(original: Any) -> Any:
    """The order that follows from a message has no name of its own."""

    def order(owner: Any, key: str, entry: Any) -> Any:
        post = original(owner, key, entry)
        return post if post is None else Post(post.stream, "", post.body)

    return order


def answers_mixed_up(_original: Any) -> Any:
    """Everything that comes is kept in one place, whatever it is about."""

    def arrived_stream(_key: str) -> str:
        return stream("arrived", "all")

    return arrived_stream


def key_of_another_taken(_original: Any) -> Any:
    """A key that another operation waits under serves this one as well."""

    def with_the_key(record: Any, _operation: str, _taken: Any) -> Any:
        return record

    return with_the_key


def acknowledged_unstored(original: Any) -> Any:
    """What the journal did not take is acknowledged all the same."""

    async def deliver(self: Any, key: str, arrival: Any) -> Any:
        try:
            return await original(self, key, arrival)
        except JournalError:
            return Delivered(key, fresh=True)

    return deliver


def other_words_taken(original: Any) -> Any:
    """Other words under a known id are taken as well."""

    async def deliver(self: Any, key: str, arrival: Any) -> Any:
        try:
            return await original(self, key, arrival)
        except UsageError:
            return await original(self, key, replace(arrival, id=f"{arrival.id} again"))

    return deliver


def pending_is_final(original: Any) -> Any:
    """A word about progress is taken for a success."""

    def order(owner: Any, key: str, entry: Any) -> Any:
        body = entry.body.replace(b'"status":"pending"', b'"status":"succeeded","result":"half done"')
        return original(owner, key, replace(entry, body=body))

    return order


def sent_again(_original: Any) -> Any:
    """What was accepted is sent again while its answer is awaited."""

    def awaiting(case: Any) -> Any:
        return Attempt("no answer yet") if case.operation.phase == "awaiting" else None

    return awaiting


def failed_by_time(original: Any) -> Any:
    """An answer that does not come in time is taken for a refusal."""

    def awaiting(case: Any) -> Any:
        move = original(case)
        if isinstance(move, Settle) and move.status == "unknown":
            return Settle("given up", "failed", EVIDENCE, "no answer came")
        return move

    return awaiting


def refusal_is_success(original: Any) -> Any:
    """Whatever answer comes, it is a success."""

    def order(owner: Any, key: str, entry: Any) -> Any:
        body = entry.body.replace(b'"status":"failed"', b'"status":"succeeded","result":"so it seems"')
        return original(owner, key, replace(entry, body=body))

    return order


def about_anything(original: Any) -> Any:
    """What is pending is kept in one place for a tool, whatever it is about."""

    def thing_stream(tool: str, _about: str) -> Any:
        return original(tool, "anything")

    return thing_stream


def never_released(_original: Any) -> Any:
    """The outcome of what was pending releases nothing."""

    def releasing_posts(_operation: str, _settled: Any) -> tuple[Any, ...]:
        return ()

    return releasing_posts
