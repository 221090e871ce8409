"""Monitors: rules that find failures which raise no error, each finding with its evidence.

`observations.py` turns the records of a run into observations, each of which belongs to one record. `tallies.py` counts
them by agent and hour. `rules.py` judges the tallies of an agent, and what is true now, by pure functions. `passes.py`
reads what came since the last pass and stores the tallies. A rule that needs no past is called by `passes._of_now`
with what is true now. ADR 39 has the design.
"""

from typing import Final

FINDINGS: Final = "monitors/findings"
"""The name of the note with the findings of a worker's last round: the inbox and the metrics read it."""
