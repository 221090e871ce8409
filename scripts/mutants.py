"""Small changes to a module, one at a time: each a program that a good test suite tells from the real one.

A mutant is a replacement of one node of the syntax tree. It is named by its file, its function and the
text before and after, so that its name survives edits elsewhere in the file.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
SWAPPED_CALLS: Final = {"max": "min", "min": "max", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """One change: the node that is replaced, what stands in its place, and its name."""

    name: str
    before: ast.AST
    after: ast.AST


def mutants(path: Path) -> tuple[ast.Module, list[Mutant]]:
    """The tree of a file, and every mutant of it in a steady order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen: Counter[str] = Counter()
    found: list[Mutant] = []
    for scope, before, after in _in_scope(tree, "module"):
        name = f"{path.name}:{scope}: {_text(before)} -> {_left_out(before, after) or _text(after)}"
        seen[name] += 1
        found.append(Mutant(f"{name} #{seen[name]}" if seen[name] > 1 else name, before, after))
    return tree, found


class Replacing(ast.NodeTransformer):
    """The tree with one node replaced."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, or what stands in its place."""
        if node is self.mutant.before:
            return ast.copy_location(self.mutant.after, node)
        return self.generic_visit(node)


def _in_scope(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    for child in _program(node):
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else scope
        for after in _changes(child):
            yield inner, child, after
        yield from _in_scope(child, inner)


def _program(node: ast.AST) -> Iterator[ast.AST]:
    """The children that do something when the program runs: no annotations, docstrings, imports or aliases."""
    silent = [*getattr(node, "decorator_list", []), getattr(node, "annotation", None), getattr(node, "returns", None)]
    if isinstance(node, ast.ClassDef):  # its bases and its fields are a shape, its methods are the program
        methods = (ast.FunctionDef, ast.AsyncFunctionDef)
        silent += [child for child in ast.iter_child_nodes(node) if not isinstance(child, methods)]
    for child in ast.iter_child_nodes(node):
        if child not in silent and not _says_nothing(child):
            yield child


def _says_nothing(node: ast.AST) -> bool:
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    typed = isinstance(node, ast.Assign | ast.AnnAssign) and ast.unparse(node.value or node).startswith("Literal[")
    return docstring or typed or isinstance(node, ast.Import | ast.ImportFrom | ast.Assert)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.expr():
            yield from _other_expressions(node)
        case ast.If():
            yield from _other_branches(node)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(value=_constant(None))
        case ast.Raise() | ast.AugAssign():
            yield ast.Pass()
        case _:
            return


def _other_expressions(node: ast.expr) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=others):
            for other in COMPARISONS[type(operator)]:
                yield ast.Compare(left=left, ops=[other()], comparators=others)
        case ast.BoolOp():
            yield from _other_conditions(node)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
            yield ast.BinOp(left=left, op=ARITHMETIC[type(operator)](), right=right)
        case ast.IfExp(body=body, orelse=orelse):
            yield body
            yield orelse
        case ast.Call():
            yield from _other_calls(node)
        case ast.Constant(value=value):
            yield from _other_constants(value)
        case _:
            return


def _other_conditions(node: ast.BoolOp) -> Iterator[ast.AST]:
    """The other connective, and the condition without each of its parts."""
    yield ast.BoolOp(op=ast.Or() if isinstance(node.op, ast.And) else ast.And(), values=node.values)
    for left_out in node.values:
        kept = [value for value in node.values if value is not left_out]
        yield kept[0] if len(kept) == 1 else ast.BoolOp(op=node.op, values=kept)


def _other_branches(node: ast.If) -> Iterator[ast.AST]:
    """The branch always, and never; where there is an else, the two exchanged."""
    if node.orelse:
        yield ast.If(test=ast.UnaryOp(op=ast.Not(), operand=node.test), body=node.body, orelse=node.orelse)
        return
    for always in (True, False):
        yield ast.If(test=_constant(always), body=node.body, orelse=[])


def _other_calls(call: ast.Call) -> Iterator[ast.AST]:
    """The other end of a range, and the call without each of its named arguments."""
    if isinstance(call.func, ast.Name) and call.func.id in SWAPPED_CALLS:
        swapped = ast.Name(id=SWAPPED_CALLS[call.func.id], ctx=ast.Load())
        yield ast.Call(func=swapped, args=call.args, keywords=call.keywords)
    for left_out in call.keywords:
        if left_out.arg is not None:
            kept = [keyword for keyword in call.keywords if keyword is not left_out]
            yield ast.Call(func=call.func, args=call.args, keywords=kept)


def _other_constants(value: object) -> Iterator[ast.AST]:
    match value:
        case bool():
            yield _constant(not value)
        case int():
            yield _constant(value + 1)
        case str():
            yield _constant(value + "~" if value else "~")
        case _:
            return


def _left_out(before: ast.AST, after: ast.AST) -> str:
    """How a call without one of its named arguments is called."""
    if not (isinstance(before, ast.Call) and isinstance(after, ast.Call)):
        return ""
    gone = {word.arg for word in before.keywords} - {word.arg for word in after.keywords}
    return f"without {gone.pop()}" if gone else ""


def _constant(value: bool | int | str | None) -> ast.Constant:
    return ast.Constant(value=value)


def _text(node: ast.AST) -> str:
    """The first line of a node as code, short enough for a list."""
    text = "(removed)" if isinstance(node, ast.Pass) else ast.unparse(ast.fix_missing_locations(node))
    line = text.splitlines()[0]
    return line if len(line) <= 150 else f"{line[:147]}..."
