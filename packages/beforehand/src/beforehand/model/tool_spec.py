"""The declared properties of the arguments of a tool's calls: read once, where the tool is declared."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeGuard, cast

import msgspec

from beforehand.model.canonical.decode import restore
from beforehand.model.canonical.forms import Redacted, is_model
from beforehand.model.contract import Contract, FreeText
from beforehand.model.errors import ArgumentError
from beforehand.model.parameters import parse_arguments
from beforehand.model.secret import Secret
from beforehand.model.titles import fields_of, title_from


class Shape(msgspec.Struct, frozen=True):
    """The parameters of a function by name, with their types, and which must be given."""

    name: str
    signature: inspect.Signature
    positional: tuple[str, ...]
    types: Mapping[str, Any]
    defaults: Mapping[str, Any]
    required: frozenset[str]
    returns: Any
    schema: Mapping[str, Any] | None = None
    """The JSON schema that describes them, of a tool made from one: an optional one that is not given is left out."""

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, strict: bool = False) -> dict[str, Any]:
        """The arguments by parameter name, defaults included. Raises `TypeError` as a plain call would.

        If `strict`, raises `ArgumentError` for a value that its parameter's annotation excludes.
        """
        bound = dict(zip(self.positional, args, strict=False))
        complete = self.required <= bound.keys() | kwargs.keys() <= self.types.keys()
        if not complete or len(args) > len(self.positional) or not bound.keys().isdisjoint(kwargs):
            if self.schema is None:
                self.signature.bind(*args, **kwargs)  # raises the usual error
            missing, foreign = self.required - kwargs.keys(), kwargs.keys() - self.types.keys()
            problem = "takes its arguments by name" if args else f"got {sorted(foreign)}, lacks {sorted(missing)}"
            raise TypeError(f"{self.name}() {problem}; its parameters are {', '.join(self.types) or 'none'}")
        if kwargs or len(bound) < len(self.types):
            given = {**self.defaults, **bound, **kwargs}
            bound = {name: given[name] for name in self.types if name in given}
        for name, kind in self.types.items() if strict and self.schema is None else ():  # a schema names no classes
            value = bound[name]
            if type(value) is not kind and value is not self.defaults.get(name, kind) and not fits(value, kind):
                raise ArgumentError(
                    f"{self.name}: {name} must be {name_of(kind)}, got {type(value).__name__}; nothing was sent",
                    parameter=name,
                    next_step=f"convert it before the call, or change the annotation of {name}",
                )
        return bound


class ToolSpec(Shape, frozen=True):
    """The parameters of a tool's calls, and what its declaration says of their values.

    Values of `redact` are never stored, and those of `free_text` only word a call. `title` is the template of the
    sentence about one, which shows the parameters `titled`.
    """

    redact: frozenset[str] = frozenset()
    title: str = ""
    titled: tuple[str, ...] = ()
    free_text: frozenset[str] = frozenset()

    @property
    def judged(self) -> frozenset[str]:
        """The parameters whose values a condition may use. These are the stored ones."""
        return frozenset(self.types) - self.redact

    def title_of(self, stored: bytes) -> str:
        """The title of a call with these stored arguments; empty if the tool has none."""
        return title_from(self.title, stored) if self.title else ""

    def parsed(self, sent: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that a model sent. Raises `ArgumentError`, whose text can be sent back to it."""
        return self.bind((), parse_arguments(sent, self.types, self.required))

    def restore(self, stored: bytes) -> dict[str, Any]:
        """The arguments of a stored intent, decoded by annotation. Raises `ArgumentError` if they do not fit."""
        restored = restore(stored, self.types)
        try:
            return self.bind((), restored)
        except TypeError as error:
            raise ArgumentError(str(error), next_step=f"give {self.name} its former parameters") from error

    def edited(self, stored: bytes, changes: bytes) -> dict[str, Any]:
        """The arguments of a stored intent with these changes, checked like the arguments of a model's call."""
        return {**self.restore(stored), **parse_arguments(changes, self.types, ())}


def spec_of(shape: Shape, redact: Collection[str] = (), title: str = "") -> ToolSpec:
    """The specification of a tool with these parameters."""
    free_text = frozenset(name for name, kind in shape.types.items() if is_free_text(kind))
    return ToolSpec(
        **msgspec.structs.asdict(shape),
        redact=frozenset(redact),
        title=title,
        titled=fields_of(title),
        free_text=free_text,
    )


