"""The names that macOS gives its machine and its boot; empty strings elsewhere. Only host.py asks."""

from __future__ import annotations

import ctypes


def machine() -> str:
    """The hardware's UUID, from gethostuuid(2)."""
    try:
        found, patience = (ctypes.c_ubyte * 16)(), (ctypes.c_long * 2)(1, 0)
        failed = ctypes.CDLL(None).gethostuuid(found, patience)
    except (AttributeError, OSError, TypeError):
        return ""
    return "" if failed else bytes(found).hex()


def boot() -> str:
    """The UUID of this boot, from sysctl(3)."""
    try:
        found, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
        failed = ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", found, ctypes.byref(size), None, 0)
    except (AttributeError, OSError, TypeError):
        return ""
    return "" if failed else found.value.decode("ascii", errors="replace")
