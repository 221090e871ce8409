"""Planted bugs in the attempt: what is recorded before the call, what is asked again, what becomes of its end."""

from __future__ import annotations

import functools
from typing import Any, Final

from msgspec.structs import replace

from beforehand.engine.operation_driver import CallResult, OperationDriver
from beforehand.errors import NotSent
from beforehand.model import records as r
from simulator.mutations.mutation import Mutant, always


def attempts_ride(original: Any) -> Any:
    """An attempt is not waited for: its call begins before it is durable."""

    @functools.wraps(original)
    async def record(driver: OperationDriver, *records: Any, ride: bool = False, **named: Any) -> None:
        if any(isinstance(one, r.AttemptStarted) for one in records) and driver.journaled:
            stored = () if driver.tool is None else driver.log.contract_record(driver.tool)
            driver.log.buffer(*(() if driver.step in driver.log.history.operations else stored), *records)
            return
        await original(driver, *records, ride=ride, **named)

    return record


def ends_ride(original: Any) -> Any:
    """The end of a call is filed, and no record of it is waited for."""

    @functools.wraps(original)
    async def file_end(driver: OperationDriver, number: int, answer: CallResult) -> None:
        log = driver.log
        append = log.append

        async def ride(*records: Any, **_named: Any) -> None:
            log.buffer(*records)

        log.append = ride  # type: ignore[method-assign]  # while this end is filed
        try:
            await original(driver, number, answer)
        finally:
            log.append = append  # type: ignore[method-assign]  # as above

    return file_end


def errors_are_unsent(original: Any) -> Any:
    """Every error of a call is taken for a proof that nothing was sent."""

    @functools.wraps(original)
    async def file_end(driver: OperationDriver, number: int, answer: CallResult) -> None:
        unsent = answer if answer.error is None else replace(answer, error=NotSent("it failed"))
        await original(driver, number, unsent)

    return file_end


EXECUTOR: Final = (
    Mutant("attempt not durable", "the tool is called before the attempt is durable",
           "beforehand.engine.operation_driver:OperationDriver.record", attempts_ride),
    Mutant("claims not looked up", "no other effect under the same business key is looked for",
           "beforehand.engine.conflicts:may_conflict", always(False)),
    Mutant("not decided again", "the tool is called without asking again after the record",
           "beforehand.engine.executor:held_back", always(""),
           test="tests/unit/engine/test_decided_before_send.py::test_a_cancel_stops_it"),
    Mutant("another end", "every error of a call is taken for a proof that nothing was sent",
           "beforehand.engine.executor:file_end", errors_are_unsent),
    Mutant("delivered before the record", "the caller is answered before the outcome is durable",
           "beforehand.engine.executor:file_end", ends_ride),
)  # fmt: skip
