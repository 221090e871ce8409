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
    """The definition of `name` in a module: a class, functions (overloads included), or an assignment.

    Where the module only hands the name on, it is the definition in the module that it comes from.
    """
    body = module(inside).tree.body
    if found := [node for node in body if _defines(node, name)]:
        return found
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module and any(name == one.name for one in node.names):
            return definitions(name, node.module)
    raise AssertionError(f"{inside} does not define {name}")


def _defines(node: ast.stmt, name: str) -> bool:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return node.name == name
        case ast.AnnAssign(target=ast.Name(id=found)):
            return found == name
        case _:
            return False


def exported(package: str = "beforehand") -> dict[str, str]:
    """Every name at the top of a package, and the module that defines it."""
    top = module(package).tree
    places = {
        alias.asname or alias.name: str(node.module)
        for node in ast.walk(top)
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


def literals(inside: str) -> list[tuple[str, str]]:
    """The names that a module gives to sets of words."""
    return [
        (node.targets[0].id, ast.unparse(node.value.slice).strip("()"))
        for node in module(inside).tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Subscript)
        and ast.unparse(node.value.value) == "Literal"
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
    way, gives = _way(function), ast.unparse(function.returns) if function.returns else ""
    shown = f"{way}{name or function.name}({', '.join(_parameters(function.args))})"
    if gives and not gives.startswith("_") and "with" not in way:
        shown += f" -> {gives}"
    return shown if len(shown) <= 110 else _folded(shown)


def _parameters(arguments: ast.arguments) -> list[str]:
    """The parameters with their types and defaults, and the signs between them."""
    before, named = arguments.posonlyargs, arguments.args
    without = len(before) + len(named) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [*([None] * without), *arguments.defaults]
    shown = [_parameter(one, default) for one, default in zip([*before, *named], defaults, strict=True)]
    if before:
        shown.insert(len(before), "/")
    if arguments.vararg is not None:
        shown.append("*" + _parameter(arguments.vararg, None))
    elif arguments.kwonlyargs:
        shown.append("*")
    shown += [
        _parameter(one, default) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        shown.append("**" + _parameter(arguments.kwarg, None))
    return shown[1:] if shown and shown[0] in {"self", "cls"} else shown


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(one.annotation)}" if one.annotation else ""
    return one.arg + kind + ("" if default is None else f" = {ast.unparse(default)}")


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
