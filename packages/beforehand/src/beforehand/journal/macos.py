"""macOS, where it differs from Linux: processes, the names of machine and boot, and syncs that reach the disk.

Written from Apple's documents and not tested on a Mac: `scripts/platform_check.py` prints there what holds. A fact that
the system does not tell is None or empty, and proves nothing.
"""

from __future__ import annotations

import errno
import struct
import sys
from functools import cache
from typing import Any, Final

# From <sys/proc_info.h>: flags, status, exit status and number first, the moment of the start last (s, us).
_BSD_INFO: Final = struct.Struct("=4x I 4x I 104x Q Q")
_PID_BSD_INFO: Final = 3  # the flavor PROC_PIDTBSDINFO
_ZOMBIES_TOO: Final = 1
_STATES: Final = {1: "R", 2: "R", 3: "S", 4: "T", 5: "Z"}  # SIDL to SZOMB of <sys/proc.h>, as /proc on Linux names them

_FULL_SYNC: Final = 51  # F_FULLFSYNC of <sys/fcntl.h>; Python has the name on macOS only
_NOT_SUPPORTED: Final = {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}


@cache
def library() -> Any | None:
    """The system library, which every process has loaded; None on other systems."""
    if sys.platform == "darwin":
        import ctypes  # noqa: PLC0415 - only macOS needs it

        return ctypes.CDLL(None)
    return None


def process(pid: int) -> tuple[str, int] | None:
    """State and start (in microseconds since 1970) of the process of that number, from proc_pidinfo(3).

    None when there is none, or none that we may see.
    """
    if (system := library()) is None:
        return None
    import ctypes  # noqa: PLC0415 - as above

    found = ctypes.create_string_buffer(_BSD_INFO.size)
    try:
        size = system.proc_pidinfo(
            ctypes.c_int(pid), _PID_BSD_INFO, ctypes.c_uint64(_ZOMBIES_TOO), found, ctypes.c_int(_BSD_INFO.size)
        )
    except AttributeError:
        return None
    status, number, seconds, microseconds = _BSD_INFO.unpack(found.raw)
    if size != _BSD_INFO.size or number != pid:
        return None
    return _STATES.get(status, ""), seconds * 1_000_000 + microseconds


def machine() -> str:
    """The hardware's UUID, from gethostuuid(2)."""
    if (system := library()) is None:
        return ""
    import ctypes  # noqa: PLC0415 - as above

    found, patience = (ctypes.c_ubyte * 16)(), (ctypes.c_long * 2)(1, 0)
    try:
        failed = system.gethostuuid(found, patience)
    except AttributeError:
        return ""
    return "" if failed else bytes(found).hex()


def boot() -> str:
    """The UUID of this boot, from sysctl(3)."""
    if (system := library()) is None:
        return ""
    import ctypes  # noqa: PLC0415 - as above

    found, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    try:
        failed = system.sysctlbyname(b"kern.bootsessionuuid", found, ctypes.byref(size), None, ctypes.c_size_t(0))
    except AttributeError:
        return ""
    return "" if failed else found.value.decode("ascii", errors="replace")


def full_sync(descriptor: int) -> bool:
    """Bring a file through the disk's own cache, where fsync(2) leaves it. False: not here, or not this file system."""
    if library() is None:
        return False
    import fcntl  # noqa: PLC0415 - Windows has none

    try:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    except OSError as error:
        if error.errno in _NOT_SUPPORTED:
            return False
        raise
    return True
