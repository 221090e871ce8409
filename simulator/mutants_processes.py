"""Planted bugs in what becomes of runs whose processes come to harm."""

from __future__ import annotations

from typing import Final

from simulator.mutant import Mutant, always, replaced
from simulator.process_twists import crowded

PROCESSES: Final = (
    Mutant(
        "nobody asks about a stopped owner",
        "a call whose process hangs is waited for without asking a person",
        "holdfast.model.decision.verify_rules:hung_too_long",
        always(False),
    ),
    Mutant(
        "asked and forgotten",
        "a process that a person was asked about is not looked at again",
        "holdfast.model.decision.verify_rules:_looks_apart_ms",
        always(30 * 86_400_000),
    ),
    Mutant(
        "neighbours are charged",
        "runs and attempts that only run beside poison are counted with its deaths",
        "holdfast.engine.crash_isolation:IsolationGate",
        crowded,
    ),
    Mutant(
        "poison is driven for ever",
        "deaths during its attempts set no operation aside",
        "holdfast.model.decision.send_rules:_OBSTACLES",
        replaced("_poison", always(None)),
    ),
)
"""By what comes to harm."""
