"""Files, functions and parameter lists stay small. Exceptions are listed here and may only shrink."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.tree import PACKAGE, ROOT, parsed, python_files, shown

LONG_FILE = 600  # beyond it the header says why, in a sentence with the word "long"
LONGEST_FUNCTION = 70
MOST_PARAMETERS = 6
DEEPEST_NESTING = 3

# "file:function" -> what it measures today. Lower a number when it drops; take the entry out when it fits.
KNOWN_LONG: dict[str, int] = {}
KNOWN_WIDE: dict[str, int] = {  # the ways in that users spell, all keyword-only
    "packages/beforehand/src/beforehand/agent/tool.py:tool": 16,
    "packages/beforehand/src/beforehand/agent/tool.py:Tool.options": 9,
    "packages/beforehand/src/beforehand/agent/agent.py:agent": 10,
    "packages/beforehand/src/beforehand/agent/run.py:Run.start": 8,
    "packages/beforehand/src/beforehand/app.py:Beforehand.__init__": 12,
    "packages/beforehand/src/beforehand/app.py:Beforehand.submit": 9,
    "packages/beforehand/src/beforehand/journal/sqlite/journal.py:SqliteJournal.__init__": 7,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Nesting = ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match

FILES = python_files("packages", "simulator", "tests", "bench", "scripts")
PROGRAM_FILES = python_files("packages", "simulator", "bench", "scripts")


def test_files_are_short():
    measured = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    too_long = [f"{shown(path)}: {lines} lines" for path, lines in measured.items() if too_many(path, lines)]
    assert not too_long, "split by what changes together, or say in the header why it is long:\n" + "\n".join(too_long)


def test_the_page_about_the_architecture_is_short():
    lines = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 250, "it is read whole: say it in fewer lines, or in a page under docs"


def too_many(path: Path, lines: int) -> bool:
    return lines > LONG_FILE and not re.search(r"\blong\b", header(path))


def test_functions_are_short():
    too_long = {
        name: lines
        for name, function in all_functions(FILES)
        if (lines := length(function)) > KNOWN_LONG.get(name, LONGEST_FUNCTION)
    }
    assert not too_long, f"{too_long}: split by stage, keep the ifs in the parent"


def test_parameter_lists_are_short():
    too_wide = {
        name: count
        for name, function in all_functions(PROGRAM_FILES)
        if (count := parameters(function)) > KNOWN_WIDE.get(name, MOST_PARAMETERS)
    }
    assert not too_wide, f"{too_wide}: gather what belongs together in a frozen dataclass"


def test_blocks_are_not_nested_deep():
    measured = {name: depth(function) for name, function in all_functions(PROGRAM_FILES)}
    too_deep = {name: deep for name, deep in measured.items() if deep > DEEPEST_NESTING}
    assert not too_deep, f"{too_deep}: return early, or give the inside a name"


@pytest.mark.parametrize(("known", "limit"), [(KNOWN_LONG, LONGEST_FUNCTION), (KNOWN_WIDE, MOST_PARAMETERS)])
def test_exceptions_only_shrink(known: dict[str, int], limit: int):
    measure = length if known is KNOWN_LONG else parameters
    measured: dict[str, int] = {}
    for name, function in all_functions(FILES):  # an overloaded function stands there more than once
        measured[name] = max(measure(function), measured.get(name, 0))
    loose = {name for name, allowed in known.items() if allowed <= limit or measured.get(name) != allowed}
    assert not loose, f"lower or remove these exceptions: {sorted(loose)}"


def header(path: Path) -> str:
    """What a file says about itself before its first statement: leading comments and the docstring."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next((node.lineno for node in parsed(path).body if not _is_docstring(node)), len(lines) + 1)
    return "\n".join(lines[: first - 1])


def all_functions(paths: list[Path]) -> Iterator[tuple[str, Function]]:
    for path in paths:
        yield from functions(path)


@cache
def functions(path: Path) -> tuple[tuple[str, Function], ...]:
    place = shown(path) if path.is_relative_to(PACKAGE.parents[2]) else path.name
    return tuple((f"{place}:{name}", function) for name, function in _functions_in(parsed(path), ()))


def _functions_in(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, Function]]:
    for child in statements(node):
        named = isinstance(child, Function | ast.ClassDef)
        inner = (*scope, child.name) if named else scope
        if isinstance(child, Function):
            yield ".".join(inner), child
        yield from _functions_in(child, inner)


def statements(node: ast.AST) -> list[ast.AST]:
    """What may hold a block: the children of a node but for expressions, which are most of a tree."""
    return [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]


def length(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def parameters(function: Function) -> int:
    """How many parameters a caller may fill; the receiver is not one."""
    spelled = function.args
    names = [argument.arg for argument in [*spelled.posonlyargs, *spelled.args, *spelled.kwonlyargs]]
    return len(names) - (names[:1] in (["self"], ["cls"])) + bool(spelled.vararg) + bool(spelled.kwarg)


def depth(node: ast.AST, above: ast.AST | None = None) -> int:
    """How many blocks stand inside each other; an elif continues its if, a function inside starts anew."""
    inside = [depth(child, node) for child in statements(node) if not isinstance(child, Function)]
    return max(inside, default=0) + (isinstance(node, Nesting) and not is_elif(node, above))


def is_elif(node: ast.AST, above: ast.AST | None) -> bool:
    return isinstance(node, ast.If) and isinstance(above, ast.If) and above.orelse == [node]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_the_measures_measure(tmp_path: Path):
    path = tmp_path / "sample.py"
    path.write_text(
        '"""Long because it is a sample."""\nimport re\n'
        "class Desk:\n    async def serve(self, a, /, b, *rest, c, **more):\n        def inner():\n            return 1\n        return inner\n"
    )
    measured = [(name, length(node), parameters(node)) for name, node in functions(path)]
    assert measured == [("sample.py:Desk.serve", 4, 5), ("sample.py:Desk.serve.inner", 2, 0)]
    assert header(path) == '"""Long because it is a sample."""'


@pytest.mark.parametrize(
    ("body", "blocks"),
    [
        ("return 1", 0),
        ("if a: b()\nelif c: d()\nelse: e()", 1),
        ("for a in b:\n with a:\n  try: c()\n  finally: d()", 3),
        ("if a:\n def inner():\n  if b: c()", 1),
    ],
)
def test_nesting_is_counted(body: str, blocks: int):
    assert depth(ast.parse(body)) == blocks
