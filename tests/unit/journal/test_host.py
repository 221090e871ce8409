"""Facts of the host, from real processes: killed, stopped, left as zombies, hidden, in other namespaces."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from beforehand.journal import host, macos
from beforehand.journal.port import Worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the facts of /proc")

WAIT = "import sys; print('up', flush=True); sys.stdin.read()"
SAY_WHO = """
import sys, msgspec
from beforehand.journal import host
print(msgspec.json.encode(host.this_process("other")).decode(), flush=True)
sys.stdin.read()
"""
LEADER_ENDS = """
import ctypes, sys, threading
def stay():
    print("up", flush=True)
    sys.stdin.read()
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
"""
HERE = Worker(id="here", machine="m", boot="b", pid_namespace="n", pid=1, started=1)


@contextlib.contextmanager
def running(code: str, *before: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that runs `code` until its input ends, and the first line it printed."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    with running(WAIT) as (process, line):
        assert line == "up\n"
        yield process


def as_worker(pid: int) -> Worker:
    here = host.this_process("child")
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return msgspec.structs.replace(here, pid=pid, started=started)


def await_end(pid: int) -> None:
    """Until the process has ended, without reaping it."""
    handle = os.pidfd_open(pid)
    try:
        assert select.select([handle], [], [], 10)[0]
    finally:
        os.close(handle)


# -- this process ------------------------------------------------------------------------------------


def test_this_process_is_alive() -> None:
    me = host.this_process("me")
    assert me.id == "me"
    assert me.pid == os.getpid()
    assert me.started > 0
    assert host.fate(me) == host.fate(me, me) == "alive"


def test_another_process_finds_the_same_machine_boot_and_namespace() -> None:
    me = host.this_process("me")
    with running(SAY_WHO) as (process, line):
        other = msgspec.json.decode(line, type=Worker)
        assert other.pid == process.pid
        assert (other.machine, other.boot, other.pid_namespace) == (me.machine, me.boot, me.pid_namespace)
        assert host.fate(other) == "alive"


def test_a_forked_child_is_not_its_parent(tmp_path: Path) -> None:
    found = tmp_path / "pid"
    if (pid := os.fork()) == 0:
        found.write_text(str(host.this_process("child").pid))
        os._exit(0)
    os.waitpid(pid, 0)
    assert int(found.read_text()) == pid != os.getpid()


# -- processes of this boot ---------------------------------------------------------------------------


def test_a_killed_and_reaped_process_is_dead(child: subprocess.Popen[str]) -> None:
    worker = as_worker(child.pid)
    assert host.fate(worker) == "alive"
    child.kill()
    child.wait()
    assert host.fate(worker) == "dead"


def test_a_zombie_is_dead(child: subprocess.Popen[str]) -> None:
    worker = as_worker(child.pid)
    child.kill()
    await_end(child.pid)
    assert "Z" in Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2]
    assert host.fate(worker) == "dead"


def test_a_stopped_process_is_alive(child: subprocess.Popen[str]) -> None:
    worker = as_worker(child.pid)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert "T" in Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2]
    assert host.fate(worker) == "alive"


def test_a_number_given_to_another_process_is_dead(child: subprocess.Popen[str]) -> None:
    worker = as_worker(child.pid)
    assert host.fate(msgspec.structs.replace(worker, started=worker.started - 1)) == "dead"


def test_a_number_that_is_now_a_thread_of_another_process_is_dead() -> None:
    ready, done = threading.Event(), threading.Event()
    numbers: list[int] = []

    def stay() -> None:
        numbers.append(threading.get_native_id())
        ready.set()
        done.wait(10)

    thread = threading.Thread(target=stay)
    thread.start()
    ready.wait(10)
    me = host.this_process("me")
    assert Path(f"/proc/{numbers[0]}/stat").exists(), "threads can be looked up by number as well"
    assert host.fate(msgspec.structs.replace(me, pid=numbers[0], started=1)) == "dead"
    done.set()
    thread.join()


def test_a_process_whose_first_thread_ended_is_alive_while_another_runs() -> None:
    """The kernel shows it as a zombie, but its other threads may still send."""
    with running(LEADER_ENDS) as (process, line):
        assert line == "up\n"
        worker = as_worker(process.pid)
        states = iter(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0], "Z")
        for _ in states:  # until the first thread is gone, which it is about to be
            continue
        assert host.fate(worker) == "alive"


def test_a_name_with_blanks_and_brackets_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    shutil.copy(Path(shutil.which("cat") or "cat").resolve(), program)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as process:
        assert host.fate(as_worker(process.pid)) == "alive"
        process.kill()
        process.wait()


@pytest.mark.parametrize("missing", [{"pid": 0}, {"pid": -1}, {"started": 0}, {"pid_namespace": ""}])
def test_a_worker_without_its_facts_is_unknown(missing: dict[str, object]) -> None:
    me = host.this_process("me")
    assert host.fate(msgspec.structs.replace(me, **missing)) == "unknown"


def test_a_number_beyond_every_process_is_dead() -> None:
    me = host.this_process("me")
    assert host.fate(msgspec.structs.replace(me, pid=2**22 + 1)) == "dead"
    assert host.fate(msgspec.structs.replace(me, pid=2**80)) == "unknown"


def test_a_process_that_we_may_not_see_is_unknown(
    child: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `hidepid`: nothing in /proc, yet the number is taken."""
    worker = as_worker(child.pid)
    here = host.this_process("here")
    monkeypatch.setattr(host, "_PROC", Path("/proc/self/task"))
    assert host.fate(worker, here) == "unknown"
    child.kill()
    child.wait()
    assert host.fate(worker, here) == "dead"


