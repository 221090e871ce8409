"""Kill agents of every framework, count what happened twice, and write the table in the documentation.

    python -m scripts.hosts [TRIALS] [HOST...]

The environments of the frameworks are those of `scripts/environment.py`. The cells are in `tests/hosts/cells.py`; each
is a test of `make deep ONLY=hosts`, too. The exit status is 1 if an effect happened twice, was lost, or a run did not
end with Beforehand.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "explanation" / "hosts.md"
BEGIN, END = "<!-- the table of scripts.hosts -->\n", "<!-- end of the table -->\n"


class Host(NamedTuple):
    """A framework: the module of its desk in `tests/hosts`, its environments, and its distribution."""

    module: str
    environment: str
    distribution: str
    title: str
    lowest: str = ""  # the environment of its lowest supported version, where that is another one


HOSTS: Final = (
    Host("loop", "dev", "", "the ready loop"),
    Host("pydantic_ai", "hosts", "pydantic-ai-slim", "Pydantic AI"),
    Host("langchain", "hosts", "langchain", "LangChain", "hosts-lowest"),
    Host("openai_agents", "hosts", "openai-agents", "OpenAI Agents", "hosts-lowest"),
    Host("google_adk", "hosts", "google-adk", "Google ADK", "hosts-lowest"),
    Host("crewai", "host-crewai", "crewai", "CrewAI", "hosts-lowest"),
)


def main() -> None:
    """Run every cell, print each as it ends, and write the table where all hosts were run in full."""
    words = sys.argv[1:]
    trials = int(words[0]) if words else 20
    chosen = [host for host in HOSTS if not words[1:] or host.module in words[1:]]
    titles = [titled(host) for host in chosen]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # a trial mostly waits for its processes
        running = [pool.submit(cells_of, host, trials) for host in chosen]
        columns = {title: cells.result() for title, cells in zip(titles, running, strict=True)}
    if len(chosen) == len(HOSTS):
        write(columns, trials)
    wrong = [
        f"{title}, {name}: {cell['wrong']}"
        for title, cells in columns.items()
        for name, cell in cells.items()
        if cell["wrong"]
    ]
    print("\n".join(wrong) or f"every effect once, {trials} trials a cell")
    sys.exit(bool(wrong))


def titled(host: Host) -> str:
    """The framework with its newest version, and its lowest one where that is another."""
    if not host.distribution:
        return host.title
    asked = f"from importlib.metadata import version; print(version({host.distribution!r}))"
    lowest = f"{_said(host.lowest, asked)} to " if host.lowest else ""
    return f"{host.title} {lowest}{_said(host.environment, asked)}"


def python_of(environment: str) -> str:
    """The interpreter of the environment, which is made if it is missing."""
    return _said(environment, "import sys; print(sys.executable)")


def _said(environment: str, program: str) -> str:
    command = [sys.executable, str(ROOT / "scripts" / "environment.py"), environment, "python", "-c", program]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout.strip()


def cells_of(host: Host, trials: int) -> dict[str, dict[str, object]]:
    """Every cell of one host by name, printed as it ends."""
    found: dict[str, dict[str, object]] = {}
    command = [sys.executable, "-m", "tests.hosts.cells", str(trials), host.module, python_of(host.environment)]
    command += [python_of(host.lowest)] if host.lowest else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running:
        assert running.stdout is not None
        for line in running.stdout:
            cell: dict[str, object] = json.loads(line)
            found[str(cell["cell"])] = cell
            ended, without = cell["wrong"] or "once", cell["without"] or "once"
            print(f"{host.title}: {cell['cell']}: {ended} (without Beforehand: {without})", flush=True)
    if running.returncode:
        sys.exit(f"{host.title}: the cells ended with {running.returncode}")
    return found


def write(columns: dict[str, dict[str, dict[str, object]]], trials: int) -> None:
    """Put the table into the page."""
    names = list(dict.fromkeys(name for cells in columns.values() for name in cells))
    head = "| killed, and resumed | " + " | ".join(f"{title} | with Beforehand" for title in columns) + " |"
    rows = [head, "|---|" + "---|---|" * len(columns)]
    for name in names:
        parts = [_parts(cells.get(name), trials) for cells in columns.values()]
        rows.append(f"| {name} | " + " | ".join(parts) + " |")
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + "\n".join(rows) + "\n" + END + after, encoding="utf-8")


def _shown(wrong: object) -> str:
    return str(wrong).split(";")[0].splitlines()[0][:40] if wrong else "once"


def _parts(cell: dict[str, object] | None, trials: int) -> str:
    return "- | -" if cell is None else f"{_shown(cell['without'])} | {_with(cell, trials)}"


def _with(cell: dict[str, object], trials: int) -> str:
    wrong = cell["wrong"]
    return f"**wrong: {wrong}**" if wrong else f"once, {trials} of {trials}"


if __name__ == "__main__":
    main()
