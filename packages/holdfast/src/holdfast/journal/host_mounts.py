"""Which file system lies under a path, as far as it matters: SQLite's locks and syncs need a local one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

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
    """The mounts that the text of a `mountinfo` lists; lines that are none are passed over."""
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