def test_another_pid_namespace_is_unknown() -> None:
    before = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
    allowed = subprocess.run([*before, "true"], check=False, capture_output=True).returncode == 0
    if not allowed:
        pytest.skip("this machine forbids new namespaces")
    with running(SAY_WHO, *before) as (_, line):
        other = msgspec.json.decode(line, type=Worker)
        assert other.pid == 1
        assert other.boot == host.boot_id()
        assert other.pid_namespace not in {"", host.this_process("me").pid_namespace}
        assert other.machine == "", "in a container, the machine-id is the image's"
        assert host.fate(other) == "unknown"


def test_a_proc_of_another_namespace_proves_nothing() -> None:
    """A new pid namespace that still sees the old /proc: numbers there are not its own."""
    before = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
    allowed = subprocess.run([*before, "true"], check=False, capture_output=True).returncode == 0
    if not allowed:
        pytest.skip("this machine forbids new namespaces")
    with running(SAY_WHO, *before) as (_, line):
        assert msgspec.json.decode(line, type=Worker).pid_namespace == ""


# -- other boots and machines ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"boot": "earlier"}, "dead"),
        ({"boot": "earlier", "pid_namespace": "container"}, "dead"),
        ({"boot": "earlier", "machine": "elsewhere"}, "unknown"),
        ({"boot": "earlier", "machine": ""}, "unknown"),
        ({"boot": ""}, "unknown"),
        ({"boot": "process:1"}, "unknown"),
        ({"pid_namespace": "container"}, "unknown"),
        ({"machine": "elsewhere", "pid_namespace": "container"}, "unknown"),
    ],
    ids=str,
)
def test_by_machine_boot_and_namespace(other: dict[str, str], expected: Literal["dead", "unknown"]) -> None:
    assert host.fate(msgspec.structs.replace(HERE, **other), HERE) == expected


def test_without_a_machine_no_boot_is_earlier() -> None:
    nowhere = msgspec.structs.replace(HERE, machine="")
    assert host.fate(msgspec.structs.replace(nowhere, boot="earlier"), nowhere) == "unknown"


def test_without_a_named_boot_nothing_is_proven() -> None:
    unnamed = msgspec.structs.replace(HERE, boot="process:2")
    assert host.fate(msgspec.structs.replace(HERE, boot="earlier"), unnamed) == "unknown"
    assert host.fate(unnamed, unnamed) == "unknown"


def test_the_machine_and_the_boot_keep_their_names() -> None:
    assert host.machine_id() == host.machine_id()
    assert host.boot_is_known(host.boot_id())
    assert host.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_the_machine_id_itself_is_not_given_away() -> None:
    with contextlib.suppress(FileNotFoundError):
        assert host.machine_id() != Path("/etc/machine-id").read_text().strip()


