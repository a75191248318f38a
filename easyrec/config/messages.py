"""Turns what pydantic says of a configuration into problems that a person can act on."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from easyrec.config.base import OneOf
from easyrec.config.locations import SOURCE, Locations
from easyrec.config.paths import Path, format_path
from easyrec.errors import Problem, nearest

UNKNOWN_OPTION = "unknown option"
"""Begins the message about an option that there is not."""
_EXPECTED: Mapping[str, str] = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of at most 18 digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping of options",
    "model_attributes_type": "a mapping of options",
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "string_pattern_mismatch": "text that matches {pattern}",
}
"""What was expected, by pydantic's name for the error."""


def to_problems(
    error: ValidationError, model: type[BaseModel], written: Any, locations: Locations
) -> list[Problem]:
    """The problems of a failed validation, in the order of the file.

    Args:
        error: What pydantic raised.
        model: The class that was validated.
        written: What was validated; it tells keys from pydantic's names for branches of unions.
        locations: Where the values stand.
    """
    by_path: dict[Path, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        by_path.setdefault(_written_path(details, written), []).append(details)
    problems = []
    for path, found in by_path.items():
        known = _options_at(model, path[:-1], written) if found[0]["type"] == "extra_forbidden" else ()
        message = _joined([describe(details, known) for details in found])
        if found[0]["type"] == "extra_forbidden":
            message += _replaced_type(path, written, locations)
        problems.append(locations.problem(path, message))
    return problems


def _replaced_type(path: Path, written: Any, locations: Locations) -> str:
    """What to do about an option that an earlier `type` had, where --set has put another in its place."""
    sibling = (*path[:-1], "type")
    place, own = locations.at(sibling), locations.at(path)
    if place is None or place.file != SOURCE or (own is not None and own.file == SOURCE):
        return ""
    node = written
    for step in sibling:
        node = node[step] if _holds(node, step) else None
    return f" To leave the options of another type behind, write --set {format_path(path[:-1])}={node}."


def describe(details: ErrorDetails, known: Iterable[str] = ()) -> str:
    """One error in words: what was expected, what was received, and the nearest right name.

    Args:
        details: As in `ValidationError.errors()`.
        known: The options that exist beside an unknown one.
    """
    kind, received, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return "is required, but not given"
    if kind == "extra_forbidden":
        return f"{UNKNOWN_OPTION}.{nearest(str(details['loc'][-1]), known)}"
    if kind == "string_type":
        return _text_expected(received)
    if kind == "literal_error":
        return _one_of(context.get("expected", ""), received)
    if kind == "union_tag_invalid":
        return _one_of(context.get("expected_tags", ""), context.get("tag"))
    if kind in ("too_short", "string_too_short"):
        return f"must not be empty, got {shorten(received)}"
    if kind == "string_too_long":
        return f"must have at most {context.get('max_length')} characters, got {shorten(received)}"
    if kind == "value_error":
        return str(context.get("error", details["msg"]))
    if kind.startswith("one_of"):
        return details["msg"]
    if kind in ("list_type", "tuple_type") and isinstance(received, (str, int, float)):
        return f"expected a list, got {shorten(received)}; write [{received}]"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind].format(**context)}, got {shorten(received)}"
    return f"{details['msg']}, got {shorten(received)}"


def shorten(value: Any) -> str:
    """A value for a message, cut to a readable length."""
    if value is None:
        return "nothing (null)"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _text_expected(received: Any) -> str:
    if isinstance(received, bool):
        return f"expected text, got {shorten(received)}; put it in quotes if it is meant as text"
    if isinstance(received, (int, float)):
        return f'expected text, got the number {received}; put it in quotes: "{received}"'
    return f"expected text, got {shorten(received)}"


def _one_of(expected: str, received: Any) -> str:
    choices = expected.replace(" or ", ", ").replace("'", "").split(", ")
    hint = nearest(str(received), choices)
    close = hint if "Did you mean" in hint else ""
    return f"expected one of {', '.join(choices)}; got {shorten(received)}.{close}"


def _joined(messages: list[str]) -> str:
    """Several complaints about one value, each said once: it fits none of the branches of a union."""
    distinct = list(dict.fromkeys(messages))
    return distinct[0] if len(distinct) == 1 else "; or: ".join(distinct)


def _written_path(details: ErrorDetails, written: Any) -> Path:
    """Pydantic's location without the branches of unions that it names."""
    path: list[str | int] = []
    node = written
    for index, step in enumerate(details["loc"]):
        last = index == len(details["loc"]) - 1
        if _holds(node, step):
            node = node[step]
        elif not (last and details["type"] in ("missing", "extra_forbidden")):
            continue
        path.append(step)
    if details["type"] == "one_of_unknown" and isinstance(node, Mapping):
        path.append("type")
    return tuple(path)


def _holds(node: Any, step: str | int) -> bool:
    if isinstance(node, (list, tuple)):
        return isinstance(step, int) and step < len(node)
    return isinstance(node, Mapping) and step in node


def _options_at(model: type[BaseModel], path: Path, written: Any) -> set[str]:
    """The options that exist in the mapping at `path`."""
    candidates: list[Any] = [model]
    node = written
    for step in path:
        node = node[step] if _holds(node, step) else None
        candidates = [below for candidate in candidates for below in _step(candidate, step, node)]
    models = [candidate for candidate in candidates if _is_model(candidate)]
    chosen = [one for one in models if not isinstance(node, Mapping) or _type_matches(one, node.get("type"))]
    return {name for one in chosen or models for name in one.model_fields}


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def _type_matches(model: type[BaseModel], name: Any) -> bool:
    field = model.model_fields.get("type")
    return name is None or field is None or name in get_args(field.annotation)


def _step(candidate: Any, step: str | int, node: Any) -> Iterator[Any]:
    """The types that may stand at `step` of a type."""
    if _is_model(candidate):
        field = candidate.model_fields.get(str(step))
        if field is not None:
            yield from _unfold(field.annotation, field.metadata, node)
        return
    arguments = get_args(candidate)
    origin = get_origin(candidate)
    if origin is dict and len(arguments) == 2:
        yield from _unfold(arguments[1], (), node)
    elif origin in (list, tuple) and arguments:
        yield from _unfold(arguments[0], (), node)


def _unfold(annotation: Any, metadata: Iterable[Any], node: Any) -> Iterator[Any]:
    """The plain types in an annotation; a family stands for the member that `node` selects."""
    for item in metadata:
        if isinstance(item, OneOf):
            name = node.get("type") if isinstance(node, Mapping) else node
            if isinstance(name, str) and name in item.registry:
                yield item.registry[name].config
            return
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *rest = get_args(annotation)
        yield from _unfold(inner, rest, node)
    elif origin in (Union, types.UnionType):
        for branch in get_args(annotation):
            yield from _unfold(branch, (), node)
    elif origin is not Literal:
        yield annotation
