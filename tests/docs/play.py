"""Run the blocks of one page, in this process and in the current directory: `play.py PAGE`.

Python blocks share one module, as if the page were a program typed in pieces; its lines keep the numbers they
have on the page, so a traceback points at the page. The first block that fails ends the program.
"""

import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

# Run as a program from an empty directory, so it finds its neighbour by its own place, not by the current one.
from pages import Block, blocks


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


def run(command: str, expected: int) -> None:
    print(f"$ {command}", flush=True)
    status = subprocess.run(
        shlex.split(re.sub(r"\s#.*$", "", command)), stdin=subprocess.DEVNULL, check=False
    ).returncode
    if status != expected:
        sys.exit(f"`{command}` ended with status {status}, the page says {expected}")


if __name__ == "__main__":
    main()
