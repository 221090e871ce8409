"""What the planted bugs put in the place of the functions that tell code what was said to its run."""

from __future__ import annotations

from typing import Any


def forgotten_at_once(original: Any) -> Any:
    """A branch forgets what it has heard."""

    def hear(scope: Any, step: str) -> Any:
        before = scope.host.heard
        told = original(scope, step)
        scope.host.heard = before
        return told

    return hear


def one_ear(original: Any) -> Any:
    """What anybody has heard, everybody knows."""

    def news_for(scope: Any) -> bool:
        messages = scope.instance.history.messages
        return bool(original(scope)) and bool(messages.stop or messages.unheard)

    return news_for


def stops_once(_original: Any) -> Any:
    """To stop is said once, as anything else is."""

    def news_for(scope: Any) -> bool:
        messages = scope.instance.history.messages
        return messages is not None and messages.last > scope.host.heard

    return news_for


def calls_nothing_off(original: Any) -> Any:
    """Only what begins later is called off."""

    def receive(self: Any, record: Any, _operations: Any) -> None:
        original(self, record, ())

    return receive


def only_the_last(original: Any) -> Any:
    """Of what was said meanwhile the last word counts."""

    def told_at(self: Any, step: str) -> Any:
        return original(self, step)[-1:]

    return told_at


def without_its_name(original: Any) -> Any:
    """Each time that it is given, it is a new message."""

    async def tell(self: Any, run: str, text: str, *, once: str = "", **more: Any) -> Any:
        del once
        return await original(self, run, text, **more)

    return tell
