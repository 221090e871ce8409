"""Tools for tests of agents: virtual time, one operation, whole runs with crashes, real runs as fixtures."""

from holdfast.testing.clock import VirtualLoop, run_virtual, simulated_environment, virtual_journal_clock
from holdfast.testing.fixtures import replay_fixture
from holdfast.testing.operation import operation
from holdfast.testing.world import World

__all__ = [
    "VirtualLoop",
    "World",
    "operation",
    "replay_fixture",
    "run_virtual",
    "simulated_environment",
    "virtual_journal_clock",
]
