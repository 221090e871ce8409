"""Observation is partial: facts that are known, inferred or missing, and the loop that stands on them."""

from holdfast.agent.observing import Facts
from holdfast.agent.production import Need, ProductionLoop
from holdfast.agent.thinking import Thought, Usage
from holdfast.model.facts import Correction, Fact, Guess, Stakes, Weighed, weigh, without

__all__ = [
    "Correction",
    "Fact",
    "Facts",
    "Guess",
    "Need",
    "ProductionLoop",
    "Stakes",
    "Thought",
    "Usage",
    "Weighed",
    "weigh",
    "without",
]
