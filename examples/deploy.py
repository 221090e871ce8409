"""A deployment in a real git repository: where the service is not healthy afterwards, a revert commit takes it back.

    python -m examples deploy

Nothing here dedupes on a key. The commit carries the operation's marker as a trailer, so that it is found again when
it is not known whether it was made; the revert carries its own.
"""

from __future__ import annotations

import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path

from beforehand import (
    Beforehand,
    DidNotHappen,
    Happened,
    Operation,
    Run,
    TransactionAborted,
    Verdict,
    agent,
    current_operation,
    tool,
)

AUTHOR = ("-c", "user.name=deployer", "-c", "user.email=deployer@example.com")


def git(repository: str, *arguments: str) -> str:
    """Run git in that repository. Raises `CalledProcessError`."""
    done = subprocess.run(  # noqa: S603 - our own arguments
        ["git", *AUTHOR, *arguments],  # noqa: S607 - the machine's git
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def new_repository(place: Path) -> str:
    """A repository with one release in it."""
    place.mkdir(parents=True, exist_ok=True)
    git(str(place), "init", "-q", "-b", "main")
    (place / "VERSION").write_text("1\n")
    git(str(place), "add", "VERSION")
    git(str(place), "commit", "-q", "-m", "Release 1")
    return str(place)


def _found(repository: str, marker: str) -> Verdict[str]:
    """The commit with that trailer, if there is one."""
    commit = git(repository, "log", "--format=%H", "--fixed-strings", f"--grep=Operation: {marker}")
    return Happened(commit.splitlines()[0]) if commit else DidNotHappen()


@tool(timeout=timedelta(seconds=20))
def release(repository: str, version: str) -> str:
    """Commit a new version; the commit's name."""
    marker = current_operation().marker
    Path(repository, "VERSION").write_text(f"{version}\n")
    git(repository, "commit", "-q", "-a", "-m", f"Release {version}\n\nOperation: {marker}")
    return git(repository, "rev-parse", "HEAD")


@release.verify(settle_window=timedelta(0))
def released(operation: Operation[str], repository: str) -> Verdict[str]:
    """Look for the trailer."""
    return _found(repository, operation.marker)


@release.compensate(restores=True)
@tool(timeout=timedelta(seconds=20))
def revert(operation: Operation[str], repository: str) -> str:
    """Take the release back with a new commit: history is not rewritten."""
    marker = current_operation().marker
    git(repository, "revert", "--no-commit", operation.result)
    git(repository, "commit", "-q", "-m", f"Revert {operation.result[:8]}\n\nOperation: {marker}")
    return git(repository, "rev-parse", "HEAD")


@revert.verify(settle_window=timedelta(0))
def reverted(operation: Operation[str], repository: str) -> Verdict[str]:
    """Look for the trailer."""
    return _found(repository, operation.marker)


@tool(effect="read")
def healthy(repository: str) -> bool:
    """A service that cannot run an odd version above one."""
    version = int(Path(repository, "VERSION").read_text())
    return version == 1 or version % 2 == 0


@agent(run_id="deploy-{given[version]}", tools=[release, revert, healthy])
async def deploy(run: Run, given: dict[str, str]) -> str:
    """Release, look, and take it back where it does not run."""
    try:
        async with run.transaction("deploy") as boundary:
            commit = await release(given["repository"], given["version"])
            if not await healthy(given["repository"]):
                boundary.abort(f"version {given['version']} does not run")
    except TransactionAborted as gone:
        return f"taken back: {gone.reason}"
    return f"released as {commit[:8]}"


def tell() -> list[str]:
    """Deploy a version that runs and one that does not; what came of it, and the history."""
    with tempfile.TemporaryDirectory() as place:
        repository = new_repository(Path(place, "service"))
        with Beforehand(Path(place, "deploy.db"), agents=[deploy]) as app:
            said = [app.run(deploy, {"repository": repository, "version": version}) for version in ("2", "3")]
        return [*said, git(repository, "log", "--format=%s").replace("\n", ", ")]
