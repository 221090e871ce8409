"""The journal package: the port, its back ends, hash chains, and facts about processes and files.

`journal.open(address)` is the only place that maps an address to a back end.
"""

from beforehand.journal.backends import open_journal as open  # noqa: A004 - used as journal.open, like gzip.open

__all__ = ["open"]
