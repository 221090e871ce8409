"""The source text of the package as a reference needs it: definitions, fields with their remarks, signatures.

Nothing is imported and run: what is shown is spelled as the code spells it.
"""

import ast
import importlib.util
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """One source file: its tree, and the remark at the end of each line that has one."""

    tree: ast.Module
    remarks: dict[int, str]
    text: str


class Field(NamedTuple):
    """One field of a class."""

    name: str
    kind: str
    default: str
    remark: str


@cache
def module(name: str) -> Module:
    """The source of an importable module, which is not imported."""
    found = importlib.util.find_spec(name)
    assert found is not None, name
    assert found.origin is not None, name
    text = Path(found.origin).read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    remarks = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip() and "noqa" not in token.string
    }
    return Module(ast.parse(text), remarks, text)


def definitions(name: str, inside: str) -> list[ast.stmt]:
    """What defines `name` in a module: a class, functions (overloads included), or an assignment."""
    found = [node for node in module(inside).tree.body if _defines(node, name)]
    assert found, f"{inside} does not define {name}"
    return found


def _defines(node: ast.stmt, name: str) -> bool:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return node.name == name
        case ast.AnnAssign(target=ast.Name(id=found)):
            return found == name
        case _:
            return False


def exported() -> dict[str, str]:
    """Every name at the top of the package, and the module that defines it."""
    top = module("holdfast").tree
    places = {
        alias.asname or alias.name: str(node.module)
        for node in top.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names = next(ast.literal_eval(node.value) for node in top.body if isinstance(node, ast.Assign))
    return {name: places[name] for name in names}


def fields(node: ast.ClassDef, inside: str) -> list[Field]:
    """The fields of a frozen value, in order."""
    remarks = module(inside).remarks
    return [
        Field(
            statement.target.id,
            ast.unparse(statement.annotation),
            "" if statement.value is None else ast.unparse(statement.value),
            remarks.get(statement.end_lineno or statement.lineno, ""),
        )
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and not statement.target.id.startswith("_")
    ]


def members(node: ast.ClassDef, hidden: set[str]) -> Iterator[list[Function]]:
    """The public methods of a class, overloads together."""
    functions = [statement for statement in node.body if isinstance(statement, Function)]
    for name in dict.fromkeys(function.name for function in functions):
        public = not name.startswith("_") or name == "__call__"
        if public and name not in hidden and "*" not in hidden:
            yield [function for function in functions if function.name == name]


def docs(node: ast.AST) -> str:
    """A docstring as Markdown."""
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef), node
    return cleandoc(ast.get_docstring(node) or "")


def signature(function: Function, name: str = "") -> str:
    """One call as it is spelled, without `self`."""
    arguments = function.args
    if arguments.posonlyargs and arguments.posonlyargs[0].arg in {"self", "cls"}:
        arguments.posonlyargs = arguments.posonlyargs[1:]
    elif arguments.args and arguments.args[0].arg in {"self", "cls"}:
        arguments.args = arguments.args[1:]
    shown = f"{name or function.name}({ast.unparse(arguments)})"
    shown = f"{_way(function)}{shown}" + (f" -> {ast.unparse(function.returns)}" if function.returns else "")
    return shown if len(shown) <= 110 else _folded(shown)


def _folded(shown: str) -> str:
    """A long signature, one parameter to a line."""
    start, _, rest = shown.partition("(")
    lines, depth, line = [f"{start}("], 0, ""
    for sign in rest:
        depth += (sign in "([{") - (sign in ")]}")
        if depth < 0:
            break
        line += sign
        if sign == "," and not depth:
            lines, line = [*lines, f"    {line.strip()}"], ""
    tail = shown.rpartition(")")[2] if ")" in shown else ""
    return "\n".join([*lines, *([f"    {line.strip()},"] if line.strip() else []), f"){tail}"])


def _way(function: Function) -> str:
    """The word that stands before a call of it."""
    managed = any("contextmanager" in ast.unparse(decorator) for decorator in function.decorator_list)
    if not isinstance(function, ast.AsyncFunctionDef):
        return "with " if managed else ""
    if managed:
        return "async with "
    gives = ast.unparse(function.returns) if function.returns else ""
    return "async for ... in " if gives.startswith("AsyncIterator") else "await "
