"""Every cell of the decision table: what is known, by what the tool promises, gives the move and its rule.

`*` stands for every column that is not named in the row.
"""

from __future__ import annotations

from typing import Final

import pytest

from beforehand.model.contract import Contract
from tests.unit.model.decision_rows import (
    ABSENT_AND_CHANGED,
    ANYWHERE,
    PRECONDITIONS,
    READ_BACK,
    WITH_VERIFIER,
    WITHOUT_VERIFIER,
    Row,
)

IN_EACH_TABLE: Final[dict[str, dict[str, str]]] = {
    "nothing was sent yet": {
        "*": "send: first attempt",
    },
    "every attempt is proven unsent": {
        "*": "wait for retry: full jitter before the next attempt",
    },
    "every attempt is proven unsent, and the pause is over": {
        "*": "send: nothing landed: attempt again",
    },
    "an attempt returned": {
        "*": "succeeded: returned",
    },
    "an earlier attempt returned after all (late report)": {
        "*": "succeeded: returned",
        "natural": "wait for end: an attempt without an answer may still run",
    },
    "an attempt returned after one that may have landed": {
        "*": "succeeded: returned",
        "natural": "wait for end: an attempt without an answer may still land",
    },
    "an attempt returned, and the window of the earlier one is over": {
        "*": "succeeded: returned",
    },
    "refused, and nothing else was sent": {
        "*": "failed(402): refused, and nothing landed",
    },
}
PROMISES: Final[dict[str, dict[str, str]]] = IN_EACH_TABLE | {
    "refused after an attempt that may have landed": {
        "*": "unknown: nothing can prove it",
        "read": "failed(402): refused, and nothing landed",
    },
    "an attempt may have landed": {
        "*": "wait for retry: full jitter before the next attempt",
        "none of these": "unknown: nothing can prove it",
    },
    "an attempt may have landed, and the pause is over": {
        "*": "send: a read may be repeated",
        "natural": "send: repeating changes nothing",
        "keyed": "send: the same key is still remembered",
        "none of these": "unknown: nothing can prove it",
    },
    "the process died during an attempt": {
        "*": "send: a read may be repeated",
        "natural": "send: repeating changes nothing",
        "keyed": "send: the same key is still remembered",
        "none of these": "unknown: nothing can prove it",
    },
    "the key's first request is still in progress": {
        "*": "send: a read may be repeated",
        "natural": "send: repeating changes nothing",
        "keyed": "send: the same key is still remembered",
        "none of these": "unknown: nothing can prove it",
    },
    "an attempt may have landed; its time for repeating is over": {
        "*": "unknown: nothing can prove it",
        "read": "failed: sending ended",
    },
    "nothing was sent, and the run is cancelled": {
        "*": "cancelled: called off before it was sent",
        "read": "failed: sending ended",
    },
    "every attempt is proven unsent, and the run is cancelled": {
        "*": "cancelled: called off before it was sent",
        "read": "failed: sending ended",
    },
    "every attempt is proven unsent, and the deadline passed": {
        "*": "failed: sending ended, nothing landed",
        "read": "failed: sending ended",
    },
    "an attempt may have landed, and the run is cancelled": {
        "*": "unknown: nothing can prove it",
        "read": "failed: sending ended",
    },
    "an attempt may have landed, and no attempt is left": {
        "*": "unknown: nothing can prove it",
        "read": "failed: sending ended",
    },
    "nothing was sent, and the breaker is open": {
        "*": "wait for breaker: the breaker is open",
    },
    "an attempt may have landed, and the breaker is open": {
        "*": "wait for breaker: the breaker is open",
        "none of these": "unknown: nothing can prove it",
    },
    "an attempt was given up, and its call still runs": {
        "*": "wait for call: an earlier call still runs",
        "none of these": "unknown: nothing can prove it",
    },
    "a person was asked": {
        "*": "wait for person: a person is asked",
    },
    "a person ordered one more attempt": {
        "*": "send: a person ordered one more attempt",
    },
    "that attempt may have landed as well": {
        "*": "unknown: nothing can prove it",
        "read": "failed: sending ended",
    },
    "nothing was sent: preconditions not read": {
        "*": "observe: preconditions before every attempt",
        "read": "send: first attempt",
    },
    "nothing was sent: preconditions as before": {
        "*": "send: first attempt",
    },
    "nothing was sent: preconditions changed": {
        "*": "failed(stale): preconditions, nothing landed",
        "read": "send: first attempt",
    },
    "an attempt may have landed: preconditions as before": {
        "*": "send: a read may be repeated",
        "natural": "send: repeating changes nothing",
        "keyed": "send: the same key is still remembered",
        "none of these": "unknown: nothing can prove it",
    },
    "an attempt may have landed: preconditions changed": {
        "*": "unknown: nothing can prove it",
        "read": "send: a read may be repeated",
    },
    "an attempt may have landed: preconditions cannot be read": {
        "*": "unknown: nothing can prove it",
        "read": "send: a read may be repeated",
    },
}
READ_BACK_PROMISES: Final[dict[str, dict[str, str]]] = IN_EACH_TABLE | {
    "refused after an attempt that may have landed": {
        "*": "verify: read back at once: presence can be believed",
    },
    "an attempt may have landed": {
        "*": "wait for retry: full jitter before the next attempt",
        "verifiable": "verify: read back at once: presence can be believed",
    },
    "an attempt may have landed, and the pause is over": {
        "*": "send: repeating changes nothing",
        "keyed": "send: the same key is still remembered",
        "verifiable": "verify: read back at once: presence can be believed",
    },
    "the process died during an attempt": {
        "*": "send: repeating changes nothing",
        "keyed": "send: the same key is still remembered",
        "verifiable": "verify: read back at once: presence can be believed",
    },
    "the key's first request is still in progress": {
        "*": "send: repeating changes nothing",
        "keyed": "send: the same key is still remembered",
        "verifiable": "verify: read back at once: presence can be believed",
    },
    "an attempt may have landed; its time for repeating is over": {
        "*": "verify: read back at once: presence can be believed",
    },
    "nothing was sent, and the run is cancelled": {
        "*": "cancelled: called off before it was sent",
    },
    "every attempt is proven unsent, and the run is cancelled": {
        "*": "cancelled: called off before it was sent",
    },
    "every attempt is proven unsent, and the deadline passed": {
        "*": "failed: sending ended, nothing landed",
    },
    "an attempt may have landed, and the run is cancelled": {
        "*": "verify: read back at once: presence can be believed",
    },
    "an attempt may have landed, and no attempt is left": {
        "*": "verify: read back at once: presence can be believed",
    },
    "nothing was sent, and the breaker is open": {
        "*": "wait for breaker: the breaker is open",
    },
    "an attempt may have landed, and the breaker is open": {
        "*": "verify: read back at once: presence can be believed",
    },
    "an attempt was given up, and its call still runs": {
        "*": "verify: read back at once: presence can be believed",
    },
    "a person was asked": {
        "*": "wait for verify: slow schedule",
    },
    "a person ordered one more attempt": {
        "*": "send: a person ordered one more attempt",
    },
    "that attempt may have landed as well": {
        "*": "verify: read back at once: presence can be believed",
    },
    "read back at once: nothing there yet": {
        "*": "wait for retry: full jitter before the next attempt",
        "verifiable": "wait for verify: until the next reading",
    },
    "read back: it happened": {
        "*": "succeeded: found by verification",
        "natural": "wait for end: an attempt without an answer may still land",
    },
    "read back after the window: it did not happen": {
        "*": "send: nothing landed: attempt again",
    },
    "read back: something else is there": {
        "*": "park: conflict",
    },
    "read back until the deadline: cannot tell": {
        "*": "unknown: could not be proven in time",
    },
    "read back after the window: absent, and the run is cancelled": {
        "*": "failed: sending ended, nothing landed",
    },
    "read back: cannot tell, and the window is unknown": {
        "*": "unknown: could not be proven in time",
    },
    "returned, evidence expected: not read back yet": {
        "*": "verify: read back at once: presence can be believed",
    },
    "returned, evidence expected: found": {
        "*": "succeeded: returned, evidence read back",
    },
    "returned, evidence expected: absent after the window": {
        "*": "unknown: returned, but absent after the window",
    },
    "returned, evidence expected: cannot tell until the deadline": {
        "*": "succeeded unverified: returned, could not be read back",
    },
    "returned, evidence expected: absent until the deadline, and the window is unknown": {
        "*": "unknown: returned, but absent until the deadline",
    },
    "returned, evidence expected: something else is there": {
        "*": "park: returned, but something else is there",
    },
    "nothing was sent: preconditions not read": {
        "*": "observe: preconditions before every attempt",
    },
    "nothing was sent: preconditions as before": {
        "*": "send: first attempt",
    },
    "nothing was sent: preconditions changed": {
        "*": "failed(stale): preconditions, nothing landed",
    },
    "an attempt may have landed: preconditions as before": {
        "*": "send: repeating changes nothing",
        "keyed": "send: the same key is still remembered",
        "verifiable": "verify: read back at once: presence can be believed",
    },
    "an attempt may have landed: preconditions changed": {
        "*": "verify: read back at once: presence can be believed",
    },
    "an attempt may have landed: preconditions cannot be read": {
        "*": "verify: read back at once: presence can be believed",
    },
    "read back after the window: absent; preconditions changed": {
        "*": "failed(stale): preconditions, nothing landed",
    },
}


def cells(
    rows: tuple[Row, ...], columns: dict[str, Contract], table: dict[str, dict[str, str]]
) -> list[tuple[Row, Contract, str]]:
    return [
        pytest.param(row, contract, table[row.name].get(column, table[row.name]["*"]), id=f"{column}: {row.name}")
        for row in rows
        for column, contract in columns.items()
    ]


WITHOUT: Final = cells((*ANYWHERE, *PRECONDITIONS), WITHOUT_VERIFIER, PROMISES)
WITH: Final = cells((*ANYWHERE, *READ_BACK, *PRECONDITIONS, ABSENT_AND_CHANGED), WITH_VERIFIER, READ_BACK_PROMISES)


@pytest.mark.parametrize(("row", "contract", "expected"), [*WITHOUT, *WITH])
def test_a_cell_of_the_decision_table(row: Row, contract: Contract, expected: str):
    assert row.says(contract) == expected
