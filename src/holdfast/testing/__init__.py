"""Tools for tests of agents and tools: virtual time, and one operation at a time."""

from holdfast.testing.clock import VirtualLoop, run_virtual, virtual_seams
from holdfast.testing.operation import operation

__all__ = ["VirtualLoop", "operation", "run_virtual", "virtual_seams"]
