"""What arguments may be at most, and how one that cannot be recorded is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.errors import ArgumentError

NOTHING_DONE: Final = "nothing was recorded and nothing was sent."


@dataclass(frozen=True, slots=True)
class Limits:
    """How deep the arguments may nest, and how many bytes their canonical form may have."""

    depth: int = 32
    size: int = 1_048_576


def argument_error(parameter: str, problem: str, todo: str, known: str = NOTHING_DONE) -> ArgumentError:
    """The error for one argument; `parameter` is the path to the fault, such as `order.lines[3].price`."""
    error = ArgumentError(f"{parameter}: {problem}", parameter=parameter, next_step=todo)
    error.known = known
    return error
