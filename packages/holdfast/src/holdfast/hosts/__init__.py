"""Adapters: a module for each agent framework, for HTTP clients and for web servers. Import the one that you use.

The extra of a host (`pip install 'holdfast[pydantic-ai]'`) installs a version that its module works with.
"""

import functools
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from holdfast.errors import UsageError


def too_old(distribution: str, lowest: str, extra: str) -> UsageError:
    """The error for a host that is missing, or lacks what its module needs."""
    try:
        found = f"{distribution} {version(distribution)} is installed"
    except PackageNotFoundError:
        found = f"{distribution} is not installed"
    return UsageError(f"this needs {distribution} {lowest} or newer", known=found, next_step=f"pip install '{extra}'")


def mixed_copy(mixin: Any, part: Any, **state: Any) -> Any:
    """A copy of a model or tool of a host with the methods of `mixin`; its class keeps the name that hosts ask for."""
    made, kind = part.model_copy(), cast("Any", type(part))
    object.__setattr__(made, "__class__", _mixed(mixin, kind))
    made.__dict__.update(state)
    return made


@functools.cache
def _mixed(mixin: Any, kind: Any) -> Any:
    return type(kind.__name__, (mixin, kind), {"__module__": kind.__module__})
