"""Python programs in processes of their own that are forked from a warm one.

A fresh interpreter needs a third of a second to import the product, which is most of what a short command takes. So each
process that runs tests keeps one that has imported it, and a program begins as a fork of that. A program in which the
start itself is the question begins with `subprocess`, as ever.
"""

import atexit
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]
UNKEPT = {"PYTHONDONTWRITEBYTECODE": "1"}
"""As in `tests/conftest.py`: nothing is kept of a program that a test changes within the same second."""


def start(arguments: list[str], *, env: Mapping[str, str] | None = None, **how: Any) -> subprocess.Popen[str]:
    """As `subprocess.Popen([sys.executable, *arguments], text=True, ...)` with a directory, streams and a session.

    A program with other `PYTHON...` variables than this process begins anew: an interpreter reads them as it starts.
    The arguments are those of Python: `-m MODULE ...` and `-c PROGRAM ...`, also after `-P`, or `FILE ...`.
    """
    env = {**(os.environ if env is None else env), **UNKEPT}
    kind = Fork if _of_python(env) == _of_python({**os.environ, **UNKEPT}) else subprocess.Popen
    return kind([sys.executable, *map(str, arguments)], env=env, text=True, **how)


def run(
    arguments: list[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run([sys.executable, *arguments], ...)` with its output captured and no input."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(arguments, cwd=cwd, env=env, **streams) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def _of_python(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith("PYTHON")}


class Fork(subprocess.Popen):  # type: ignore[type-arg]  # of text or bytes, as the base class
    """A process whose parent is the warm one, which alone can receive its exit status."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        streams = rest[3:9]  # the child's and our ends, of input, output and errors; -1 where it is ours that is used
        ends = [ours if end == -1 else end for ours, end in enumerate((streams[0], streams[3], streams[5]))]
        job = {"arguments": args[1:], "cwd": str(cwd or Path.cwd()), "env": dict(env), "session": rest[-2]}
        self.pid = _asked(job, ends)
        self._ends = os.pidfd_open(self.pid)
        self._child_created = True
        self._close_pipe_fds(*streams)

    def _wait(self, timeout):
        """Unlike that of the base class it never looks again and again."""
        if self._internal_poll(seconds=timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _internal_poll(self, _deadstate=None, seconds=0):
        with self._waitpid_lock:
            if self.returncode is None and select.select([self._ends], [], [], seconds)[0]:
                self.returncode = _asked({"ended": self.pid})
                os.close(self._ends)
        return self.returncode


_warm: list[socket.socket] = []
"""The way to the warm process of this one, as soon as it is needed."""
_asking = threading.Lock()


def _asked(question: Mapping[str, Any], descriptors: list[int] = []) -> int:  # noqa: B006 - nothing is added to it
    """The answer of the warm process."""
    with _asking:
        if not _warm:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-P", str(Path(__file__)), *sys.path]
            with theirs:
                server = subprocess.Popen(command, stdin=theirs, stdout=subprocess.DEVNULL, cwd=ROOT)
            _keep(ours, server.wait)
        socket.send_fds(_warm[0], [json.dumps(question).encode()], descriptors)
        answer = _warm[0].recv(64)
        assert answer, "the warm process has ended"
        return int(answer)


def _keep(ours: socket.socket, wait: Callable[[], object]) -> None:
    _warm[:] = [ours]

    def end() -> None:
        ours.close()
        wait()

    atexit.register(end)


def keep() -> None:
    """Take this process as it is now, itself a fork of a warm one, as what later programs begin from."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = os.fork()
    if kept == 0:
        ours.close()
        serve(theirs)
        os._exit(0)
    theirs.close()
    _keep(ours, lambda: os.waitpid(kept, 0))


# --- the warm process -------------------------------------------------------------------------------------------------


def serve(questions: socket.socket) -> None:
    """Fork a child for each job, and answer its id; later its exit status, below zero for a signal."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(questions, 1_000_000, 3)
        if not text:
            return
        question: dict[str, Any] = json.loads(text)
        if "ended" in question:
            answer = os.waitstatus_to_exitcode(os.waitpid(question["ended"], 0)[1])
        elif (answer := os.fork()) == 0:
            questions.close()
            become(question, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        questions.send(str(answer).encode())


def become(job: Mapping[str, Any], streams: list[int]) -> NoReturn:
    """Run the program of a job in this process, which ends as the program does."""
    os.environ.clear()
    os.environ.update(job["env"])
    sys.dont_write_bytecode = True
    os.chdir(job["cwd"])
    if job["session"]:
        os.setsid()
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # a pipe, a file and a terminal differ
        like, line = getattr(sys, name), 1 if name == "stderr" else -1
        fresh = open(like.fileno(), mode, line, like.encoding, like.errors, closefd=False)  # noqa: SIM115 - stays open
        setattr(sys, name, fresh)
    sys.orig_argv[:] = [sys.executable, *job["arguments"]]
    status = 1
    try:
        perform(job["arguments"])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
    finally:
        # The interpreter would take itself apart now, and visit every object of the warm process: nine tenths of the
        # time of a short program.
        threading._shutdown()  # type: ignore[attr-defined]  # the stubs omit what is private
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)


def perform(words: list[str]) -> None:
    """Run what the arguments of Python name."""
    if words[0] == "-P":
        words = words[1:]
    elif words[0] in {"-c", "-m"}:
        sys.path.insert(0, "")
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    elif words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    sys.path[:] = sys.argv[1:]
    import gc
    import pkgutil

    import beforehand.cli

    for command in pkgutil.iter_modules(beforehand.cli.__path__, "beforehand.cli."):
        importlib.import_module(command.name)
    for late in ("backend", "reader"):
        importlib.import_module(f"beforehand.journal.sqlite.{late}")
    for late in ("cells", "console", "padding", "table"):
        importlib.import_module(f"rich.{late}")
    for late in ("beforehand.inspect.explain", "genai_prices"):  # the prices of models take a third of a second
        importlib.import_module(late)
    gc.freeze()  # so that a collection in a child touches nothing of its parent, which would be copied
    serve(socket.socket(fileno=0))
