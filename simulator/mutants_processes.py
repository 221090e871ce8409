"""Planted bugs in what becomes of runs whose processes come to harm: see `mutants.py`."""

from __future__ import annotations

from typing import Final

from simulator import process_twists, twists
from simulator.mutant import Mutant

PROCESSES: Final = (
    Mutant(
        "nobody asks about a stopped owner",
        "a call whose process hangs is waited for without asking a person",
        "model.proving:hung_too_long",
        twists.always(False),
    ),
    Mutant(
        "asked and forgotten",
        "a process that a person was asked about is not looked at again",
        "model.proving:_looks_apart_ms",
        twists.always(30 * 86_400_000),
    ),
    Mutant(
        "neighbours are charged",
        "runs and attempts that only run beside poison are counted with its deaths",
        "engine.company:Company",
        process_twists.crowded,
    ),
    Mutant(
        "poison is driven for ever",
        "deaths during its attempts set no operation aside",
        "model.sending:_OBSTACLES",
        twists.replaced("_poison", twists.always(None)),
    ),
)
"""By what comes to harm."""
