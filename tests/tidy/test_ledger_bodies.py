"""Every ledger entry is written and read through `journal/entry_codec.py`, so that its reader has seen it before."""

import ast
from collections.abc import Iterator
from pathlib import Path

import beforehand

SOURCE = Path(beforehand.__file__).parent
HOME = SOURCE / "journal"


def found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Places that encode the body of a post, or decode the body of an entry, by themselves."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name == "Post" and "json.encode(" in ast.unparse(node):
            yield node.lineno, "encode it with journal.bodies.written"
        if name.endswith(".decode") and any(ast.unparse(one).endswith(".body") for one in node.args):
            yield node.lineno, "decode it with journal.bodies.read or readable"


def test_no_entry_is_written_or_read_by_another_way():
    bad = [
        f"{path.relative_to(SOURCE)}:{line}: {why}"
        for path in sorted(SOURCE.rglob("*.py"))
        if HOME not in path.parents and "testing" not in path.parts and "demo" not in path.parts
        for line, why in found(ast.parse(path.read_text()))
    ]
    assert not bad, "\n".join(bad)
