"""Every command that is printed is made by one function, and nothing follows it on its line."""

import ast
import re
from collections.abc import Iterator

import pytest

from beforehand.cli.main import COMMANDS
from tests.tidy.tree import ROOT

WORDS = "|".join(sorted({name.split()[0] for name in COMMANDS}))
MADE_UP = re.compile(rf"\bbeforehand (?:(?:{WORDS}) (?! )|\{{)[^\n`]*(?:\{{|%s|\}})")
"""A command with something put into it by hand."""
FOLLOWED = re.compile(r"\bMADE[^\n]*\S")
"""Something behind a command on its line, which would be pasted with it."""
JOINED = re.compile(rf"\bbeforehand (?:{WORDS})\b[^\n`]* \| ")
REMARKED = re.compile(
    rf"\bbeforehand (?:{WORDS})\b(?: --[a-z-]+)*(?:[,;)]|(?= (?:and|creates|in|it|lists|names|or|shows|to|with)\b))."
)
"""A command in the middle of a sentence: what is behind it would be pasted with it."""
MODULES = [
    path
    for path in sorted(ROOT.glob("packages/*/src/**/*.py"))
    if "/testing/" not in str(path) and path.name != "init.py"
]


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every text of a module that is no docstring, with braces where values go in."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else _placed(part) for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inner:
            yield node.lineno, node.value


def _placed(part: ast.expr) -> str:
    assert isinstance(part, ast.FormattedValue)
    return "MADE" if "to_type(" in ast.unparse(part) else "{}"


def made_by_hand(source: str) -> list[tuple[int, str]]:
    tree = ast.parse(source)
    examples = {
        word.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "examples"
        for word in ast.walk(node.value)
        if isinstance(word, ast.Constant)
    }
    found = [(line, text) for line, text in texts(tree) if text not in examples]
    return [
        (line, text) for line, text in found if any(rule.search(text) for rule in (MADE_UP, JOINED, FOLLOWED, REMARKED))
    ]


def test_no_command_is_made_by_hand():
    sources = {path: path.read_text(encoding="utf-8") for path in MODULES}
    printing = {path: source for path, source in sources.items() if "beforehand " in source or "to_type" in source}
    assert len(printing) > 100
    found = {str(path.relative_to(ROOT)): made_by_hand(source) for path, source in printing.items()}
    assert {path: lines for path, lines in found.items() if lines} == {}, "use to_type(...) of beforehand.model.shell"


@pytest.mark.parametrize(
    "source",
    [
        'f"beforehand show {run}"', "f\"{to_type('show', run)}; and then?\"", "f\"{to_type('a')} {to_type('b')}\"",
        '"beforehand show {run}".format(run=run)', '"stop it: beforehand cancel %s"',
        'f"see it: beforehand answer {name} yes"', '"run beforehand verify, and see"', '"beforehand doctor lists it"',
        '"beforehand resolve r/s --happened | --did-not-happen"',
    ],
)  # fmt: skip
def test_the_rule_finds_each_way_to_make_one(source):
    assert made_by_hand(f"x = {source}")


@pytest.mark.parametrize(
    "source", ["f\"see it: {to_type('show', run)}\"", '"beforehand inbox"', '"beforehand reads {x}"']
)
def test_the_rule_lets_others_be(source):
    assert not made_by_hand(f"x = {source}")
