"""What a zygote forks where programs share slow imports: each child runs a program as `python -m` does.

Importing a framework takes seconds, and a fork takes milliseconds. `BEFOREHAND_TEST_MODULES` names what is imported once.
"""

import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any

for _name in os.environ.get("BEFOREHAND_TEST_MODULES", "").split():
    importlib.import_module(_name)


def main(job: dict[str, Any]) -> None:
    """Run the module `argv[0]` as the main program, with the other words as its arguments."""
    os.chdir(Path(__file__).parents[2])
    sys.argv = list(job["argv"])
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code:
            raise
