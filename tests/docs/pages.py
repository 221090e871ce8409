"""What the pages of the documentation ask to be run: fenced blocks, and the remarks that stand before them.

```python           runs, in page order, all in one module
```console          lines `$ beforehand ...` and the others of OURS run, unless they end with &; the rest is for the reader

<!-- not run: reason -->    before a block: it is only shown
<!-- exit: 3 -->            before a console block: its last command ends with this status instead of 0
<!-- file: desk.py -->      before any block: its text is written to that file instead of being run
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)[^\n`]*$")
REMARK = re.compile(r"^ *<!-- (?P<kind>not run|exit|file): (?P<value>.+?) -->$")
RUN = {"python", "console"}
OURS = tuple(
    f"$ {ours}"
    for ours in (
        "beforehand ",
        "pytest ",
        "python desk.py",
        "python graph.py",
        "python hello.py",
        "KILL_AFTER=",
        "cat paid.txt",
        "rm paid.txt",
    )
)
HIDDEN = re.compile(r"^ *<!--(?! (?:not run|exit|file): ).*?-->", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the line its text starts on (from 1), its text, its remarks."""

    language: str
    line: int
    text: str
    remarks: dict[str, str]

    @property
    def runs(self) -> bool:
        return "file" in self.remarks or (self.language in RUN and "not run" not in self.remarks)

    @property
    def commands(self) -> list[tuple[str, int]]:
        """The lines of a console block that are run, continued lines joined, and how each of them must end."""
        typed = self.text.replace("\\\n", " ").splitlines()
        ours = [line.removeprefix("$ ") for line in typed if line.startswith(OURS) and not line.endswith("&")]
        stated = int(self.remarks.get("exit", "0"))
        return [*((command, 0) for command in ours[:-1]), *((command, stated) for command in ours[-1:])]


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def visible(markdown: str) -> str:
    """The page without what stands in HTML comments, which no reader sees; lines keep their numbers."""
    return HIDDEN.sub(lambda comment: "\n" * comment[0].count("\n"), markdown)


def blocks(markdown: str) -> Iterator[Block]:
    """The fenced blocks of a page in order; a fence that is never closed is an error of the page."""
    lines = iter(enumerate(markdown.splitlines(), start=1))
    remarks: dict[str, str] = {}
    for number, line in lines:
        if remark := REMARK.match(line):
            remarks[remark["kind"]] = remark["value"]
        elif fence := FENCE.match(line):
            text = _until_closed(lines, fence, number)
            yield Block(fence["language"], number + 1, text, remarks)
            remarks = {}
        elif line.strip():
            assert not remarks, f"line {number}: {remarks} does not stand right before a block"


def _until_closed(lines: Iterator[tuple[int, str]], fence: re.Match[str], opened: int) -> str:
    inside: list[str] = []
    for _, line in lines:
        if line.strip() == fence["ticks"]:
            return "\n".join([*inside, ""])
        inside.append(line.removeprefix(fence["indent"]))
    raise ValueError(f"the block opened on line {opened} is never closed")
