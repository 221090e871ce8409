"""Settings that cannot be meant are refused when they are made."""

import pytest

from holdfast.engine.settings import Settings
from holdfast.errors import UsageError


@pytest.mark.parametrize(
    "given",
    [
        {"lease_ms": 0}, {"lease_ms": -5}, {"poll_ms": "250"}, {"poll_ms": 0}, {"hold_ms": 1.5}, {"grace_ms": True},
        {"deaths_allowed": 0}, {"margin_ms": 1000, "lease_ms": 1000}, {"margin_ms": 15_000},
    ],
)  # fmt: skip
def test_what_is_no_duration_or_contradicts_another_is_refused(given: dict[str, object]):
    with pytest.raises(UsageError, match=rf"Settings\({next(iter(given))}=") as refused:
        Settings(**given)
    assert refused.value.next_step


def test_zero_is_a_length_where_nothing_has_to_wait():
    assert Settings(hold_ms=0, grace_ms=0, pause_bound_ms=0, slow_verify_ms=0).hold_ms == 0
