"""Tools for tests of agents and tools: virtual time, one operation at a time, and real runs as fixtures."""

from holdfast.testing.clock import VirtualLoop, run_virtual, virtual_seams
from holdfast.testing.fixtures import replay_fixture
from holdfast.testing.operation import operation

__all__ = ["VirtualLoop", "operation", "replay_fixture", "run_virtual", "virtual_seams"]