def test_the_facts_of_macos_are_empty_elsewhere() -> None:
    assert (macos.machine(), macos.boot(), macos.process(os.getpid())) == ("", "", None)
    with Path(os.devnull).open("wb") as file:
        assert not macos.full_sync(file.fileno())


# -- clocks and files ---------------------------------------------------------------------------------


def test_uptime_never_goes_back_and_is_the_machines() -> None:
    before = host.uptime_ms()
    with running("from beforehand.journal import host; print(host.uptime_ms(), flush=True)") as (_, line):
        assert before <= int(line) <= host.uptime_ms()


def test_wall_time_is_in_milliseconds(tmp_path: Path) -> None:
    before = host.wall_ms()
    (tmp_path / "now").touch()
    assert before - 1000 <= (tmp_path / "now").stat().st_mtime_ns // 1_000_000 <= host.wall_ms() + 1000


def test_a_copy_is_another_file_and_a_moved_one_is_not(tmp_path: Path) -> None:
    first = tmp_path / "a.db"
    first.write_text("x")
    known = host.file_identity(first)
    shutil.copy(first, tmp_path / "copy.db")
    first.rename(tmp_path / "moved.db")
    (tmp_path / "link.db").symlink_to("moved.db")
    assert host.file_identity(tmp_path / "copy.db") != known
    assert host.file_identity(tmp_path / "moved.db") == host.file_identity(str(tmp_path / "link.db")) == known
    with pytest.raises(FileNotFoundError):
        host.file_identity(first)


# -- file systems -------------------------------------------------------------------------------------

MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 27 0:50 / /team\\040share rw,relatime shared:7 master:2 - nfs4 server:/team rw,vers=4.2
41 27 0:51 / /team rw - xfs /dev/vdb rw
42 27 0:52 / /remote rw,nosuid - fuse.sshfs me@server: rw
43 42 0:53 / /remote/local rw - tmpfs tmpfs rw
44 27 0:54 / /shop rw - ext4 /dev/vdc rw
45 44 0:55 / /shop rw - cifs //server/shop rw
46 27 0:56 / /ntfs rw - fuseblk /dev/vdd rw
not a mount at all
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", None),
        ("/var/lib/desk.db", None),
        ("/team share/desk.db", "nfs4"),
        ("/team share", "nfs4"),
        ("/team shared/desk.db", None),
        ("/team/desk.db", None),
        ("/remote/desk.db", "fuse.sshfs"),
        ("/remote/local/desk.db", None),
        ("/shop/desk.db", "cifs"),
        ("/ntfs/desk.db", None),
    ],
)
def test_the_mount_under_a_path_decides(
    path: str, kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTINFO)
    monkeypatch.setattr(host, "_MOUNTS", table)
    monkeypatch.setattr(host, "_mount_id", lambda _: None)
    monkeypatch.setattr(host, "_existing", lambda path: path)
    assert host.network_filesystem(path) == kind


def test_the_kernels_own_answer_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows which mount hides which; the longest prefix would say ext4 here."""
    own = host._mount_id(str(tmp_path))
    assert own is not None
    table = tmp_path / "mountinfo"
    table.write_text(f"{own} 1 0:1 / / rw - nfs server:/ rw\n{own + 1} {own} 0:2 / {tmp_path} rw - ext4 /dev/vda rw\n")
    monkeypatch.setattr(host, "_MOUNTS", table)
    assert host.network_filesystem(tmp_path) == "nfs"
    assert host.network_filesystem(tmp_path / "not" / "yet" / "there.db") == "nfs"


def test_the_real_table_is_understood(tmp_path: Path) -> None:
    assert host.network_filesystem("/proc") is None
    mounts = host.mounts(Path("/proc/self/mountinfo").read_text())
    assert {mount.point for mount in mounts} >= {"/proc"}
    assert host._mount_id("/proc/self/stat") in {mount.id for mount in mounts if mount.kind == "proc"}


def test_without_a_table_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_MOUNTS", tmp_path / "missing")
    assert host.network_filesystem(tmp_path) is None
