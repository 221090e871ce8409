"""Policies from their sources: YAML files (JSON is YAML), and installed distributions. Checked, or all their faults."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias, cast, get_args

import msgspec

from beforehand.errors import UsageError
from beforehand.extensions import INSTALLED, installed_policy
from beforehand.model.alike import unknown_fields
from beforehand.model.policy import OnExpiry, Policy, Rule, Word
from beforehand.people.policy.judge import PolicyError, PolicyJudge, faults_of
from beforehand.policies import Require, written_duration

_CHOICES: Final = {"then": get_args(Word), "default": get_args(Word), "on_expiry": get_args(OnExpiry)}
_QUOTED: Final = 42
"""How many characters of a value a fault shows."""
_FIELD: Final = re.compile(r"(?P<why>.*) - at `\$\.?(?P<field>[^`]*)`", re.DOTALL)


PolicySource: TypeAlias = "str | os.PathLike[str]"
"""The path of a policy file, or `installed:NAME`."""


def judge_of(policy: PolicySource | Policy | None) -> PolicyJudge | None:
    """A policy as it is given to an app: itself, or its source. Raises `UsageError` for an invalid one."""
    if policy is None:
        return None
    return PolicyJudge(policy) if isinstance(policy, Policy) else load_policy(policy)


def load_policy(source: PolicySource) -> PolicyJudge:
    """The policy of this source. Raises `PolicyError` naming the file, the rule and the field of each fault."""
    where = os.fspath(source)
    if not where.startswith(INSTALLED):
        return PolicyJudge(read_policy(Path(where)), where)
    given = installed_policy(where.removeprefix(INSTALLED))
    found: object = given() if callable(given) else given
    if isinstance(found, str | os.PathLike):
        found = read_policy(Path(cast("PolicySource", found)))
    if not isinstance(found, Policy):
        raise PolicyError(where, (f"its entry point gives {found!r}, and not a Policy or the path of a policy file",))
    return PolicyJudge(found, where)


def read_policy(path: Path) -> Policy:
    """The policy of a file, its conditions unchecked. A policy without a name has that of its file."""
    given = read_yaml(path)
    if not isinstance(given, dict):
        raise PolicyError(str(path), (f"it holds {_kind(given)}, and a policy is a mapping with rules",))
    fields = cast("dict[str, Any]", given)
    faults: list[str] = list(unknown_fields(fields, Policy.__struct_fields__, ""))
    rules = list(_rules(fields.get("rules", []), faults))
    known = {name: fields[name] for name in Policy.__struct_fields__ if name in fields}
    whole = {"name": path.stem, **known, "rules": rules}
    if isinstance(declared := known.get("thresholds"), dict):
        named = cast("dict[str, dict[str, Any]]", declared)
        whole["thresholds"] = {name: {"name": name, **fields} for name, fields in named.items()}
    if "remembers" in whole:
        whole["remembers"] = _span(whole["remembers"], "remembers", faults)
    try:
        if not faults:
            return msgspec.convert(whole, Policy)
    except msgspec.ValidationError as error:
        faults.append(_worded(error))
    with contextlib.suppress(ValueError):  # faults of the readable rules are reported as well
        faults.extend(faults_of(Policy(path.stem, tuple(rules), busy="false", subjects={"": "''"})))
    raise PolicyError(str(path), tuple(faults))


@cache
def _loader() -> Any:
    """PyYAML's safe loader with bounds. It refuses a key that is there twice: the first of two limits would be lost."""
    import yaml  # noqa: PLC0415 - only a policy or a declaration in a file needs it

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = Counter(key.value for key, _ in node.value if isinstance(key.value, str) and key.value != "<<")
            if (twice := next((key for key, number in keys.items() if number > 1), None)) is not None:
                self.refuse(node, f"{twice[:40]!r} is there twice")
            if any(len(key) > _LONGEST_KEY for key in keys):
                self.refuse(node, f"a key has more than {_LONGEST_KEY} characters")
            return super().construct_mapping(node, deep=deep)

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            if len(node.value) > _MOST_MERGED:  # merges of merges multiply
                self.refuse(node, f"a mapping has more than {_MOST_MERGED} keys")

        def construct_yaml_int(self, node: Any) -> int:
            if len(node.value) > _LONGEST_NUMBER:
                self.refuse(node, f"a number has more than {_LONGEST_NUMBER} characters")
            return super().construct_yaml_int(node)

        def refuse(self, node: Any, why: str) -> None:
            raise yaml.constructor.ConstructorError(None, None, why, node.start_mark)

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    return Loader