# --- the subject of a call -------------------------------------------------------------------------------------------


FREE_TEXT: Final = frozenset({
    "body", "caption", "comment", "content", "description", "html", "markdown", "message", "note", "prompt", "reason",
    "subject", "summary", "text", "title", "wording",
})  # fmt: skip
"""The names that are taken for free text in a tool that declares neither its subject nor its free text.

Without them, such a tool sends the same mail again in other words. `tools --lint` reports each tool that depends on
them.
"""


class Subject(msgspec.Struct, frozen=True):
    """The parameters that identify the subject of a call, `names`, and those that hold `free_text`.

    `named` are those that tell calls apart: `names`, and all that a clause or the title names. With `guessed`, nothing
    declares which of the parameters identify it.
    """

    names: tuple[str, ...]
    free_text: frozenset[str]
    named: frozenset[str]
    guessed: bool


def subject_of(contract: Contract, spec: ToolSpec, computed: frozenset[str]) -> Subject:
    """The subject of the calls of a tool: what a clause names, else what its title names, else all its parameters.

    Of the last two, free text does not count, unless there is nothing else. `computed` are the parameters from which
    a handler computes the business key.
    """
    about = contract.pending.about if contract.pending is not None else ()
    declared = about or contract.claim or (contract.once.parameters if contract.once is not None else ())
    parameters, titled, free_text = tuple(spec.types), spec.titled, spec.free_text
    by_name = frozenset[str]() if free_text else FREE_TEXT.intersection(parameters)
    open_to_names = bool(by_name.intersection(titled)) if titled else len(parameters) > 1
    guessed = open_to_names and not (declared or free_text or computed)
    free_text = free_text or by_name
    choices = (tuple(name for name in names if name not in free_text) for names in (titled, parameters))
    names = declared or next(filter(None, choices), titled or parameters)
    return Subject(names, free_text, frozenset((*names, *contract.claim, *computed, *titled)), guessed)


# --- annotations -----------------------------------------------------------------------------------------------------


def classes_of(kind: Any) -> tuple[type, ...]:
    """The classes whose instances fit an annotation, as far as `isinstance` can tell."""
    parts = typing.get_args(kind)
    match typing.get_origin(kind) or kind:
        case typing.Union | types.UnionType:
            return tuple(one for part in parts for one in classes_of(part))
        case typing.Annotated:
            return classes_of(parts[0])
        case _ if kind is float:
            return (float, int)
        case type() as found if found is not Any and not getattr(found, "_is_protocol", False):
            return (dict,) if typing.is_typeddict(found) else (found,)
        case _:
            return (object,)


def fits(value: object, kind: Any) -> bool:
    """False if `value`, or an element of it, is no instance of an annotation, as far as `isinstance` can tell."""
    if isinstance(value, (Secret, Redacted)):
        return True  # it stands for any value
    kind = getattr(kind, "__supertype__", kind)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return fits(value, parts[0])
    if origin is typing.Union or origin is types.UnionType:
        return any(fits(value, part) for part in parts)
    if origin is typing.Literal:
        return value in parts
    if hasattr(kind, "__get_pydantic_core_schema__") and not is_model(kind):
        return True  # a type such as EmailStr describes values of another class
    if not isinstance(value, classes_of(kind)):
        return False
    if isinstance(value, dict) and len(parts) == 2:
        pairs = cast("dict[object, object]", value).items()
        return all(fits(key, parts[0]) and fits(element, parts[1]) for key, element in pairs)
    if isinstance(value, (list, set, frozenset, tuple)) and (len(parts) == 1 or parts[1:] == (...,)):
        return all(fits(element, parts[0]) for element in cast("Collection[object]", value))
    return True


def is_free_text(annotation: object) -> bool:
    """True if an annotation declares free text: it is `FreeText`, or contains it."""
    return annotation is FreeText or any(map(is_free_text, typing.get_args(annotation)))


def is_class(annotation: object) -> TypeGuard[type[object]]:
    """True if an annotation is a plain class (`Any` is one to Python, but not here)."""
    return isinstance(annotation, type) and annotation is not Any


def name_of(annotation: object) -> str:
    """An annotation roughly as its author wrote it."""
    return annotation.__name__ if is_class(annotation) else "None" if annotation is None else str(annotation)
