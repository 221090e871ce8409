"""Run the blocks of one page, in this process and in the current directory: `play.py PAGE`.

Python blocks share one module, as if the page were a program typed in pieces; its lines keep the numbers they
have on the page, so a traceback points at the page. The first block that fails ends the program.

In a fork of a warm process (`tests/forked.py`) commands begin as forks as well, of what it was before the first block.
"""

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
import warnings
from pathlib import Path

# Run as a program from an empty directory, so it finds its neighbour by its own place, not by the current one.
from pages import Block, blocks

WARM = "beforehand.cli.main" in sys.modules
if WARM:
    from tests import forked

SHOWN = "3f9c2a1b04de"
"""The digest on every page, in the place of the one that a reader sees."""


def main() -> None:
    page = Path(sys.argv[1])
    if WARM:
        forked.keep()
        warnings.simplefilter("error")  # in the page alone, as its commands are the reader's
    module = types.ModuleType("__main__")
    # Annotations are resolved, and tools are looked for, in the module that their code names.
    sys.modules["__main__"] = module
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.runs:
            play(block, page, module)


def play(block: Block, page: Path, module: types.ModuleType) -> None:
    if "file" in block.remarks:
        Path(block.remarks["file"]).write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        source = "\n" * (block.line - 1) + block.text
        exec(compile(source, str(page), "exec"), vars(module))
    else:
        for command, expected in block.commands:
            run(command, expected)


def perform(command: str) -> subprocess.CompletedProcess[str]:
    """Run one command, without input."""
    words = shlex.split(re.sub(r"\s#.*$", "", command))
    settings = dict(word.split("=", 1) for word in itertools.takewhile(re.compile(r"[A-Z_]+=").match, words))
    program, *given = words[len(settings) :]
    env = os.environ | settings
    if WARM and program == "python":
        return forked.run(given, env=env)
    if WARM and shutil.which(program) == str(Path(sys.executable).parent / "beforehand"):
        return forked.run(["-P", "-m", "beforehand", *given], env=env)
    program = sys.executable if program == "python" else program  # the environment of the page's framework
    return subprocess.run(
        [program, *given], stdin=subprocess.DEVNULL, env=env, capture_output=True, text=True, check=False
    )


def shown_by(command: str) -> str:
    """What the command without a digest says that was shown: a page cannot know it."""
    told = perform(command).stderr
    found = re.search(r"--shown ([0-9a-f]{12})", told)
    return found[1] if found else sys.exit(f"`{command}` names no digest: {told}")


def run(command: str, expected: int) -> None:
    print(f"$ {command}")
    if SHOWN in command:
        command = command.replace(SHOWN, shown_by(command.replace(f"--shown {SHOWN} ", "")))
    done = perform(command)
    print(done.stdout, end="", flush=True)
    print(done.stderr, end="", file=sys.stderr, flush=True)
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode  # as a shell reports a signal
    if status != expected:
        sys.exit(f"`{command}` ended with status {status}, the page says {expected}")


if __name__ == "__main__":
    main()
