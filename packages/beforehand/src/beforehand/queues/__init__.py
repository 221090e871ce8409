"""Queues: the declared limits, the modes, and the pure function that chooses which waiting runs may start now.

The state of a queue is in the journal (`journal/sqlite/queues.py`): a waiting run is a run whose status is `queued`,
and a slot is the lease of a run. ADR 33 has the design.
"""
