"""The top of the package holds these names and no others, and each of them says what it is for.

A change here is a change of the public interface: it belongs in CHANGELOG.md.
"""

import ast
import subprocess
import sys
from importlib import import_module

import pytest

import beforehand
from tests.tidy.tree import PACKAGE, parsed, python_files, shown

PUBLIC = [
    "Ambiguous", "Beforehand", "BeforehandError", "CannotTell", "Conflict", "Deferred", "DidNotHappen", "FreeText", "Happened", "Key", "Natural",
    "NotSent", "Once", "Operation", "OperationFailed", "Outcome", "OutcomePending", "Pending", "Receipt", "Rejected", "Run", "RunSuspended", "Secret",
    "TransactionAborted", "Verdict", "agent", "current_operation", "current_run", "tool", "tool_from_schema",
]  # fmt: skip
UNIONS = {"Verdict", "FreeText"}  # a union of classes and a type with a note have no docstrings of their own


def test_the_surface_changes_on_purpose():
    assert sorted(beforehand.__all__) == PUBLIC


def test_a_name_is_found_where_type_checkers_find_it():
    found = {
        alias.name: node.module
        for node in ast.walk(parsed(PACKAGE / "__init__.py"))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("beforehand.")
        for alias in node.names
    }
    assert sorted(found) == PUBLIC
    for name, module in found.items():
        assert getattr(beforehand, name) is getattr(import_module(str(module)), name)
    assert set(PUBLIC) <= set(dir(beforehand))
    with pytest.raises(AttributeError, match="has no attribute 'transaction'"):
        _ = beforehand.transaction  # type: ignore[attr-defined]  # that is what is tested


@pytest.mark.parametrize("first", ["beforehand.agent.run", "beforehand.people", "beforehand.testing"])
def test_the_decorator_is_not_mistaken_for_its_package(first: str):
    code = (
        f"import {first}; from beforehand import agent; import beforehand.agent.tool; assert beforehand.agent is agent"
    )
    subprocess.run([sys.executable, "-c", f"{code}; assert agent.__module__ == 'beforehand.agent.agent'"], check=True)


def test_public_names_are_documented():
    named = {name for name in PUBLIC if name not in UNIONS}
    silent = named - documented()
    assert not silent, f"say what they mean, their units and what they raise: {sorted(silent)}"
    assert all(callable(getattr(beforehand, name)) for name in named)


def documented() -> set[str]:
    """The names with a docstring written in the source; generated docstrings do not count."""
    defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for path in python_files("packages") for node in parsed(path).body]
    return {node.name for node in nodes if isinstance(node, defined) and ast.get_docstring(node)}


def test_sources_compile_without_warnings():
    for path in python_files("packages"):
        compile(path.read_text(encoding="utf-8"), shown(path), "exec")
