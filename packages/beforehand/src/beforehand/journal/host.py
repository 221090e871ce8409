"""Facts about the machine: process identities, whether a process still lives, clocks, and file systems.

A process counts as dead only when that is proven, because another attempt may follow from it. A fact that cannot be
determined is an empty value that proves nothing; it raises no error. Linux and macOS are complete; elsewhere nothing is
proven.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from beforehand.journal import macos
from beforehand.journal.port import Fate, Worker


class FileIdentity(NamedTuple):
    """The identity of a file. A copy has another inode; device numbers may change at a reboot."""

    device: int
    inode: int


class Holder(NamedTuple):
    """A process that holds a lock, as this machine sees it. `state` is a word; empty where it is not known."""

    pid: int
    state: str


class _Stat(NamedTuple):
    """Fields 3, 20 and 22 of `/proc/PID/stat` (proc_pid_stat(5)), or the same from macOS."""

    state: str
    threads: int
    started: int


_STATES: Final = {
    "R": "running",
    "S": "waiting",
    "D": "waiting for a disk",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended",
}
_PROC: Final = Path("/proc")

# The first pid namespace of a Linux machine always has this inode (PROC_PID_INIT_INO in the kernel).
_FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"

# A boot that cannot be named gets a name that no other process has, so that its clock is not trusted.
_ONE_PROCESS: Final = "process:"


# -- processes ---------------------------------------------------------------------------------------------


def this_process(worker_id: str) -> Worker:
    """The calling process as a worker: enough for another process of the machine to prove later that it is dead."""
    pid = os.getpid()
    stat = _stat(pid)
    return Worker(
        id=worker_id,
        machine=machine_id(),
        boot=boot_id(),
        pid_namespace=_pid_namespace() if stat else "",
        pid=pid,
        started=stat.started if stat else 0,
    )


def fate(worker: Worker, here: Worker | None = None) -> Fate:
    """State of the process of `worker`, as far as `here` (this process, unless given) can prove it.

    Same machine, another boot: dead. Same boot, same pid namespace: dead without a process of that number that
    started then, or with only its zombie left; a stopped one is alive. Anything else, other containers included:
    unknown.
    """
    here = here or this_process("")
    if not (boot_is_known(worker.boot) and boot_is_known(here.boot)):
        return "unknown"
    if worker.boot != here.boot:
        return "dead" if worker.machine and worker.machine == here.machine else "unknown"
    if not worker.pid_namespace or worker.pid_namespace != here.pid_namespace:
        return "unknown"
    return _fate_of_process(worker.pid, worker.started)


def lock_holder(path: Path) -> Holder | None:
    """The process of this machine that holds the `flock` on a file; None where that cannot be seen (/proc/locks)."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:
        fields = line.split()  # 1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF; one that waits has -> behind the number
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            stat = _stat(int(fields[4]))
            return Holder(int(fields[4]), "" if stat is None else _STATES.get(stat.state, ""))
    return None


def _fate_of_process(pid: int, started: int) -> Fate:
    if pid <= 0 or started <= 0:
        return "unknown"
    stat = _stat(pid)
    if stat is None:
        return "dead" if _is_free(pid) else "unknown"
    if stat.started != started:
        return "dead"  # the number was given to another process
    # A leader that ended while its threads run on is shown as a zombie too, and they may still send.
    ended = stat.state in {"Z", "X", "x"} and stat.threads <= 1
    return "dead" if ended else "alive"


