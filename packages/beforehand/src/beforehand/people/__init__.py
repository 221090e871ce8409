"""Reviewers: the operations that they see before these are sent, and their answers."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from beforehand.model.policy import Policy, Rule
    from beforehand.people.policy.judge import PolicyError
    from beforehand.policies import Gate

__all__ = ["Gate", "Policy", "PolicyError", "Rule"]

# The module of each name. A name is imported on first use: listing the inbox imports modules of this package, and needs
# no policies.
_HOMES: Final = {
    name: home
    for home, names in {
        "beforehand.people.policy.judge": ("PolicyError",),
        "beforehand.model.policy": ("Policy", "Rule"),
        "beforehand.policies": ("Gate",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> object:
    """Import one of the public names on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names, and what every module has."""
    return sorted({*globals(), *__all__})
