"""Commits are taken back by commits, in real repositories, whatever other people committed meanwhile."""

import subprocess
from pathlib import Path

import pytest

from beforehand import NotSent, Operation, Rejected
from beforehand.patterns import commits, find_commit, revert_commit
from beforehand.testing import operation


@pytest.fixture(autouse=True)
def author(monkeypatch: pytest.MonkeyPatch) -> None:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "deployer")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "deployer@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "does-not-exist")


def git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(repository: Path, message: str, **files: bytes) -> str:
    for name, content in files.items():
        (repository / name).write_bytes(content)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", message)
    return git(repository, "rev-parse", "HEAD")


def forward(status: str = "succeeded") -> Operation[str]:
    return Operation("r/release#1", "r", "release#1", "release", "k-1", status, {})  # type: ignore[arg-type]  # as a test says


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A release that was made by the operation, and a commit of another person after it."""
    place = tmp_path / "service"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    commit(place, "Release 1", version=b"1\n", blob=bytes(range(256)), dos=b"a\r\nb\r\n")
    release = f"Release 2\n\nOperation: {forward().marker}"
    commit(place, release, version=b"2\n", blob=bytes(reversed(range(256))), dos=b"a\r\nc\r\n", extra=b"new")
    commit(place, "Something else", other=b"x\n")
    return place


def test_the_change_is_taken_back_and_what_others_did_stays(repository: Path):
    with operation(key="k-2") as current:
        made = revert_commit(repository, forward())
        assert made == git(repository, "rev-parse", "HEAD") == find_commit(repository, current.marker)
        assert revert_commit(repository, forward()) == made, "called again, it is the same commit"
    assert git(repository, "log", "--format=%s").splitlines()[1:] == ["Something else", "Release 2", "Release 1"]
    assert (repository / "version").read_bytes() == b"1\n"
    assert (repository / "blob").read_bytes() == bytes(range(256))
    assert (repository / "dos").read_bytes() == b"a\r\nb\r\n"
    assert (repository / "other").read_bytes() == b"x\n"
    assert not (repository / "extra").exists()
    assert git(repository, "status", "--porcelain") == ""


def test_who_dies_before_the_branch_is_moved_leaves_nothing_half_done(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    def dies(*_: object) -> str:
        raise KeyboardInterrupt

    head = git(repository, "rev-parse", "HEAD")
    with operation(key="k-2"):
        with monkeypatch.context() as here:
            here.setattr(commits, "_move_on", dies)
            with pytest.raises(KeyboardInterrupt):
                revert_commit(repository, forward())
        assert (git(repository, "rev-parse", "HEAD"), git(repository, "status", "--porcelain")) == (head, "")
        revert_commit(repository, forward())
    assert git(repository, "log", "--format=%s").count("Revert") == 1


def test_in_a_bare_repository_too(repository: Path, tmp_path: Path):
    bare = tmp_path / "bare.git"
    git(repository, "clone", "-q", "--bare", ".", str(bare))
    with operation(key="k-2"):
        revert_commit(bare, forward())
    assert git(bare, "show", "HEAD:version") == "1"


def test_what_conflicts_is_refused_and_nothing_is_changed(repository: Path):
    head = commit(repository, "Release 3", version=b"3\n")
    with operation(key="k-2"), pytest.raises(Rejected, match="cannot be reverted") as refused:
        revert_commit(repository, forward())
    assert refused.value.code == "conflict"
    assert (git(repository, "rev-parse", "HEAD"), git(repository, "status", "--porcelain")) == (head, "")


def test_work_in_the_tree_is_not_overwritten(repository: Path):
    (repository / "version").write_bytes(b"mine\n")
    with operation(key="k-2"), pytest.raises(Rejected, match="cannot be moved on"):
        revert_commit(repository, forward())
    assert (repository / "version").read_bytes() == b"mine\n"


def test_a_branch_that_moved_meanwhile_is_tried_again(repository: Path, monkeypatch: pytest.MonkeyPatch):
    committed = commits._committed

    def and_somebody_else(*arguments: str) -> str:
        made = committed(*arguments)
        commit(repository, "In between", between=b"y\n")
        return made

    with operation(key="k-2"):
        with monkeypatch.context() as here:
            here.setattr(commits, "_committed", and_somebody_else)
            with pytest.raises(NotSent, match="moved on"):
                revert_commit(repository, forward())
        revert_commit(repository, forward())
    assert git(repository, "log", "--format=%s").splitlines()[1] == "In between"


def test_what_was_never_committed_needs_no_revert_and_what_is_missing_is_said(repository: Path):
    other = Operation[str]("r/release#2", "r", "release#2", "release", "k-9", "unknown", {})
    with operation(key="k-2"):
        assert revert_commit(repository, other) == ""
        git(repository, "checkout", "-q", "-b", "elsewhere", "HEAD~2")
        with pytest.raises(Rejected, match="no commit of r/release#1"):
            revert_commit(repository, forward())


def test_a_marker_in_the_text_is_no_trailer(repository: Path):
    commit(repository, f"Quote\n\nas in Operation: {forward().marker} above\n\nThanks.", quote=b"q")
    assert git(repository, "show", "-s", "--format=%s", find_commit(repository, forward().marker)) == "Release 2"


def test_a_hook_of_another_repository_does_not_lead_astray(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git(elsewhere, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(elsewhere / ".git"))
    assert find_commit(repository, forward().marker)
