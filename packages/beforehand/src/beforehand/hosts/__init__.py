"""Adapters: a module for each agent framework, for HTTP clients and for web servers. Import the one that you use.

The extra of a host (`pydantic-ai`, for example) installs a version that its module works with.
"""

import contextlib
import functools
import re
from collections.abc import Generator, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from beforehand.errors import Ambiguous, UsageError
from beforehand.installation import extra_command
from beforehand.model.alike import nearest
from beforehand.model.parameters import check_offered


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
            next_step=extra_command(extra),
        )
    yield


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", release)[:3])


def check_named(argument: str, named: Iterable[str], tools: Iterable[str]) -> None:
    """Raise `UsageError` for names that no tool has, with the nearest ones: what they ask for would not apply."""
    known = sorted({*tools})
    unknown = sorted({*named} - {*known})
    if not unknown:
        return
    near = [found for one in unknown if (found := nearest(one, known))]
    raise UsageError(
        f"{argument} names tools that are not there: {', '.join(unknown)}",
        known=f"nothing was sent; the tools are {', '.join(known[:20]) or 'none'}",
        next_step=f"write {', '.join(near)}" if near else "give the names of tools, as tool.name has them",
    )


def checked_clauses(clauses: Mapping[str, Mapping[str, Any]] | None) -> Mapping[str, Mapping[str, Any]]:
    """The clauses of functions of a host. Raises `ContractError` for `redact`: its model calls them."""
    for name, given in (clauses or {}).items():
        check_offered(name, given.get("redact", ()))
    return clauses or {}


def server_error(tool: str, said: object) -> Ambiguous:
    """The exception for an error that an MCP server reports: it does not prove that nothing happened."""
    return Ambiguous(f"{tool} of an MCP server reports an error: {str(said)[:500]}")


def mixed_copy(mixin: Any, part: Any, **state: Any) -> Any:
    """A copy of a model or tool of a host with the methods of `mixin`; its class keeps the name that hosts ask for."""
    made, kind = part.model_copy(), cast("Any", type(part))
    object.__setattr__(made, "__class__", mixed(mixin, kind))
    made.__dict__.update(state)
    return made


@functools.cache
def mixed(mixin: Any, kind: Any) -> Any:
    """The class of a host's object with the methods of `mixin`."""
    return type(kind.__name__, (mixin, kind), {"__module__": kind.__module__})
