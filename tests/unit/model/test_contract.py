"""Contracts: their clauses, their digests, and which of two is stricter."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from beforehand.model.contract import (
    Contract,
    Key,
    Natural,
    Once,
    Rejection,
    contract_digest,
    remembered_until_ms,
    stricter,
)
from beforehand.policies import OUTAGE_RETRY, READ_RETRY, WRITE_RETRY, Budget, Gate, Retry, milliseconds
from tests.unit.model.stories import KEYED, NATURAL, PLAIN, VERIFIABLE, changed

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def test_an_undeclared_tool_is_a_write_that_is_attempted_on_no_promise():
    contract = Contract("charge")
    assert (contract.effect, contract.idempotency, contract.verifies, contract.settle_ms) == (
        "write",
        None,
        False,
        None,
    )


def test_a_key_is_remembered_for_some_time_or_for_ever():
    assert Key.forever() == Key(None)
    assert Key.forever(in_progress="blocks", mismatch="silent", stores="all") == Key(None, "blocks", "silent", "all")
    for none in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="more than zero"):
            Key(ttl=none)
    assert Key(ttl=timedelta(milliseconds=1)).ttl == timedelta(milliseconds=1)


def test_a_contract_says_which_promise_it_has():
    assert (KEYED.key, KEYED.natural) == (KEYED.idempotency, None)
    assert (NATURAL.key, NATURAL.natural) == (None, NATURAL.idempotency)
    assert (PLAIN.key, PLAIN.natural) == (None, None)


@pytest.mark.parametrize(
    ("contract", "rides"),
    [
        (KEYED, True),
        (VERIFIABLE, True),
        (NATURAL, False),
        (PLAIN, False),
        (changed(KEYED, expects=True), False),
        (changed(VERIFIABLE, expects=True), False),
    ],
)
def test_a_success_rides_where_losing_it_costs_only_a_question(contract, rides):
    assert contract.rides == rides


def test_what_makes_a_repeat():
    once = Once("to", "ticket_id", within=HOUR, then="ask")
    assert (once.parameters, once.within, once.then) == (("to", "ticket_id"), HOUR, "ask")
    assert (Once("to").within, Once("to").then, Once("to").reworded) == (None, "replay", False)
    assert Once("to") != Once("to", reworded=True)
    earlier = b'{"parameters":["to"],"within":null,"then":"replay"}'
    assert msgspec.json.decode(earlier, type=Once) == Once("to")


def test_a_digest_names_the_exact_clauses():
    assert contract_digest(KEYED) == contract_digest(changed(KEYED))
    assert contract_digest(KEYED) != contract_digest(changed(KEYED, settle_ms=1))
    assert len(contract_digest(KEYED)) == 8


def test_a_key_is_trusted_until_a_retry_can_no_longer_arrive_in_time():
    assert remembered_until_ms(Key(HOUR), 60_000, 30_000) == milliseconds(HOUR) - 90_000
    assert remembered_until_ms(Key.forever(), 60_000, 30_000) is None


def test_reads_and_writes_are_retried_by_policies_of_their_own():
    assert (Contract("look", effect="read").retries, PLAIN.retries) == (READ_RETRY, WRITE_RETRY)
    assert [one.retries for one in (KEYED, VERIFIABLE, NATURAL)] == [OUTAGE_RETRY] * 3


def test_a_declared_policy_is_not_the_default_even_where_it_says_the_same():
    declared = changed(KEYED, retry=Retry())
    assert declared.retries == Retry() != KEYED.retries
    assert msgspec.json.decode(msgspec.json.encode(declared), type=Contract).retries == Retry()
    assert contract_digest(declared) != contract_digest(KEYED)


def test_the_default_is_that_of_the_clauses_that_hold_by_now():
    assert changed(PLAIN, verifies=True).retries == OUTAGE_RETRY
    assert stricter(PLAIN, VERIFIABLE).retries == OUTAGE_RETRY, "it was begun before its verifier was registered"
    assert stricter(PLAIN, KEYED).retries == WRITE_RETRY, "the key was not promised when it was begun"
    assert stricter(KEYED, changed(KEYED, retry=Retry())).retries.attempts == Retry().attempts


# --- the stricter of two ---------------------------------------------------------------------------------


def test_the_same_contract_stays_what_it_is():
    assert stricter(KEYED, changed(KEYED)) == KEYED


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (Key(HOUR), Key(DAY), Key(HOUR)),
        (Key(DAY), Key.forever(), Key(DAY)),
        (Key.forever(), Key.forever(stores="all"), Key.forever()),
        (
            Key.forever(stores="all"),
            Key.forever(stores="all", mismatch="silent"),
            Key.forever(stores="all", mismatch="silent"),
        ),
        (Key(DAY, "runs_twice"), Key(DAY, "blocks"), Key(DAY, "runs_twice")),
        (Key(DAY, "rejects"), Key(DAY, "runs_twice"), Key(DAY, "runs_twice")),
        (Key(DAY, "rejects"), Key(DAY, "blocks"), Key(DAY, "blocks")),
        (Key(DAY, mismatch="silent"), Key(DAY), Key(DAY, mismatch="silent")),
        (Key(DAY, stores="success"), Key(DAY, stores="all"), Key(DAY, stores="success")),
        (Key(DAY, in_progress_patience=HOUR), Key(DAY), Key(DAY)),
        (Key(DAY), Key(DAY, in_progress_patience=HOUR), Key(DAY)),
        (
            Key(DAY, in_progress_statuses=(409, 425)),
            Key(DAY, in_progress_statuses=(423, 425)),
            Key(DAY, in_progress_statuses=(425,)),
        ),
        (Natural(HOUR), Natural(DAY), Natural(HOUR)),
        (Natural(DAY), Natural(HOUR), Natural(HOUR)),
        (Natural(settle_window=HOUR), Natural(settle_window=DAY), Natural(settle_window=DAY)),
        (Natural(settle_window=DAY), Natural(settle_window=HOUR), Natural(settle_window=DAY)),
        (Key(DAY), Natural(HOUR), None),
        (None, Key(DAY), None),
        (Key(DAY), None, None),
    ],
)
def test_a_promise_holds_only_where_both_make_it(old, new, expected):
    before, after = changed(PLAIN, idempotency=old, timeout_ms=1), changed(PLAIN, idempotency=new)
    assert stricter(before, after).idempotency == expected


def test_a_patience_is_a_duration():
    with pytest.raises(ValueError, match="in_progress_patience"):
        Key.forever(in_progress_patience=timedelta(seconds=-1))
    assert Key.forever(in_progress_patience=timedelta(0)).in_progress_patience == timedelta(0)


@pytest.mark.parametrize(
    ("contract", "expected"),
    [
        (NATURAL, 30_000),
        (changed(NATURAL, idempotency=Natural(settle_window=HOUR)), 3_600_000),
        (changed(NATURAL, idempotency=Natural(settle_window=timedelta(0))), 0),
        (changed(NATURAL, effect="read"), None),
        (KEYED, None),
        (PLAIN, None),
        (stricter(NATURAL, changed(NATURAL, timeout_ms=1)), 30_000),
        (stricter(NATURAL, PLAIN), 30_000),
        (stricter(NATURAL, KEYED), 30_000),
        (stricter(KEYED, PLAIN), None),
        (stricter(PLAIN, NATURAL), None),
    ],
)
def test_how_long_an_attempt_may_undo_a_later_write(contract: Contract, expected: int | None):
    """Where the tool was natural when the attempt was made, its window holds under another contract as well."""
    assert contract.overtaken_ms == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"effect": "read"}, {"effect": "read", "timeout_ms": 1}, {"effect": "read"}),
        ({"effect": "read"}, {"effect": "write"}, {"effect": "write"}),
        ({"effect": "write"}, {"effect": "read"}, {"effect": "write"}),
        ({"expects": True}, {}, {"expects": True}),
        ({}, {"expects": True}, {"expects": True}),
        ({"check_first": True, "verifies": True}, {"verifies": True}, {"check_first": True}),
        ({"check_first": True, "verifies": True}, {}, {"check_first": False, "verifies": False}),
        ({"verifies": True}, {"verifies": True, "check_first": True}, {"check_first": True}),
        ({"settle_ms": 90_000}, {"settle_ms": 0}, {"settle_ms": 90_000}),
        ({"settle_ms": 0}, {"settle_ms": 90_000}, {"settle_ms": 90_000}),
        ({"settle_ms": None}, {"settle_ms": 0}, {"settle_ms": None}),
        ({"settle_ms": 0}, {"settle_ms": None}, {"settle_ms": None}),
        ({"confirms": "take"}, {}, {"confirms": "take"}),
        ({"confirms": "take"}, {"confirms": "keep"}, {"confirms": "take"}),
        ({}, {"confirms": "keep", "lapses_ms": 5}, {"confirms": "keep", "lapses_ms": 5}),
        ({"confirms": "take", "lapses_ms": 5}, {"confirms": "take"}, {"lapses_ms": 5}),
        ({"confirms": "take", "lapses_ms": 5}, {"confirms": "take", "lapses_ms": 9}, {"lapses_ms": 5}),
        ({"confirms": "take", "lapses_ms": 9}, {"confirms": "take", "lapses_ms": 5}, {"lapses_ms": 5}),
        ({"gate": Gate("manager")}, {}, {"gate": Gate("manager")}),
        (
            {"gate": Gate("manager", people=2, within=timedelta(days=2))},
            {"gate": Gate("owner", within=timedelta(days=1))},
            {"gate": Gate("(manager) || (owner)", people=2, within=timedelta(days=1))},
        ),
        ({"timeout_ms": 5}, {"timeout_ms": 6}, {"timeout_ms": 6}),
        ({"budget": Budget(1.0)}, {"budget": Budget(2.0)}, {"budget": Budget(1.0)}),
        ({"budget": Budget(2.0)}, {"budget": Budget(1.0)}, {"budget": Budget(1.0)}),
        (
            {"retry": Retry(2, DAY, HOUR, DAY)},
            {"retry": Retry(3, HOUR, DAY, HOUR)},
            {"retry": Retry(2, HOUR, DAY, DAY)},
        ),
        (
            {"rejections": (Rejection(402, "rejected"), Rejection(429, "not_sent"))},
            {"rejections": (Rejection(402, "rejected"), Rejection(503, "not_sent"))},
            {"rejections": (Rejection(402, "rejected"),)},
        ),
    ],
)
def test_each_clause_takes_the_stricter_side(old, new, expected):
    assert stricter(changed(PLAIN, **old), changed(PLAIN, **new)) == changed(PLAIN, **{**new, **expected})
