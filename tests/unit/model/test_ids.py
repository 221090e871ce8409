"""Names: what may name a run, and what a key depends on."""

from __future__ import annotations

import re

import pytest

from beforehand.errors import UsageError
from beforehand.model.ids import (
    checked_run_id,
    claim_identity,
    idempotency_key,
    marker,
    operation_id,
    split_operation_id,
)


@pytest.mark.parametrize("run", ["a", "ticket-17", "2026:07/1".replace("/", "."), "x" * 200, "a@b+c=d,e~f_g"])
def test_these_name_a_run(run):
    assert checked_run_id(run) == run


@pytest.mark.parametrize(
    "run", ["", "x" * 201, "a/b", "a b", "é", "a\n", "a\0b", ".", "..", "shadow", "-", "--json", "RUN"]
)
def test_these_do_not(run):
    with pytest.raises(UsageError, match="cannot name a run"):
        checked_run_id(run)


def test_an_operation_is_named_by_run_and_step():
    name = operation_id("refund-17", "trip/charge#1")
    assert name == "refund-17/trip/charge#1"
    assert split_operation_id(name) == ("refund-17", "trip/charge#1")


@pytest.mark.parametrize("name", ["refund-17", "/charge#1", "refund-17/", ""])
def test_these_name_no_operation(name):
    with pytest.raises(UsageError, match="is not an operation id"):
        split_operation_id(name)


def test_a_key_is_a_function_of_namespace_and_identity_alone():
    key = idempotency_key("prod", "refund-17/charge#1")
    assert key == idempotency_key("prod", "refund-17/charge#1")
    assert re.fullmatch(r"bh-[0-9a-f]{32}", key)
    others = {idempotency_key("staging", "refund-17/charge#1"), idempotency_key("prod", "refund-17/charge#2")}
    assert len({key, *others}) == 3


def test_a_business_key_has_generations_and_never_meets_an_operation():
    names = {
        claim_identity("charge", "invoice 17", 0),
        claim_identity("charge", "invoice 17", 1),
        claim_identity("refund", "invoice 17", 0),
        claim_identity("charge", "invoice 1", 70),
        operation_id("charge", "invoice 17"),
    }
    assert len(names) == 5


def test_a_marker_names_no_real_host():
    assert marker("bh-1") == "bh-1@beforehand.invalid"
