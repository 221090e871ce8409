"""One word for one thing, and no promise that cannot be kept.

The glossary in the documentation says what each word means; these are the words that would blur it.
"""

import ast
import re
from collections import Counter
from pathlib import Path

from tests.tidy.tree import CONSOLE, PACKAGE, parsed, python_files, shown, text_files

# The last word of a class name -> the word we use. Only in the floors that define the domain: a server has
# requests and responses, and asyncio has tasks.
NOT_OUR_NOUNS = {
    "Action": "Operation",
    "Execution": "Attempt",
    "Job": "Run",
    "Node": "Step",
    "Rollback": "Compensation",
    "Saga": "Transaction",
    "Session": "Run",
    "Task": "Operation",
    "Workflow": "Run",
}
DOMAIN = ("model", "journal", "engine", "agent")

# Phrase -> what to write instead. Between quotation marks a phrase is mentioned, not claimed.
NOT_OUR_PHRASES = {
    r"exactly[ -]once": "say what is recorded once, what happens once, and where at most once",
    r"dedup\w* (?:id|token)\b": "idempotency key",
    r"HITL": "gate, approval",
    r"human[ -]in[ -]the[ -]loop": "gate, approval, or a person decides",
    r"(?:whoever|somebody|(?<!If )nobody)\b": "name who it is; only a notice says what happens `If nobody answers`",
}
QUOTES = "\"'`“*"


def domain_files() -> list[Path]:
    return [path for path in python_files("packages/beforehand") if path.relative_to(PACKAGE).parts[0] in DOMAIN]


def prose_files() -> list[Path]:
    """Where we speak to users: pages, and the source, whose strings are messages, help and docstrings."""
    return [
        path
        for path in text_files()
        if path.suffix == ".md" or path.is_relative_to(PACKAGE) or path.is_relative_to(CONSOLE)
    ]


def test_classes_are_named_in_our_words():
    strange = {
        f"{shown(path)}:{node.lineno} {node.name}": NOT_OUR_NOUNS[last_word(node.name)]
        for path in domain_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and last_word(node.name) in NOT_OUR_NOUNS
    }
    assert not strange, f"the glossary has another word: {strange}"


def test_each_public_class_has_a_name_of_its_own():
    names = Counter(
        node.name
        for path in python_files("packages")
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_docstrings_name_what_they_document():
    roundabout = [
        f"{shown(path)}: {text.splitlines()[0]}"
        for path in python_files("packages")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node) or "").startswith(("What ", "Whether "))
    ]
    assert not roundabout, "begin with the noun or the verb, not with What or Whether:\n" + "\n".join(roundabout)


def test_pages_and_messages_use_our_words():
    read = {shown(path): misspoken(path.read_text(encoding="utf-8")) for path in prose_files()}
    found = {name: phrases for name, phrases in read.items() if phrases}
    assert not found


def last_word(class_name: str) -> str:
    """`Session` for `_SqliteSession`; nothing for a name without capitals."""
    return ["", *re.findall(r"[A-Z][a-z0-9]*", class_name)][-1]


def misspoken(text: str) -> list[str]:
    return [
        f"{match.group()!r}: {instead}"
        for phrase, instead in NOT_OUR_PHRASES.items()
        for match in re.finditer(rf"(?<![{QUOTES}\w]){phrase}", text, flags=re.IGNORECASE)
    ]


def test_a_claim_is_found_and_a_mention_is_not():
    assert misspoken("Each effect happens exactly once.")
    assert misspoken("Exactly-once delivery")
    assert misspoken("Somebody answers.")
    assert misspoken("As nobody answers")
    assert not misspoken("If nobody answers")
    assert not misspoken('We never promise "exactly once".')
    assert (last_word("_SqliteSession"), last_word("RunState"), last_word("lower")) == (
        "Session",
        "State",
        "",
    )