_LONGEST_KEY: Final = 200
_LONGEST_NUMBER: Final = 40
_MOST_MERGED: Final = 10_000


def parse_yaml(text: str) -> Any:
    """The value of a YAML text. Raises `yaml.YAMLError`, for one that no person wrote as well."""
    import yaml  # noqa: PLC0415 - as above

    try:
        return yaml.load(text, _loader())  # noqa: S506 - it is a safe loader
    except RecursionError as error:
        raise yaml.YAMLError("it is nested too deeply") from error
    except ValueError as error:  # a date that does not exist
        raise yaml.YAMLError(str(error)) from error


def read_yaml(path: Path, kind: str = "a policy file") -> object:
    """The contents of a YAML file of this kind. Raises `UsageError`."""
    import yaml  # noqa: PLC0415 - as above

    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", next_step=f"name {kind}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PolicyError(str(path), (f"it is not YAML: {' '.join(str(error).split())[:400]}",)) from error


def _rules(given: object, faults: list[str]) -> Iterator[Rule]:
    if not isinstance(given, list):
        faults.append(f"rules: {_kind(given)}, and rules are a list")
        return
    for number, one in enumerate(cast("list[object]", given), start=1):
        if not isinstance(one, dict):
            faults.append(f"rule {number}: {_kind(one)}, and a rule is a mapping with name, when and then")
            continue
        fields = cast("dict[str, Any]", one)
        where = f"rule {repr(fields.get('name', number))[:_QUOTED]}: "
        before = len(faults)
        faults.extend(unknown_fields(fields, Rule.__struct_fields__, where))
        faults.extend(f"{where}{name}: it is missing" for name in ("name", "when", "then") if name not in fields)
        plain = {name: value for name, value in fields.items() if value is not None}
        if isinstance(plain.get("when"), bool):
            plain["when"] = "true" if plain["when"] else "false"  # YAML reads the condition as its own boolean
        if "within" in plain:
            plain["within"] = _span(plain["within"], f"{where}within", faults)
        if isinstance(required := plain.get("require"), dict):
            plain["require"] = _required(cast("dict[str, Any]", required), where, faults)
        try:
            rule = msgspec.convert(
                {name: value for name, value in plain.items() if name in Rule.__struct_fields__}, Rule
            )
            if len(faults) == before:
                yield rule
        except msgspec.ValidationError as error:
            if not str(error).startswith("Object missing"):
                faults.append(where + _worded(error))


def _required(given: dict[str, Any], where: str, faults: list[str]) -> dict[str, Any]:
    """The sign-in that approvers need, with its duration read."""
    faults.extend(unknown_fields(given, Require.__struct_fields__, f"{where}require."))
    if "fresh_sign_in" not in given:
        return given
    return {**given, "fresh_sign_in": _span(given["fresh_sign_in"], f"{where}require.fresh_sign_in", faults)}


def _span(given: object, where: str, faults: list[str]) -> timedelta:
    """A duration such as 30m, 4h or 2d."""
    found = written_duration(given) if isinstance(given, str) else None
    if found is None:
        faults.append(f"{where}: {repr(given)[:_QUOTED]} is not a duration; write 30m, 4h or 2d")
        return timedelta(seconds=1)  # it is refused; what is judged after it should not stumble over this
    return found


def _worded(error: msgspec.ValidationError) -> str:
    """The field first, then what is wrong with it."""
    found = _FIELD.fullmatch(str(error))
    if found is None or not found["field"]:
        return str(error).removesuffix(" - at `$`")
    words = _CHOICES.get(found["field"])
    known = f"; choose from: {', '.join(words)}" if words and "enum" in found["why"] else ""
    return f"{found['field']}: {found['why']}{known}"


def _kind(value: object) -> str:
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return repr(value)[:_QUOTED]
