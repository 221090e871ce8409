"""Run a test of the product with one bug planted: for bugs that no seed of the simulator is known to find.

    python -m simulator.mutations.tested "joins off the record" tests/unit/engine/test_joins_under_limits.py

The exit status is that of pytest. Without a name, the product is tested as it is.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from simulator.mutations.catalogue import MUTANTS
from simulator.mutations.mutation import Mutant, planted


def its_test_finds(mutant: Mutant) -> bool:
    """True if the test that the bug names fails with the bug, and passes without it."""
    return _status(mutant.name, mutant.test) == pytest.ExitCode.TESTS_FAILED and _status("", mutant.test) == 0


def _status(name: str, test: str) -> int:
    command = [sys.executable, "-m", "simulator.mutations.tested", name, test]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode  # noqa: S603 - our own words


class _Planting:
    """Plants the bug once the tests are collected, so that what they import holds the bug as well."""

    def __init__(self, name: str) -> None:
        self._bugs = [mutant for mutant in MUTANTS if mutant.name == name]
        self._plants = contextlib.ExitStack()

    def pytest_collection_finish(self) -> None:
        for bug in self._bugs:
            self._plants.enter_context(planted(bug))

    def pytest_unconfigure(self) -> None:
        self._plants.close()


def main() -> int:
    """Run the test; see the module."""
    name, test = sys.argv[1:]
    given = ["-q", "-x", "-W", "ignore", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    return int(pytest.main(given, plugins=[_Planting(name)]))


if __name__ == "__main__":
    sys.exit(main())
