"""Every exemption from a checker names what it exempts from, and says why."""

import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.tidy.tree import python_files, shown

EXEMPTION = re.compile(r"#\s*(?:type:\s*ignore|pyright:\s*ignore|noqa|ruff:\s*noqa|pragma:\s*no\s*(?:cover|branch))")
CODES = r"(?:\[[\w, -]+\]|:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)"
COMPLETE = re.compile(rf"{EXEMPTION.pattern}(?P<codes>{CODES})?")
NEEDS_NO_CODE = "pragma"


def test_exemptions_say_what_and_why():
    bare = [
        f"{shown(path)}:{line}: {comment}"
        for path in python_files("packages", "simulator", "tests", "bench", "scripts")
        if EXEMPTION.search(source := path.read_text(encoding="utf-8"))
        for line, comment in comments(source)
        if EXEMPTION.search(comment) and not explained(comment)
    ]
    assert not bare, "write `# noqa: CODE - reason` or `# type: ignore[code]  # reason`:\n" + "\n".join(bare)


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def explained(comment: str) -> bool:
    """Each directive names its codes, and when the directives are taken away a word is left."""
    coded = all(match["codes"] or NEEDS_NO_CODE in match.group() for match in COMPLETE.finditer(comment))
    return coded and bool(re.search(r"[A-Za-z]{4,}", COMPLETE.sub("", comment)))


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# noqa: S101",
        "# type: ignore",
        "# type: ignore[arg-type]",
        "# noqa - because I say so",
        "# pragma: no cover",
    ],
)
def test_a_bare_exemption_is_found(comment: str):
    assert EXEMPTION.search(comment)
    assert not explained(comment)


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: S101 - our own invariant",
        "# type: ignore[arg-type]  # the stub is wrong",
        "# noqa: S1, B2 - two codes here",
    ],
)
def test_an_explained_exemption_passes(comment: str):
    assert explained(comment)
