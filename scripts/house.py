"""Print how large the code base is, and fail where a measure exceeds its bound: `python -m scripts.house`.

All lines of the Python files of a distribution count, blank lines and comments included, since an installation brings
all of them. A bound rises only where an issue says so, and a change that deletes code lowers it. Never cut a file or
shorten good code to meet a bound: remove a feature, a concept or a copy.
"""

from __future__ import annotations

import ast
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "packages" / "beforehand" / "src" / "beforehand"
PORT: Final = PACKAGE / "journal" / "port.py"

BOUNDS: Final = {
    "lines of packages/beforehand": 78_416,
    "lines of packages/beforehand-console": 9_058,
    "methods of the journal port": 25,
    "functions that a keyed write calls": 184,
    "files that a keyed write passes through": 44,
}
BESIDE: Final = ("tests", "simulator", "examples", "bench", "scripts")
"""The directories that are never installed: their lines are printed and have no bound."""


WARM: Final = 3
WRITES: Final = 25
"""The keyed writes of the measured run: the first ones warm its caches and do not count, the others do."""


class Measure(NamedTuple):
    """One row of the table; `files` for a measure of lines."""

    name: str
    value: int
    files: int | None = None

    @property
    def bound(self) -> int | None:
        return BOUNDS.get(self.name)

    @property
    def remark(self) -> str:
        """Say how far the measure is above its bound, or that the bound can be lowered."""
        if self.bound is None or self.value == self.bound:
            return ""
        above = self.value - self.bound
        return f": {above:,} above its bound" if above > 0 else f": its bound can be lowered to {self.value:,}"


def bounded() -> Iterator[Measure]:
    """Measure what has a bound: each distribution, the journal port, and the way of one keyed write."""
    for distribution in sorted(ROOT.glob("packages/*/pyproject.toml")):
        folder = distribution.parent
        yield lines(folder.relative_to(ROOT).as_posix(), (folder / "src").rglob("*.py"))
    yield Measure("methods of the journal port", len(port_methods(PORT.read_text(encoding="utf-8"))))
    yield Measure("functions that a keyed write calls", len(keyed_write()))
    yield Measure("files that a keyed write passes through", len({file for file, _ in keyed_write()}))


def lines(name: str, files: Iterable[Path]) -> Measure:
    """Count all lines of the files, blank lines and comments included."""
    counts = [len(path.read_text(encoding="utf-8").splitlines()) for path in files]
    return Measure(f"lines of {name}", sum(counts), len(counts))


def port_methods(source: str) -> list[str]:
    """The methods that a journal must have: those of the protocols in the source text of the port."""
    return [
        method.name
        for protocol in ast.parse(source).body
        if isinstance(protocol, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in protocol.bases)
        for method in protocol.body
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


@cache
def keyed_write() -> frozenset[tuple[str, str]]:
    """The functions of the package, as (file, function), that a keyed write calls once its run is warm.

    A function counts if most of the writes call it. Others belong to what came in between: a timer that came due, a
    lease that was renewed, a commit that the journal's thread made because it was at work already.
    """
    from beforehand import Beforehand, Key, Run, agent, current_operation, tool  # noqa: PLC0415 - only this measure runs it
    from beforehand.journal.sqlite.journal import SqliteJournal  # noqa: PLC0415 - as above
    from beforehand.journal.sqlite.opening import Parts  # noqa: PLC0415 - as above

    seen: set[tuple[str, str]] = set()
    calls = Counter[tuple[str, str]]()

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            seen.add((code.co_filename, code.co_qualname))

    @tool(idempotency=Key.forever())
    async def pay(cents: int) -> str:
        return f"{current_operation().key} {cents}"

    @agent(tools=[pay])
    async def desk(_run: Run, count: int) -> int:
        for number in range(count):
            seen.clear()
            sys.setprofile(watch)
            await pay(number)
            sys.setprofile(None)
            if number >= WARM:
                calls.update(seen)
        return count

    async def main() -> None:
        with tempfile.TemporaryDirectory() as directory:
            # On the loop, where the profile sees it: a busy disk would leave some of it to the journal's thread.
            journal = SqliteJournal(Path(directory) / "journal.db", parts=Parts(commits="loop"))
            async with Beforehand(journal, agents=[desk], recover=False) as app:
                await app.run(desk, WARM + WRITES, run_id="measured")

    asyncio.run(main())
    return frozenset(function for function, count in calls.items() if count > WRITES / 2)


def main() -> None:
    """Print the table; the exit status is 1 where a bound is exceeded or missing."""
    held = list(bounded())
    print("measured  at most  files")
    for measure in [*held, *(lines(name, (ROOT / name).rglob("*.py")) for name in BESIDE)]:
        bound, files = ("" if number is None else f"{number:,}" for number in (measure.bound, measure.files))
        print(f"{measure.value:>8,}  {bound:>7}  {files:>5}  {measure.name}{measure.remark}")
    sys.exit(any(measure.bound is None or measure.value > measure.bound for measure in held))


if __name__ == "__main__":
    main()
