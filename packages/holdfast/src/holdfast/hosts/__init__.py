"""Adapters: a module for each agent framework, for HTTP clients and for web servers. Import the one that you use.

The extra of a host (`pip install 'holdfast[pydantic-ai]'`) installs a version that its module works with.
"""

from importlib.metadata import PackageNotFoundError, version

from holdfast.errors import UsageError


def too_old(distribution: str, lowest: str, extra: str) -> UsageError:
    """The error for a host that is missing, or lacks what its module needs."""
    try:
        found = f"{distribution} {version(distribution)} is installed"
    except PackageNotFoundError:
        found = f"{distribution} is not installed"
    return UsageError(f"this needs {distribution} {lowest} or newer", known=found, next_step=f"pip install '{extra}'")
