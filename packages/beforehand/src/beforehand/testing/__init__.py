"""Tools for tests of agents: virtual time, one operation, whole runs with crashes, real runs as fixtures."""

from beforehand.testing.clock import run_virtual, simulated_environment, virtual_journal_clock
from beforehand.testing.fixtures import replay_fixture
from beforehand.testing.loop import VirtualLoop
from beforehand.testing.operation import operation
from beforehand.testing.world import World

__all__ = [
    "VirtualLoop",
    "World",
    "operation",
    "replay_fixture",
    "run_virtual",
    "simulated_environment",
    "virtual_journal_clock",
]
