"""Settings that cannot be meant are refused when they are made."""

import pytest

from beforehand.engine.settings import Settings
from beforehand.errors import UsageError


@pytest.mark.parametrize(
    "given",
    [
        {"lease_ms": 0}, {"lease_ms": -5}, {"poll_ms": "250"}, {"poll_ms": 0}, {"hold_ms": 1.5}, {"grace_ms": True},
        {"deaths_allowed": 0}, {"margin_ms": 1000, "lease_ms": 1000}, {"margin_ms": 15_000},
        {"recover_at_once": 0}, {"recover_held": 99, "recover_at_once": 100}, {"recover_held": 10**9},
        {"gc_threshold": 1}, {"gc_threshold": -1}, {"gc_threshold": True},
    ],
)  # fmt: skip
def test_what_is_no_duration_or_contradicts_another_is_refused(given: dict[str, object]):
    with pytest.raises(UsageError, match=rf"Settings\({next(iter(given))}=") as refused:
        Settings(**given)
    assert refused.value.next_step


def test_zero_is_a_length_where_nothing_has_to_wait():
    assert Settings(hold_ms=0, grace_ms=0, pause_bound_ms=0, slow_verify_ms=0).hold_ms == 0


def test_more_runs_than_memory_holds_are_refused_with_the_number_that_fits():
    with pytest.raises(UsageError, match="recover_held=1000000000") as refused:
        Settings(recover_held=10**9)
    assert "KiB" in refused.value.known
    fits = int(refused.value.next_step.split("at most ")[1].split(",")[0])
    assert Settings(recover_held=fits).recover_held == fits
