"""Undo a commit by another commit: history that others may have is not rewritten.

The revert is made outside the working tree, in an index of its own, and the branch is then moved to it in one step.
A process that dies in between leaves an object without references, and no half-reverted files.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from beforehand.engine.current_operation import current_operation
from beforehand.errors import NotSent, Rejected
from beforehand.model.view import Operation

TRAILER: Final = "Operation"
_ANOTHER_REPOSITORY: Final = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"}


def find_commit(repository: str | Path, marker: str) -> str:
    """The newest commit of the current branch with the trailer `Operation: <marker>`; empty if there is none.

    Use it in the `verify` of a tool that commits, and of the tool that reverts. Raises `CalledProcessError`.
    """
    found = _git(repository, "log", "--format=%H %(trailers:key=Operation,valueonly,separator=%x20)",
                 "--fixed-strings", f"--grep={TRAILER}: {marker}")  # fmt: skip
    for line in found.splitlines():
        commit, *markers = line.split()
        if marker in markers:
            return commit
    return ""


def revert_commit(repository: str | Path, operation: Operation[Any]) -> str:
    """Revert what the operation committed, by a new commit on the current branch. Return the name of the new commit.

    The commit is found by its trailer `Operation: <marker>`. The new commit has the trailer of the compensation, so a
    second call returns the commit of the first. If nothing was committed, nothing is done and the name is empty. Raises
    `Rejected` if only a person can undo the change, because it conflicts with later changes or with changes in the
    working tree. Raises `NotSent` if the branch moved meanwhile.
    """
    marker = current_operation().marker
    if made := find_commit(repository, marker):
        return made
    commit = find_commit(repository, operation.marker)
    if not commit:
        if operation.status == "succeeded":
            raise Rejected(f"no commit of {operation.id} is on this branch", code="no_commit")
        return ""
    try:
        head = _git(repository, "rev-parse", "HEAD")
        message = f"Revert {commit[:12]}\n\nThis reverts commit {commit}.\n\n{TRAILER}: {marker}\n"
        reverted = _committed(repository, head, _tree_without(repository, head, commit), message)
    except subprocess.CalledProcessError as error:
        raise Rejected(f"{commit[:12]} cannot be reverted: {_stderr_text(error)}", code="conflict") from error
    return _move_on(repository, head, reverted)


def _tree_without(repository: str | Path, head: str, commit: str) -> str:
    """The tree of `head` with the change of `commit` undone, made in an index of its own."""
    with tempfile.TemporaryDirectory() as place:
        index = {"GIT_INDEX_FILE": str(Path(place, "index"))}
        change = _run(repository, "diff-tree", "-p", "--binary", "--full-index", f"{commit}^", commit)
        _run(repository, "read-tree", head, more=index)
        _run(repository, "apply", "--cached", "--3way", "--reverse", "-", more=index, given=change)
        return _run(repository, "write-tree", more=index).decode().strip()


def _committed(repository: str | Path, parent: str, tree: str, message: str) -> str:
    return _run(repository, "commit-tree", tree, "-p", parent, given=message.encode()).decode().strip()


def _move_on(repository: str | Path, head: str, commit: str) -> str:
    """Move the branch (and the working tree, if there is one) from `head` to `commit`."""
    bare = _git(repository, "rev-parse", "--is-bare-repository") == "true"
    step = ("update-ref", "HEAD", commit, head) if bare else ("merge", "--quiet", "--ff-only", commit)
    try:
        _git(repository, *step)
    except subprocess.CalledProcessError as error:
        if _git(repository, "rev-parse", "HEAD") != head:
            raise NotSent(f"the branch moved on: {_stderr_text(error)}") from error
        raise Rejected(f"the branch cannot be moved on: {_stderr_text(error)}", code="conflict") from error
    return commit


def _stderr_text(error: subprocess.CalledProcessError) -> str:
    stderr: bytes = error.stderr
    return " ".join(stderr.decode("utf-8", "replace").split())


def _git(repository: str | Path, *arguments: str) -> str:
    return _run(repository, *arguments).decode("utf-8", "replace").strip()


def _run(
    repository: str | Path, *arguments: str, more: dict[str, str] | None = None, given: bytes | None = None
) -> bytes:
    """Git's output. A hook that called us named its own repository in the environment, which is not the one we mean."""
    around = {name: value for name, value in os.environ.items() if name not in _ANOTHER_REPOSITORY}
    return subprocess.run(  # noqa: S603 - our own arguments, no shell
        ["git", *arguments],  # noqa: S607 - the machine's git
        cwd=repository,
        env=around | (more or {}),
        input=given,
        check=True,
        capture_output=True,
    ).stdout
