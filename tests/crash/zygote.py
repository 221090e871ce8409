"""A process that has imported a worker program and forks workers from it: real processes that start in milliseconds.

`python -I zygote.py ROOT MODULE` reads orders as JSON lines on its standard input and answers each with one line:
`{"start": job}` gives the worker's pid, `{"wait": pid, "seconds": n}` its exit status (negative: the signal that
ended it), or None after `n` seconds, when the worker is killed. `MODULE.main(job)` is a function or a coroutine; what it
returns is written as JSON to `job["out"]`.
"""

import asyncio
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path

PR_SET_PDEATHSIG = 1  # prctl(2): no worker, not even a stopped one, outlives the zygote


def work(program, job):
    """What a worker does, from its birth to its natural end."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with Path(job["log"]).open("a", encoding="utf-8") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        faulthandler.dump_traceback_later(job.get("patience_s", 60), exit=False)
        answer = program.main(job)
        answer = asyncio.run(answer) if asyncio.iscoroutine(answer) else answer
        written = Path(job["out"] + ".part")
        written.write_text(json.dumps(answer), encoding="utf-8")
        written.replace(job["out"])
        status = 0
    except BaseException:  # noqa: BLE001  # whatever ends a worker is told to the test through its log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def start(program, job):
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        work(program, job)
    return pid


def wait(pid, seconds):
    handle = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([handle], [], [], seconds)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(status) if ended else None


def main(root, module):
    sys.path.insert(0, root)
    program = importlib.import_module(module)
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        order = json.loads(line)
        answer = start(program, order["start"]) if "start" in order else wait(order["wait"], order["seconds"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
