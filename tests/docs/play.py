"""Run the blocks of one page, in this process and in the current directory: `play.py PAGE`.

Python blocks share one module, as if the page were a program typed in pieces; its lines keep the numbers they
have on the page, so a traceback points at the page. The first block that fails ends the program.
"""

import itertools
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

# Run as a program from an empty directory, so it finds its neighbour by its own place, not by the current one.
from pages import Block, blocks

SHOWN = "3f9c2a1b04de"
"""The digest on every page, in the place of the one that a reader sees."""


def main() -> None:
    page = Path(sys.argv[1])
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


def shown_by(command: str) -> str:
    """What the command without a digest says that was shown: a page cannot know it."""
    told = subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = re.search(r"--shown ([0-9a-f]{12})", told.stderr)
    return found[1] if found else sys.exit(f"`{command}` names no digest: {told.stderr}")


def run(command: str, expected: int) -> None:
    print(f"$ {command}", flush=True)
    if SHOWN in command:
        command = command.replace(SHOWN, shown_by(command.replace(f"--shown {SHOWN} ", "")))
    words = shlex.split(re.sub(r"\s#.*$", "", command))
    settings = dict(word.split("=", 1) for word in itertools.takewhile(re.compile(r"[A-Z_]+=").match, words))
    program, *given = words[len(settings) :]
    program = sys.executable if program == "python" else program  # the environment of the page's framework
    status = subprocess.run(
        [program, *given], stdin=subprocess.DEVNULL, env=os.environ | settings, check=False
    ).returncode
    status = status if status >= 0 else 128 - status  # as a shell reports a signal
    if status != expected:
        sys.exit(f"`{command}` ended with status {status}, the page says {expected}")


if __name__ == "__main__":
    main()
