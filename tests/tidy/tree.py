"""The project as the tidy tests see it: its files, its modules, and what each of them imports."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "packages" / "beforehand" / "src" / "beforehand"
CONSOLE = ROOT / "packages" / "beforehand-console" / "src" / "beforehand_console"

# Made by tools, by the environments or by version control: not ours to judge.
NOT_OURS = {".cache", ".git", ".hypothesis", "__pycache__", "build", "dist", "site", "node_modules"}
NOT_OURS_ENDINGS = ("_cache", ".egg-info")


def text_files() -> list[Path]:
    """Every file of the project that is text, wherever it stands."""
    return [path for path in _walk(ROOT) if _is_text(path)]


def python_files(*roots: str) -> list[Path]:
    """The Python files under directories of the project, in a steady order."""
    return [path for root in roots for path in _walk(ROOT / root) if path.suffix == ".py"]


def shown(path: Path) -> str:
    """The path as a message should spell it."""
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def module_name(path: Path) -> str:
    """`beforehand.journal.port` for its file; a package is named like its directory."""
    package = CONSOLE if path.is_relative_to(CONSOLE) else PACKAGE
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Each name that the module imports, with its line: at the top, in functions, for typing only, by name.

    `from a import b` counts as `a.b`: whether `b` is a module or a name in one, it lives under `a`.
    """
    package = _package_of(path)
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(names=names):
                yield from ((node.lineno, f"{_source(node, package)}.{alias.name}") for alias in names)
            case ast.Call(func=called, args=[ast.Constant(value=str(name)), *_]) if _imports_by_name(called):
                yield node.lineno, name
            case _:
                continue


def _package_of(path: Path) -> list[str]:
    name = module_name(path).split(".")
    return name if path.name == "__init__.py" else name[:-1]


def _source(node: ast.ImportFrom, package: list[str]) -> str:
    """The module behind `from`, relative ones resolved against the package they stand in."""
    above = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def _imports_by_name(called: ast.expr) -> bool:
    return ast.unparse(called) in {"import_module", "importlib.import_module", "__import__"}


def _walk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name in NOT_OURS or path.name.startswith(".venv") or path.name.endswith(NOT_OURS_ENDINGS):
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def _is_text(path: Path) -> bool:
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    return "\0" not in path.read_text(encoding="utf-8")
