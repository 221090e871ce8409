"""Names that a function's source reaches, without running it: dotted calls, also through helpers of its module.

The reading is modest on purpose. It follows calls to functions of the same module and the values of module
variables that are used; what it cannot resolve it leaves out, so that every finding is visible in the source.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

Definition = ast.FunctionDef | ast.AsyncFunctionDef
_RUNTIME: Final = frozenset({"tool", "agent"})  # what these decorate goes through the runtime when it is called


class SourceUse(msgspec.Struct, frozen=True):
    """One use of a dotted name. `settings` are the keyword arguments that are written out as constants."""

    name: str
    line: int
    called: bool
    settings: dict[str, object] = {}
    given: frozenset[str] = frozenset()


class Source(msgspec.Struct, frozen=True):
    """Names reached from one function.

    `names` are the plain names and last attributes it mentions, `keywords` the keyword arguments of its calls.
    """

    file: str
    seen: list[SourceUse]
    names: frozenset[str]
    keywords: frozenset[str]


def source_of(function: Callable[..., Any]) -> Source | None:
    """The names that the source of a function reaches; None where there is no source to read."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    module = _module(code.co_filename)
    start = module.starting_at(code.co_firstlineno) if module is not None else None
    if module is None or start is None:
        return None
    seen: list[SourceUse] = []
    names: set[str] = set()
    keywords: set[str] = set()
    for node in _reached(module, start):
        names |= _mentioned(node)
        keywords.update(part.arg for part in ast.walk(node) if isinstance(part, ast.keyword) and part.arg)
        seen += module.uses(node)
    return Source(code.co_filename, seen, frozenset(names), frozenset(keywords))


def aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The dotted name behind each imported name of a file; relative imports are left out."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    first = alias.name.partition(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (first, first)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((alias.asname or alias.name, f"{module}.{alias.name}") for alias in names)
            case _:
                continue


class _Module:
    """One parsed file: its functions, its variables, and the dotted names behind its imports."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self.aliases = dict(aliases(tree))
        self.functions = {node.name: node for node in tree.body if isinstance(node, Definition)}
        self.variables = dict(_variables(tree))

    def starting_at(self, line: int) -> Definition | None:
        """The function whose first line, decorators included, is this one."""
        for node in ast.walk(self._tree):
            if isinstance(node, Definition) and line == min([node.lineno, *(d.lineno for d in node.decorator_list)]):
                return node
        return None

    def uses(self, node: ast.AST) -> Iterator[SourceUse]:
        """Every resolved name that is used in a part of the file, calls with their settings."""
        calls: set[int] = set()
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and (name := self._resolved(part.func)):
                calls.add(id(part.func))
                given = frozenset(word.arg for word in part.keywords if word.arg)
                yield SourceUse(name, part.lineno, True, dict(_settings(part)), given)
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute | ast.Name) and id(part) not in calls and (name := self._resolved(part)):
                yield SourceUse(name, part.lineno, False)

    def _resolved(self, node: ast.expr) -> str:
        """The dotted name with its first part as it was imported; empty where it was not imported."""
        first, _, rest = (
            ast.unparse(node).partition(".") if isinstance(node, ast.Attribute | ast.Name) else ("", "", "")
        )
        return f"{self.aliases[first]}.{rest}".rstrip(".") if first in self.aliases else ""


def _module(file: str) -> _Module | None:
    try:
        return _Module(ast.parse(Path(file).read_text(encoding="utf-8")))
    except (OSError, ValueError, SyntaxError):
        return None  # a notebook's cell, an interactive session: nothing to read


def _reached(module: _Module, start: Definition) -> Iterator[ast.AST]:
    """The function, the helpers that it calls, and the module variables that any of them uses."""
    pending: list[ast.AST] = list(start.body)
    done: set[str] = {start.name}
    yield from start.decorator_list
    while pending:
        node = pending.pop()
        yield node
        for name in sorted(_called(node) - done):
            helper = module.functions.get(name)
            if helper is not None and not set[str]().union(*map(_mentioned, helper.decorator_list)) & _RUNTIME:
                done.add(name)
                yield from helper.decorator_list
                pending += helper.body
        for name in sorted(_mentioned(node) - done):
            if name in module.variables:
                done.add(name)
                pending.append(module.variables[name])


def _called(node: ast.AST) -> set[str]:
    return {part.func.id for part in ast.walk(node) if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}


def _mentioned(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def _settings(call: ast.Call) -> Iterator[tuple[str, object]]:
    """Constant arguments by name; positional ones by their number."""
    for number, value in enumerate(call.args):
        if isinstance(value, ast.Constant):
            yield str(number), value.value
    for word in call.keywords:
        if word.arg and isinstance(word.value, ast.Constant):
            yield word.arg, word.value.value


def _variables(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case _:
                continue
