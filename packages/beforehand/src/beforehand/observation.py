"""Observation is partial: facts that are known, inferred or missing, and the loop that is built on them."""

from beforehand.knowledge.facts import Facts
from beforehand.knowledge.production_loop import Need, ProductionLoop, Thought
from beforehand.model.facts import Correction, Fact, Guess, Stakes, Weighed, weigh, without
from beforehand.model.usage import Usage

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
