"""Monitors: rules that find failures which raise no error, each finding with its evidence.

`observations.py` turns the records of a run into observations, each of which belongs to one record. `tallies.py` counts
them by agent and hour. `counting.py` counts the records of the whole journal, in portions that are ledger entries.
`rules.py` judges the tallies of an agent, and what is true now, by pure functions. `findings.py` records what was found
and acknowledged in the ledger. `passes.py` has what uses all of it: a worker's look, and the report of a command. A
rule that needs no past is called by `passes._of_now` with what is true now. ADR 39 has the design.
"""

from typing import Final

FINDINGS: Final = "findings"
"""The ledger stream of findings and acknowledgements: the inbox and the metrics read it."""
TALLIES: Final = "tallies-1"
"""The prefix of the ledger streams of tallies. If what is observed changes, so does the number: then all records are
counted again, and the old entries are ignored."""
