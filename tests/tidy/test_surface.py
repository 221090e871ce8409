"""The top of the package holds these names and no others, and each of them says what it is for.

A change here is a change of the public interface: it belongs in CHANGELOG.md.
"""

import ast

import pytest

import holdfast
from tests.tidy.tree import parsed, python_files, shown

PUBLIC = [
    "Ambiguous", "CannotTell", "Conflict", "Deferred", "DidNotHappen", "Happened", "Holdfast", "HoldfastError", "Key", "Natural",
    "NotSent", "Once", "Operation", "OperationFailed", "Outcome", "Receipt", "Rejected", "Run", "RunSuspended", "Secret",
    "TransactionAborted", "Verdict", "agent", "current_operation", "tool",
]  # fmt: skip
UNIONS = {"Verdict"}  # a union of classes has no docstring of its own


def test_the_surface_changes_on_purpose():
    assert sorted(holdfast.__all__) == PUBLIC


@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in UNIONS])
def test_public_names_are_documented(name: str):
    assert callable(getattr(holdfast, name))
    written = [docstring for docstring in docstrings_of(name) if docstring]
    assert written, f"holdfast.{name}: say what it means, its units and what it raises"


def docstrings_of(name: str) -> list[str | None]:
    """The docstrings written for definitions of that name in the source; generated ones do not count."""
    defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for path in python_files("src") for node in parsed(path).body]
    return [ast.get_docstring(node) for node in nodes if isinstance(node, defined) and node.name == name]


@pytest.mark.parametrize("path", python_files("src"), ids=shown)
def test_sources_compile_without_warnings(path):
    compile(path.read_text(encoding="utf-8"), shown(path), "exec")
