"""Planted bugs in what is about time, about the outages of others, and about other programs."""

from __future__ import annotations

from typing import Final

from simulator.mutant import Mutant, always
from simulator.timing_twists import (
    busy_costs_an_attempt,
    pauses_by_the_clock,
    since_the_first_attempt,
    strangers_take_places,
    success,
    window_from_the_start,
)

TIMING: Final = (
    Mutant(
        "gaps count as attempts",
        "time without a process is taken for time for attempts",
        "holdfast.model.decision.evidence:elapsed_ms",
        since_the_first_attempt,
    ),
    Mutant(
        "overtaken by itself",
        "a natural write is settled while an attempt of it may land",
        "holdfast.model.decision.decide:_once_landed",
        success,
    ),
    Mutant(
        "landing counted from the start",
        "the window of a natural write begins with its attempt",
        "holdfast.model.decision.evidence:landing_ms",
        window_from_the_start,
    ),
    Mutant(
        "busy costs an attempt",
        "an attempt counts although the system works on its key",
        "holdfast.model.decision.evidence:AttemptEvidence.__init__",
        busy_costs_an_attempt,
    ),
    Mutant(
        "an outage is an answer",
        "a model that is down is asked as often as one that refuses",
        "holdfast.agent.patience:is_outage",
        always(False),
    ),
    Mutant(
        "failed untried",
        "a decision fails whose clock jumped between two looks, without being asked again",
        "holdfast.agent.decisions:_waited",
        pauses_by_the_clock,
    ),
    Mutant(
        "strangers take places",
        "runs of other programs are counted among those to recover",
        "holdfast.testing.world.disk:Disk.due",
        strangers_take_places,
    ),
    Mutant(
        "contradictions unheard",
        "evidence against an outcome opens no review",
        "holdfast.engine.commands:by_report",
        always(()),
    ),
)
