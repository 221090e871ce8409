"""Checks for clauses of a tool that exclude each other, made where the tool is declared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast, get_args

from beforehand.engine.tool_protocol import Classifier, can_classify
from beforehand.errors import ContractError
from beforehand.model.contract import CLAUSES, Contract, InProgress, Key, Mismatch, OnUnknown, Rejection, Repeat, Stores
from beforehand.model.ids import NAME_LIMIT, can_name
from beforehand.policies import milliseconds


def check_clauses(contract: Contract) -> None:
    """Refuse clauses that contradict each other. Raises `ContractError` naming the fix."""
    where = f"tool {contract.tool}"
    if not can_name(contract.tool):
        raise ContractError(
            f"{contract.tool[:NAME_LIMIT]!r} cannot name a tool",
            next_step=f"use name= with 1 to {NAME_LIMIT} printable characters without / ~ and #",
        )
    if contract.effect not in ("read", "write"):
        raise ContractError(
            f"{where}: effect={contract.effect!r} does not exist", next_step='write effect="read" or effect="write"'
        )
    _check_words(contract, where)
    if contract.timeout_ms <= 0:
        raise ContractError(f"{where}: timeout is not positive", next_step="give every call a time limit")
    if contract.effect == "read" and (contract.idempotency or contract.claim or contract.once or contract.pending):
        raise ContractError(
            f"{where} is a read, and a read changes nothing: idempotency, claim, once and pending do not apply to it",
            next_step='drop them, or drop effect="read"',
        )
    if contract.effect == "read" and contract.budget.call:
        raise ContractError(
            f"{where} is a read, and reads reserve nothing: they are recorded when they have ended",
            next_step='drop effect="read", so that what a call costs is reserved before it, or drop Budget(call=...)',
        )
    double = {a.status for a in contract.rejections if a.means == "rejected"} & {
        a.status for a in contract.rejections if a.means == "not_sent"
    }
    if double:
        raise ContractError(
            f"{where}: status {min(double)} is declared both as a refusal and as not sent",
            next_step="a refusal is final, not-sent is tried again: choose one",
        )
    if contract.once is not None and not contract.once.parameters:
        raise ContractError(f"{where}: Once() names no parameter", next_step='name what makes a repeat: Once("to")')
    key = contract.key
    if key is not None:
        _check_statuses(contract, key, where)
    if key is not None and key.ttl is not None and milliseconds(key.ttl) <= contract.timeout_ms:
        raise ContractError(
            f"{where}: the key is forgotten after {key.ttl}, and one call may take {contract.timeout_ms / 1000:g} s",
            next_step="a retry could never be deduplicated: shorten timeout=, or drop the key",
        )


def _check_statuses(contract: Contract, key: Key, where: str) -> None:
    """Check that the statuses that mean that our key is in progress have no second meaning."""
    statuses: object = key.in_progress_statuses
    if not isinstance(statuses, tuple):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
        raise ContractError(
            f"{where}: in_progress_statuses={statuses!r} is not a tuple of HTTP statuses", next_step="write (409,)"
        )
    rejections_of(statuses, "rejected", where)
    if both := sorted({answer.status for answer in contract.rejections}.intersection(key.in_progress_statuses)):
        raise ContractError(
            f"{where}: status {both[0]} is declared as a proof that nothing landed, and as a key in progress",
            next_step="a key in progress is waited for, and proves nothing: choose one",
        )


def rejections_of(statuses: object, means: Literal["rejected", "not_sent"], where: str) -> tuple[Rejection, ...]:
    """HTTP statuses that prove an outcome. Raises `ContractError` for an invalid one."""
    if not isinstance(statuses, Iterable) or isinstance(statuses, str):
        raise ContractError(f"{where}: {statuses!r} is not a list of HTTP statuses", next_step=f"write [{statuses}]")
    found: list[int] = []
    for status in cast("Iterable[object]", statuses):
        if not isinstance(status, int):
            raise ContractError(
                f"{where}: {status!r} is not an HTTP status", next_step="write a whole number, such as 402"
            )
        found.append(status)
    return tuple(Rejection(status, means) for status in sorted(found))


def checked_classifier(classifier: Classifier | None, where: str) -> Classifier | None:
    """The classifier. Raises `ContractError` unless it is a synchronous function of one exception."""
    if classifier is not None and not can_classify(classifier):
        raise ContractError(
            f"{where}: classify={classifier!r} is not a function that can be called with an exception",
            next_step="write classify=function; it returns NotSent(...), Rejected(...), Ambiguous(...) or None",
        )
    return classifier


def _check_words(contract: Contract, where: str) -> None:
    """Refuse an unknown value of a clause: it would silently be taken for one of the others."""
    for name, kinds in CLAUSES.items():
        given: object = getattr(contract, name)
        if given is not None and not isinstance(given, kinds):
            forms = ", ".join(f"{kind.__name__}(...)" for kind in kinds)
            raise ContractError(f"{where}: {name}={given!r} is not accepted", next_step=f"write {forms}, or nothing")
    key, once = contract.key, contract.once
    words: list[tuple[str, object, Any]] = [("on_unknown", contract.on_unknown, OnUnknown)]
    if key is not None:
        words += [("in_progress", key.in_progress, InProgress), ("mismatch", key.mismatch, Mismatch)]
        words += [("stores", key.stores, Stores)]
    if once is not None:
        words += [("then", once.then, Repeat)]
    for name, word, kind in words:
        if word not in get_args(kind):
            raise ContractError(
                f"{where}: {name}={word!r} does not exist", next_step=f"choose {' or '.join(get_args(kind))}"
            )
