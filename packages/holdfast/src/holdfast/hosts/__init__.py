"""Adapters: a module for each agent framework, for HTTP clients and for web servers. Import the one that you use.

The extra of a host (`pip install 'holdfast[pydantic-ai]'`) installs a version that its module works with.
"""

import contextlib
import functools
import re
from collections.abc import Generator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from holdfast.errors import UsageError


@contextlib.contextmanager
def supported(distribution: str, lowest: str, below: str, extra: str) -> Generator[None]:
    """Import a host inside. Raises `UsageError` for one that is missing, too old or too new for its module."""
    try:
        found = version(distribution)
    except PackageNotFoundError:
        found = ""
    if not found or not _numbers(lowest) <= _numbers(found) < _numbers(below):
        raise UsageError(
            f"this module needs {distribution} from {lowest}, below {below}",
            known=f"{distribution} {found} is installed" if found else f"{distribution} is not installed",
            next_step=f"pip install 'holdfast[{extra}]'",
        )
    yield


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", release)[:3])


def mixed_copy(mixin: Any, part: Any, **state: Any) -> Any:
    """A copy of a model or tool of a host with the methods of `mixin`; its class keeps the name that hosts ask for."""
    made, kind = part.model_copy(), cast("Any", type(part))
    object.__setattr__(made, "__class__", _mixed(mixin, kind))
    made.__dict__.update(state)
    return made


@functools.cache
def _mixed(mixin: Any, kind: Any) -> Any:
    return type(kind.__name__, (mixin, kind), {"__module__": kind.__module__})
