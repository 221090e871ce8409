"""The program that an agent belongs to: the module its function is defined in, however the module was started.

`python desk.py`, `python -m desk` and `holdfast worker desk.py:refund_desk` are one program, wherever the file is: the
name is made from the file's place among its packages, not from its directory. ADR 28 has the reasons.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from holdfast.model.ids import NAME_LIMIT

TYPED: Final = "__main__"
"""The program of code that is in no file: a notebook, a prompt, `python -c`."""
_PACKAGE_FILES: Final = ("__init__.py", "__init__.pyc")
_OF_A_PACKAGE: Final = frozenset({"__main__", "__init__"})


def program_of(function: Callable[..., Any]) -> str:
    """The dotted name of the module that defines `function`; its text fits a record, whatever the file is called."""
    # Not from `sys.modules`: a file that a profiler or a notebook runs has names of its own.
    names: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    file = names.get("__file__")
    name = _name_of_file(Path(file)) if isinstance(file, str) else str(names.get("__name__", TYPED))
    return name.encode("utf-8", "replace").decode()[-NAME_LIMIT:] or TYPED


def _name_of_file(path: Path) -> str:
    """`shop.desk` for a file in the package `shop`, `desk` for one in no package, and the package for its own files.

    The climb ends at a directory that cannot be imported: its name may be that of a deployment.
    """
    path = path.absolute()
    parts, directory = ([] if path.stem in _OF_A_PACKAGE else [path.stem]), path.parent
    while directory.name.isidentifier() and any((directory / file).is_file() for file in _PACKAGE_FILES):
        parts.insert(0, directory.name)
        directory = directory.parent
    return ".".join(parts) or path.parent.stem or TYPED
