"""What the planted bugs put in the place of the functions that make amends on a person's order."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace


def only_happened(_original: Any) -> Any:
    """That amends are to be made is taken down as that it happened."""

    async def compensate(service: Any, now: Any, given: Any, by: str) -> Any:
        return await service.resolve(now.item, "happened", by=by, evidence=given.evidence, result=given.result)

    return compensate


def one_after_the_other(original: Any) -> Any:
    """The transaction is called off before anybody looks whether the rest of the word fits."""

    async def compensate(service: Any, now: Any, given: Any, by: str) -> Any:
        boundary = now.step.partition("/")[0]
        if boundary != now.step and not (await service.history(now.run)).transactions[boundary].backward:
            await service.call_off(now.run, boundary, by=by, why=given.evidence)
        return await original(service, now, given, by)

    return compensate


def as_if_all_were_undone(original: Any) -> Any:
    """Code is not told what still stands."""

    def error(instance: Any, state: Any) -> Any:
        return original(instance, replace(state, still_standing=()))

    return error