def _stat(pid: int) -> _Stat | None:
    """None when there is no such process, or none that we may see (`hidepid`)."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
        return _Stat(state=fields[0], threads=int(fields[17]), started=int(fields[19]))
    except (OSError, ValueError, IndexError):
        seen = macos.process(pid)
        return None if seen is None else _Stat(state=seen[0], threads=1, started=seen[1])


def _is_free(pid: int) -> bool:
    """True if no process has this number, not even one that we may not see."""
    try:
        os.kill(pid, 0)  # signal 0 only asks
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _pid_namespace() -> str:
    """Where process numbers and start times mean the same; empty when /proc is not that of this process."""
    if macos.library() is not None:
        return "macos"  # one for the whole machine
    try:
        if (_PROC / "self").readlink().name != str(os.getpid()):
            return ""
        space = str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""
    try:
        return f"{space} {(_PROC / 'self/ns/time').readlink()}"  # start times are shifted by time namespaces
    except OSError:
        return space


# -- the machine -------------------------------------------------------------------------------------------


@cache
def machine_id() -> str:
    """A name of this machine that stays the same over reboots; empty when there is none to trust.

    machine-id(5) is hashed, since it should not leave the machine. In a container the file belongs to the image
    and may be the same on many machines, so that there it names nothing.
    """
    if os.name != "posix":
        return ""
    if _PROC.joinpath("self").exists() and not _pid_namespace().startswith(_FIRST_PID_NAMESPACE):
        return ""
    found = _first_line("/etc/machine-id", "/var/lib/dbus/machine-id") or macos.machine()
    if not found or found == "uninitialized":
        return ""
    return hashlib.sha256(b"beforehand machine " + found.encode()).hexdigest()[:32]


@cache
def boot_id() -> str:
    """A name of this boot of the kernel, or one that only this process has (see `boot_is_known`)."""
    named = _first_line("/proc/sys/kernel/random/boot_id") or macos.boot()
    return named or f"{_ONE_PROCESS}{os.urandom(16).hex()}"


def boot_is_known(boot: str) -> bool:
    """True if `boot` names a boot: another name means another boot, and the same name the same clock."""
    return bool(boot) and not boot.startswith(_ONE_PROCESS)


def _first_line(*paths: str) -> str:
    for path in paths:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if text:
            return text.splitlines()[0]
    return ""


# -- clocks and files --------------------------------------------------------------------------------------


_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def uptime_ms() -> int:
    """Milliseconds on a clock that cannot be set and runs while the machine sleeps; compares within a boot.

    Where there is no CLOCK_BOOTTIME, CLOCK_MONOTONIC: on macOS that clock runs during sleep as well.
    """
    if _CLOCK is None:
        return time.monotonic_ns() // 1_000_000
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970 by the calendar clock, which users and NTP may set."""
    return time.time_ns() // 1_000_000


class _Schedule(threading.local):
    """The scheduler's figures about the calling thread (proc_pid_schedstat(5)), open for as long as it lives."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        try:
            self.descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self.descriptor = -1

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


_SCHEDULE: Final = _Schedule()


def queued_ns() -> int:
    """How long the calling thread has been ready to run without a processor; 0 where the system does not say."""
    schedule = _SCHEDULE
    if schedule.descriptor < 0 or schedule.pid != os.getpid():  # a forked child has its parent's figures open
        return 0
    return int(os.pread(schedule.descriptor, 64, 0).split()[1])


def sync(descriptor: int) -> None:
    """Make what was written to a file, or the names in a directory, durable."""
    if not macos.full_sync(descriptor):
        os.fsync(descriptor)


def file_identity(path: Path | str) -> FileIdentity:
    """The identity of the file that `path` leads to, symbolic links followed. Raises OSError when there is none."""
    stat = os.stat(path)  # noqa: PTH116 - takes both kinds of path as they come
    return FileIdentity(stat.st_dev, stat.st_ino)


# --- file systems --------------------------------------------------------------------------------------------------
# SQLite's locks and syncs need a local one.


# Shared between machines, or served by another kernel: POSIX locks or fsync may not mean there what they mean here.
_NETWORK: Final = frozenset(
    {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "fakeowner", "gfs", "gfs2", "gpfs",
        "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "pvfs2", "smb3", "smbfs", "vboxsf",
        "virtiofs", "vmhgfs",
        "fuse.ceph", "fuse.ceph-fuse", "fuse.curlftpfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs",
        "fuse.grpcfuse", "fuse.juicefs", "fuse.mfs", "fuse.mount-s3", "fuse.osxfs", "fuse.rclone", "fuse.s3fs",
        "fuse.seaweedfs", "fuse.smbnetfs", "fuse.sshfs", "fuse.vmhgfs-fuse",
    }
)  # fmt: skip

_MOUNTS: Final = Path("/proc/self/mountinfo")

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of `/proc/self/mountinfo` (proc_pid_mountinfo(5))."""

    id: int
    point: str
    kind: str


