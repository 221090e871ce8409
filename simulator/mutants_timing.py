"""Planted bugs in what is about time, about the outages of others, and about other programs: see `mutants.py`."""

from __future__ import annotations

from typing import Final

from simulator import timing_twists, twists
from simulator.mutant import Mutant

TIMING: Final = (
    Mutant(
        "gaps count as attempts",
        "time without a process is taken for time for attempts",
        "model.weigh:elapsed_ms",
        timing_twists.since_the_first_attempt,
    ),
    Mutant(
        "overtaken by itself",
        "a natural write is settled while an attempt of it may land",
        "model.decide:_once_landed",
        timing_twists.success,
    ),
    Mutant(
        "landing counted from the start",
        "the window of a natural write begins with its attempt",
        "model.weigh:landing_ms",
        timing_twists.window_from_the_start,
    ),
    Mutant(
        "busy costs an attempt",
        "an attempt counts although the system works on its key",
        "model.weigh:Weight.__init__",
        timing_twists.busy_costs_an_attempt,
    ),
    Mutant(
        "an outage is an answer",
        "a model that is down is asked as often as one that refuses",
        "agent.patience:is_outage",
        twists.always(False),
    ),
    Mutant(
        "failed untried",
        "a decision fails whose clock jumped between two looks, without being asked again",
        "agent.decisions:_waited",
        timing_twists.pauses_by_the_clock,
    ),
    Mutant(
        "strangers take places",
        "runs of other programs are counted among those to recover",
        "testing.world.disk:Disk.due",
        timing_twists.strangers_take_places,
    ),
    Mutant(
        "contradictions unheard",
        "evidence against an outcome opens no review",
        "engine.commands:by_report",
        twists.always(()),
    ),
)
