"""Compensation patterns for effects that cannot simply be undone. Call them in a `.compensate`."""

from beforehand.patterns.commits import find_commit, revert_commit
from beforehand.patterns.compensation import close_or_label, follow_up, for_operator, release_or_refund

__all__ = ["close_or_label", "find_commit", "follow_up", "for_operator", "release_or_refund", "revert_commit"]