def network_filesystem(path: Path | str) -> str | None:
    """The type of the network file system that `path` lies on (`nfs4`, `cifs`, `fuse.sshfs`, ...).

    None when it is local, or cannot be known (anywhere but on Linux). The path itself need not exist.
    """
    real = _existing(os.path.realpath(path))
    try:
        known = mounts(_MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return None
    mount = _by_id(_mount_id(real), known) or _longest_prefix(real, known)
    return mount.kind if mount is not None and mount.kind in _NETWORK else None


def mounts(mountinfo: str) -> list[Mount]:
    """The mounts in the text of a `mountinfo`; other lines are skipped."""
    return list(_mounts(mountinfo))


def _longest_prefix(path: str, known: list[Mount]) -> Mount | None:
    """The mount whose point is the longest prefix of `path`, the last one where several share a point."""
    above = [mount for mount in known if f"{path}/".startswith(f"{mount.point.rstrip('/')}/")]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def _by_id(wanted: int | None, known: list[Mount]) -> Mount | None:
    return next((mount for mount in known if mount.id == wanted), None)


def _mount_id(path: str) -> int | None:
    """The kernel's own answer, right even where one mount hides another."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return None
    try:
        info = Path(f"/proc/self/fdinfo/{handle}").read_text(encoding="ascii")
    except OSError:
        return None
    finally:
        os.close(handle)
    found = re.search(r"^mnt_id:\s*(\d+)$", info, re.MULTILINE)
    return int(found[1]) if found else None


def _existing(path: str) -> str:
    """`path`, or the nearest directory above it that exists."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:  # noqa: PTH120 - plain strings throughout
        path = os.path.dirname(path)  # noqa: PTH120 - plain strings throughout
    return path


def _mounts(text: str) -> Iterator[Mount]:
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) > 4 and kind and fields[0].isdecimal():
            yield Mount(int(fields[0]), _unescaped(fields[4]), kind[0])


def _unescaped(point: str) -> str:
    """Blanks, tabs, newlines and backslashes are written as three octal digits."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), point)


# --- clocks and processes ------------------------------------------------------------------------------------------
# The machine as a journal sees it: clocks, names, and whether a process still lives. One value, so that tests can be
# another machine, another boot or another hour.


Held = Callable[[], AbstractContextManager[None]]
"""Makes a context in which a virtual clock stands still."""


class JournalClock(msgspec.Struct, frozen=True):
    """A clock for `SqliteJournal(path, clock=...)`. It measures leases, waits and settle windows.

    `uptime_ms` counts milliseconds and never decreases; its values are comparable while `boot` is the same. `wall_ms`
    is the wall clock. Every process that opens the file needs a clock with the same `boot`. A virtual clock, which
    jumps to the next timer when its loop is idle, gives `held`: a context in which it stands still during a commit.
    """

    boot: str
    uptime_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    held: Held | None = None


class HostFacts(msgspec.Struct, frozen=True):
    """A machine and its clocks. `uptime_ms` cannot be set and runs during sleep; `wall_ms` is the calendar."""

    machine: str
    boot: str
    uptime_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    fate: Callable[[Worker], Fate]


def this_host() -> HostFacts:
    """The real machine."""
    return HostFacts(machine=machine_id(), boot=boot_id(), uptime_ms=uptime_ms, wall_ms=wall_ms, fate=fate)


# --- memory --------------------------------------------------------------------------------------------------------

_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


def memory_kib() -> int | None:
    """The memory that this process may use, KiB: that of the machine, or its container's; None if unknown."""
    found: list[int] = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024)
    with suppress(OSError, ValueError):  # there is no limit, or no such file on this system
        found.append(int(_CGROUP_LIMIT.read_text()) // 1024)
    return min((kib for kib in found if kib > 0), default=None)
