"""YAML with the line of every value, so that a problem can say where it was written."""

import os
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from evaluation.abtest.errors import ExperimentConfigError, Problem
from evaluation.errors import did_you_mean

Keys = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """Safe YAML in which only true and false are truth values: the country NO stays a text."""


_Loader.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:bool" or sign in "tTfF"]
    for sign, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True)
class Span:
    """Where a value stands: its line from 1, and the characters of key and value, [start, end)."""

    line: int
    start: int = 0
    end: int = 0


@dataclass
class Source:
    """A file as values and places.

    Attributes:
        value: What the file holds.
        file: Its name, empty for a text.
        text: Its text.
        spans: Place of each value by its path of keys.
        problems: Keys that stand twice.
    """

    value: Any
    file: str = ""
    text: str = ""
    spans: dict[Keys, Span] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, keys: Iterable[str | int], message: str) -> Problem:
        """A problem at the nearest place that was written."""
        path = tuple(keys)
        place = path
        while place and place not in self.spans:
            place = place[:-1]
        span = self.spans.get(place)
        return Problem(message, ".".join(map(str, path)), self.file, span.line if span else None)


def read_source(path: str | os.PathLike[str]) -> Source:
    """Read a YAML (or JSON) file.

    Raises:
        ExperimentConfigError: The file cannot be read, or is not YAML.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ExperimentConfigError([Problem(f"is not UTF-8 text: {error}", file=str(path))]) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ExperimentConfigError([Problem(f"cannot be read: {reason}", file=str(path))]) from error
    return parse_source(text, str(path))


def parse_source(text: str, file: str = "") -> Source:
    """Read a YAML text; `file` is the name that problems give.

    Raises:
        ExperimentConfigError: It is not YAML.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        source = Source(None, file, text)
        if node is not None:
            source.value = _build(loader, node, (), source)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        message = f"is not YAML: {getattr(error, 'problem', None) or error}"
        raise ExperimentConfigError(
            [Problem(message, file=file, line=mark.line + 1 if mark else None)]
        ) from error
    except RecursionError as error:
        raise ExperimentConfigError([Problem("is nested too deeply", file=file)]) from error
    finally:
        loader.dispose()
    return source


def _build(loader: _Loader, node: yaml.Node, keys: Keys, source: Source) -> Any:
    source.spans.setdefault(keys, Span(node.start_mark.line + 1, node.start_mark.index, node.end_mark.index))
    if isinstance(node, yaml.MappingNode):
        return _mapping(loader, node, keys, source)
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, one, (*keys, place), source) for place, one in enumerate(node.value)]
    return loader.construct_object(node, deep=True)


def _mapping(loader: _Loader, node: yaml.MappingNode, keys: Keys, source: Source) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    result: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(None, None, "a key is a list", key_node.start_mark)
        name = key if isinstance(key, str) else str(key)
        path = (*keys, name)
        if name in result:
            line = key_node.start_mark.line + 1
            first = source.spans[path].line
            source.problems.append(
                Problem(f"stands twice, first in line {first}", ".".join(map(str, path)), source.file, line)
            )
        source.spans[path] = Span(
            key_node.start_mark.line + 1, key_node.start_mark.index, value_node.end_mark.index
        )
        result[name] = _build(loader, value_node, path, source)
    return result


def pydantic_problems(error: ValidationError, source: Source) -> list[Problem]:
    """What pydantic found, in words and with places."""
    return [source.problem(_path(one, source), _message(one)) for one in error.errors(include_url=False)]


def _path(one: ErrorDetails, source: Source) -> Keys:
    # The chosen member of a union is a step of pydantic's, not a key of the file.
    path: Keys = ()
    last = len(one["loc"]) - 1
    for place, step in enumerate(one["loc"]):
        if place == last or (*path, step) in source.spans or not source.spans:
            path = (*path, step)
    return path


def _message(one: ErrorDetails) -> str:
    kind, got, context = one["type"], one["input"], one.get("ctx", {})
    if kind == "extra_forbidden":
        return f"is no key that exists here; {did_you_mean(str(one['loc'][-1]), context.get('known', ()))}"
    if kind == "missing":
        return "is required and missing"
    if kind in ("literal_error", "enum"):
        return f"must be {context.get('expected')}, got {got!r}"
    shown = repr(got)
    text = one["msg"].removeprefix("Value error, ")
    return f"{text[:1].lower()}{text[1:]}, got {shown if len(shown) <= 80 else shown[:77] + '...'}"
