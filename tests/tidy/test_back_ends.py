"""Only the journal's own room knows back ends: everything else opens a journal by its address."""

import ast

from tests.tidy.tree import module_name, parsed, python_files, shown

ROOM = "beforehand.journal"
# The simulated machine performs runs over the product's own journal on real files.
ON_FILES = {"beforehand.testing.world.files", "beforehand.testing.world.processes"}  # fmt: skip
# A table of exceptions that tools may raise: the library of a user, not of the journal.
TABLES = {"beforehand.engine.exceptions.table"}
WORDS = ("sqlite", "apsw")


def names_in(node: ast.AST) -> list[str]:
    """The names and addresses in one node; prose is not one of them."""
    match node:
        case ast.alias(name=name):
            return [name]
        case ast.ImportFrom(module=str(module)):
            return [module]
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.arg(arg=name) | ast.keyword(arg=str(name)):
            return [name]
        case ast.Constant(value=str(text)) if not set(text) & set(" \n"):
            return [text]
        case _:
            return []


def test_nothing_outside_the_room_knows_a_back_end():
    knowing = [
        f"{shown(path)}:{getattr(node, 'lineno', 0)}: {name}"
        for path in python_files("packages")
        if path.parts[-2:] != ("tests", path.name)
        and not f"{module_name(path)}.".startswith(f"{ROOM}.")
        and module_name(path) not in ON_FILES | TABLES
        and any(word in path.read_text(encoding="utf-8").lower() for word in WORDS)
        for node in ast.walk(parsed(path))
        for name in names_in(node)
        if any(word in name.lower() for word in WORDS)
    ]
    assert not knowing, "open the journal by its address, or add what you need to its port:\n" + "\n".join(knowing)


def test_the_exceptions_still_know_one():
    known = {module_name(path) for path in python_files("packages")}
    assert known >= ON_FILES | TABLES, "take away what moved or went"
