"""Settings of an app for driving runs. Durations are milliseconds inside the engine."""

from __future__ import annotations

from typing import Final

import msgspec

from beforehand.errors import UsageError
from beforehand.journal.host import memory_kib

_SWITCHES: Final = ("private_webhooks",)
_AT_LEAST_ONE: Final = (
    "lease_ms",
    "poll_ms",
    "slice_ms",
    "recover_every_ms",
    "recover_at_once",
    "recover_held",
    "heads_every_ms",
    "deaths_allowed",
    "claims_allowed",
)

LIVE_RUN_KIB: Final = 40
"""The memory that a live run occupies, measured; what agent code keeps comes on top of it."""
MANY_RUNS: Final = 1_000
"""So many live runs fit on every machine that runs Python: the memory is not looked up for fewer."""
PYTHONS_THRESHOLD: Final = 700


class Settings(msgspec.Struct, frozen=True):
    """How this process drives runs.

    `lease_ms`: how long a worker is believed alive without a sign of life. `margin_ms`: how much
    earlier it stops trusting its own lease. `pause_bound_ms`: how long after its lease a process that
    cannot be observed (another machine, another container) may still wake up. `hold_ms`: waits
    shorter than this keep the process; the pauses of a write that goes on over an outage count together.
    `patience_ms`: how long a replay that cannot go on is given before it counts as diverged, where agent code waits
    for something the runtime cannot see.
    `silent_ms`: how long the code of a run may make no step before the log names the line at which it waits;
    0: no limit.
    `poll_ms`: how often to read what is new in the ledger. `grace_ms`: how long calls in flight may take to end when a
    run is released. `clock_error_ms`: how far two wall clocks may differ. `deaths_allowed`: how many processes may die
    in attempts of one operation, and `claims_allowed` how many while they drive one run, before a person is asked.
    `slow_verify_ms`: the pause between readings once a person was asked. `claim_wait_ms`: how long to wait for the
    holder of a business key before a person is asked. `slice_ms`: how often the close of a transaction looks again.
    `hung_owner_ms`: how long a call that was given up may still run before a person is asked to end its process.
    `watch_stopped_ms`: how long after a run stopped a worker reads back its unknown effects.
    `answer_within_ms`: how long people have where nothing else says so; 0 lets them take as long as the run has.
    `recover_every_ms`: how often to look for abandoned runs and those that are due. `recover_at_once`: how many of
    these runs may work at the same time. `recover_held`: how many of them this process holds at most, those that wait
    for a retry or a short pause included. `heads_every_ms`: how often the signed head of the journal is sent to the
    webhook endpoints that ask for it. `private_webhooks`: whether outgoing webhooks may go to loopback and private
    addresses, and without encryption.
    `gc_threshold`: while the app is open, Python's garbage collector runs after so many new objects, and does not visit
    those that existed when the app was opened; 0 leaves it to the application.

    Raises `UsageError` for a setting that is not a whole number, is too small, contradicts another one, or needs more
    memory than there is.
    """

    lease_ms: int = 15_000
    margin_ms: int = 2_000
    pause_bound_ms: int = 10 * 60_000
    clock_error_ms: int = 60_000
    hold_ms: int = 30_000
    poll_ms: int = 250
    patience_ms: int = 10_000
    silent_ms: int = 10 * 60_000
    grace_ms: int = 10_000
    deaths_allowed: int = 5
    claims_allowed: int = 5
    slow_verify_ms: int = 15 * 60_000
    hung_owner_ms: int = 10 * 60_000
    watch_stopped_ms: int = 30 * 86_400_000
    answer_within_ms: int = 7 * 86_400_000
    claim_wait_ms: int = 10 * 60_000
    slice_ms: int = 30_000
    recover_every_ms: int = 5_000
    recover_at_once: int = 100
    recover_held: int = 1_000
    heads_every_ms: int = 3_600_000
    private_webhooks: bool = False
    gc_threshold: int = 0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            least = 1 if name in _AT_LEAST_ONE else 0
            if name in _SWITCHES:
                if type(value) is not bool:
                    raise UsageError(f"Settings({name}={value!r})", next_step="give True or False")
            elif type(value) is not int or value < least:
                raise UsageError(f"Settings({name}={value!r})", next_step=f"give a whole number of at least {least}")
        if self.margin_ms >= self.lease_ms:
            raise UsageError(
                f"Settings(margin_ms={self.margin_ms}, lease_ms={self.lease_ms})",
                known="a worker that stops trusting its lease before it has one drives nothing",
                next_step="let margin_ms be smaller than lease_ms",
            )
        if self.recover_held < self.recover_at_once:
            raise UsageError(
                f"Settings(recover_held={self.recover_held}, recover_at_once={self.recover_at_once})",
                known="a run that works is also held",
                next_step="let recover_held be at least recover_at_once",
            )
        if 0 < self.gc_threshold < PYTHONS_THRESHOLD:
            raise UsageError(
                f"Settings(gc_threshold={self.gc_threshold})",
                known=f"Python collects after {PYTHONS_THRESHOLD} new objects by itself",
                next_step=f"give 0, or at least {PYTHONS_THRESHOLD}; 50000 suits 100 live runs and more",
            )
        if self.recover_held > MANY_RUNS and (memory := memory_kib()) is not None:
            self._check_memory(memory)

    def _check_memory(self, memory: int) -> None:
        fits = memory // LIVE_RUN_KIB
        if self.recover_held > fits:
            raise UsageError(
                f"Settings(recover_held={self.recover_held})",
                known=f"a live run occupies about {LIVE_RUN_KIB} KiB, and this process may use {memory // 1024} MiB",
                next_step=f"let recover_held be at most {fits}, or give the process more memory",
            )

    def answer_by(self, asked_ms: int) -> int:
        """The deadline of a question that was asked at this wall clock and has none of its own; 0: there is none."""
        return asked_ms + self.answer_within_ms if self.answer_within_ms else 0
