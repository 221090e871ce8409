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
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

ROOT = Path(__file__).parents[1]


def run(
    arguments: list[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run([sys.executable, *arguments], ...)` with its output captured and no input.

    A program with other `PYTHON...` variables than this process begins anew: an interpreter reads them as it starts.
    The arguments are those of Python: `-m MODULE ...` and `-c PROGRAM ...`, also after `-P`, or `FILE ...`.
    """
    if env is not None and _of_python(env) != _of_python(os.environ):
        return subprocess.run(
            [sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
            timeout=timeout, check=False,
        )  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory) / "out", Path(directory) / "err"
        job = {
            "arguments": arguments, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env),
            "out": str(out), "err": str(err), "timeout": timeout,
        }  # fmt: skip
        warm = _warm()
        warm.jobs.write(json.dumps(job) + "\n")
        warm.jobs.flush()
        status: int | None = json.loads(warm.answers.readline())
        if status is None:
            raise subprocess.TimeoutExpired(arguments, timeout)
        return subprocess.CompletedProcess(arguments, status, out.read_text("utf-8"), err.read_text("utf-8"))


def _of_python(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith("PYTHON")}


class Warm(NamedTuple):
    """A warm process: it reads jobs, and answers how each ended."""

    jobs: IO[str]
    answers: IO[str]


_processes: list[Warm] = []
"""The warm process of this one, as soon as it is needed."""


def _warm() -> Warm:
    if not _processes:
        command = [sys.executable, "-P", str(Path(__file__)), *sys.path]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert server.stdin is not None
        assert server.stdout is not None
        atexit.register(server.communicate)
        _processes.append(Warm(server.stdin, server.stdout))
    return _processes[0]


def keep() -> None:
    """Take this process as it is now, itself a fork of a warm one, as what later programs begin from."""
    (jobs, to_do), (results, answers) = os.pipe(), os.pipe()
    kept = os.fork()
    if kept == 0:
        os.close(to_do)
        os.close(results)
        serve(os.fdopen(jobs), os.fdopen(answers, "w"))
        os._exit(0)
    os.close(jobs)
    os.close(answers)
    warm = Warm(os.fdopen(to_do, "w"), os.fdopen(results))
    _processes[:] = [warm]

    def end() -> None:
        warm.jobs.close()
        os.waitpid(kept, 0)

    atexit.register(end)


# --- the warm process -------------------------------------------------------------------------------------------------


def serve(jobs: IO[str], answers: IO[str]) -> None:
    """Fork a child for each job, and answer how it ended: its exit status, below zero for a signal, None if it hangs."""
    for line in jobs:
        job: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            become(job)
        answers.write(json.dumps(ended(child, job["timeout"])) + "\n")
        answers.flush()


def ended(child: int, seconds: float) -> int | None:
    """The exit status of a child; None if it took longer, and was killed."""
    import select
    import signal

    watched = os.pidfd_open(child)
    try:
        in_time = bool(select.select([watched], [], [], seconds)[0])
        if not in_time:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status if in_time else None
    finally:
        os.close(watched)


def become(job: Mapping[str, Any]) -> NoReturn:
    """Run the program of a job in this process, which ends as the program does."""
    os.environ.clear()
    os.environ.update(job["env"])
    sys.dont_write_bytecode = True  # as in `tests/conftest.py`
    os.chdir(job["cwd"])
    for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, job["out"], WRITE), (2, job["err"], WRITE)):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
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


WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


if __name__ == "__main__":
    sys.path[:] = sys.argv[1:]
    import gc
    import pkgutil

    import beforehand.cli
    import beforehand.journal.sqlite.journal

    for command in pkgutil.iter_modules(beforehand.cli.__path__, "beforehand.cli."):
        importlib.import_module(command.name)
    gc.freeze()  # so that a collection in a child touches nothing of its parent, which would be copied
    serve(sys.stdin, sys.stdout)
