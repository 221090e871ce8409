"""The numbers that a simulation draws: one after the other, or each by its purpose.

An ordinary simulation takes the next number of one stream, whatever it is for: an event that comes earlier changes
everything after it. Where two versions of the product are compared, a number belongs to its purpose instead (the way of
this request, the third commit of that process), so a version that takes fewer passes of the event loop for the same
step draws the same numbers.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final


class Draws:
    """The numbers of one simulation."""

    def __init__(self, seed: int, *, by_purpose: bool = False) -> None:
        self.by_purpose: Final = by_purpose
        self._seed: Final = seed
        self._stream: Final = random.Random(f"world/{seed}")  # noqa: S311 - a simulation is no secret
        self._drawn: Final[Counter[tuple[object, ...]]] = Counter()

    def of(self, *purpose: object) -> random.Random:
        """The numbers for this purpose; asked again for the same purpose, they are others."""
        if not self.by_purpose:
            return self._stream
        self._drawn[purpose] += 1
        return random.Random(f"{self._seed}/{purpose}/{self._drawn[purpose]}")  # noqa: S311 - as above
