"""Reads YAML text into plain values, and notes where each one was written.

Scalars follow the core schema of YAML 1.2, so that what looks like text is text: `no`, `on` and dates are strings
(a bool option still takes `yes` and `no`), `1e-3` is a number, `007` keeps its zeros. Keys are always text, as
written. Duplicate keys, tags of one's own and several documents in one file are refused. Anchors, aliases and merge
keys (`<<`) work.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import yaml

from easyrec.config.locations import Location
from easyrec.config.paths import Path, format_path
from easyrec.errors import ConfigError, Problem

MAX_VALUES = 50_000
"""A document with more values than this, aliases written out, is refused: it is a mistake or an attack."""
MAX_DEPTH = 100
"""A document nested deeper than this is refused."""

_PLAIN_TAG = "tag:easyrec,2024:plain"
_YAML = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf", ".Inf", "+.Inf", ".INF", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_VARIABLE = re.compile(r"\$\{[^{}\n]*\}")
_OPEN, _CLOSE = "\ue000", "\ue001"
"""Stand for the braces of `${NAME}` while YAML is read, which would take them for a mapping inside `{...}`."""
_GUARDED = re.compile(rf"\${_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_UNQUOTED = re.compile(
    r"while scanning an alias|undefined alias|found character '(?P<sign>.)' that cannot start any"
)
_LONGEST_INTEGER = 100
"""Digits; longer ones stay text. No option takes such a number, and Python refuses to convert very long ones."""

Substitute = Callable[[str], str]


@dataclass
class Document:
    """Plain values, and the places where they were written.

    Attributes:
        value: Nested dicts with text keys, lists and scalars.
        places: Where each value, and each key of a mapping, stands.
        problems: What was wrong with single values; the rest could be read.
    """

    value: Any
    places: dict[Path, Location] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def plain_value(text: str) -> Any:
    """The value of an unquoted scalar: null, a bool, a number, or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST_INTEGER:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


def read_yaml(
    text: str, file: str, substitute: Substitute = str, *, numbered: bool = True, generated: bool = False
) -> Document:
    """Reads one YAML document.

    Args:
        text: The document.
        file: Its name, for locations.
        substitute: Applied to the text of each scalar value before it becomes a value; may raise ValueError.
        numbered: Whether locations name lines; not for text that is in no file.
        generated: Whether this package wrote the text: it is read by libyaml then where PyYAML comes with it, five
            times as fast. What people write is not, since the two differ over tabs, comments and marks within text.

    Raises:
        ConfigError: The text is not YAML, or not one document; the message shows the line.
    """
    guarded = _OPEN not in text and _CLOSE not in text
    root = _compose(_VARIABLE.sub(_guard, text) if guarded else text, text, file, numbered, generated)
    if root is None:
        return Document(None, {(): Location(file, None)})
    builder = _Builder(
        file, lambda value: substitute(_unguard(value)) if guarded else substitute(value), numbered
    )
    return Document(builder.build(root, (), 0), builder.places, builder.problems)


class _Tags:
    """Marks unquoted scalars, and leaves it to us what they mean."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: Any) -> str:
        """The tag of a node that has none of its own."""
        if kind is yaml.ScalarNode:
            return _PLAIN_TAG if implicit[0] else f"{_YAML}str"
        return f"{_YAML}map" if kind is yaml.MappingNode else f"{_YAML}seq"


class _Loader(_Tags, yaml.SafeLoader):
    """Reads in Python."""


class _FastLoader(_Tags, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads with libyaml where PyYAML comes with it."""


def _guard(match: re.Match[str]) -> str:
    return f"${_OPEN}{match[0][2:-1]}{_CLOSE}"


def _unguard(text: str) -> str:
    return _GUARDED.sub(r"${\1}", text)


def _compose(guarded: str, text: str, file: str, numbered: bool, generated: bool) -> yaml.Node | None:
    """The tree of the one document in `guarded`; None when there is none. Messages show `text`."""
    if generated:
        with suppress(
            yaml.YAMLError, RecursionError, ValueError
        ):  # somebody changed it: read again, for the message
            return _root(_FastLoader, guarded)
    try:
        return _root(_Loader, guarded)
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(error, text, file, numbered)]) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if numbered else None
        code = ord(error.character) if isinstance(error.character, str) else error.character
        message = (
            f"the character U+{code:04X} is not allowed in YAML; in double quotes it is written \\u{code:04X}"
        )
        raise ConfigError([Problem("", message, file, line)]) from error
    except RecursionError as error:
        raise ConfigError([Problem("", f"nested deeper than {MAX_DEPTH} levels", file)]) from error
    except ValueError as error:  # an escape beyond Unicode, or a number in a directive that is none
        raise ConfigError([Problem("", f"not YAML: {error}", file)]) from error


def _root(loader_class: type[yaml.SafeLoader], text: str) -> yaml.Node | None:
    loader = loader_class(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, file: str, numbered: bool) -> Problem:
    mark = error.problem_mark or error.context_mark
    reason = error.problem or error.context or "not YAML"
    if mark is None:
        return Problem("", f"not YAML: {reason}", file)
    lines = text.splitlines() or [""]
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "expected a single document" in (error.context or ""):
        reason = "a second document starts here; one file holds one configuration"
    elif "\\t" in reason or line[: mark.column + 1].strip(" ") == "\t":
        reason = "a tab cannot indent or separate here; use spaces"
    elif reason == "mapping values are not allowed here":
        reason = (
            "a second `: ` in one line; put text that holds a colon in quotes, or check the indentation above"
        )
    elif opening := _UNQUOTED.search(f"{reason} {error.context}"):
        sign = opening["sign"] or "*"
        reason = f"text that starts with {sign} must be in quotes ({reason})"
    elif error.context:
        reason = f"{reason} ({error.context})"
    shown = line.replace("\t", " ")
    pointer = f"\n    {shown}\n    {' ' * min(mark.column, len(shown))}^"
    place = f"column {mark.column + 1}: " if numbered else ""
    return Problem("", f"{place}{reason}{pointer}", file, mark.line + 1 if numbered else None)


class _TooLargeError(ConfigError):
    """The document is too large or too deep to go on."""


class _Builder:
    """Turns nodes into values."""

    def __init__(self, file: str, substitute: Substitute, numbered: bool) -> None:
        self.places: dict[Path, Location] = {}
        self.problems: list[Problem] = []
        self._file = file
        self._substitute = substitute
        self._numbered = numbered
        self._count = 0

    def build(self, node: yaml.Node, path: Path, depth: int) -> Any:
        self._count += 1
        if self._count > MAX_VALUES or depth > MAX_DEPTH:
            limit = (
                f"nested deeper than {MAX_DEPTH} levels"
                if depth > MAX_DEPTH
                else f"more than {MAX_VALUES:,} values"
            )
            raise _TooLargeError(
                [Problem("", f"{limit}; does an alias refer to itself?", self._file, self._line(node))]
            )
        self.places.setdefault(path, Location(self._file, self._line(node)))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            self._expect_tag(node, "seq", path)
            return [self.build(child, (*path, index), depth + 1) for index, child in enumerate(node.value)]
        return self._scalar(node, path)

    def _line(self, node: yaml.Node) -> int | None:
        return node.start_mark.line + 1 if self._numbered else None

    def _problem(self, node: yaml.Node, path: Path, message: str) -> None:
        self.problems.append(Problem(format_path(path), message, self._file, self._line(node)))

    def _expect_tag(self, node: yaml.Node, kind: str, path: Path) -> None:
        if node.tag != _YAML + kind:
            self._problem(
                node, path, f"tags such as {node.tag!r} are not part of the configuration language; drop it"
            )

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        try:
            text = self._substitute(node.value)
        except ValueError as error:
            self._problem(node, path, str(error))
            return node.value
        if node.tag == _PLAIN_TAG:
            return plain_value(text)
        if node.tag in {f"{_YAML}{kind}" for kind in ("int", "float", "bool", "null")}:
            return plain_value(text)
        self._expect_tag(node, "str", path)
        return text

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        self._expect_tag(node, "map", path)
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, path, "a key is plain text, not a list or mapping")
                continue
            key = _unguard(key_node.value)
            if key == "<<" and key_node.tag == _PLAIN_TAG:
                merged.append(value_node)
                continue
            if key in lines:
                where = f" (first in line {lines[key]})" if self._numbered else ""
                self._problem(key_node, (*path, key), f"the key {key!r} is given twice{where}; keep one")
                continue
            lines[key] = key_node.start_mark.line + 1
            self.places[(*path, key)] = Location(self._file, self._line(key_node))
            result[key] = self.build(value_node, (*path, key), depth + 1)
        for source in merged:
            self._merge(source, path, depth, result)
        return result

    def _merge(self, source: yaml.Node, path: Path, depth: int, result: dict[str, Any]) -> None:
        """Adds the entries of a merge key (`<<: *alias`) that are not given."""
        sources = source.value if isinstance(source, yaml.SequenceNode) else [source]
        for mapping in sources:
            if not isinstance(mapping, yaml.MappingNode):
                self._problem(source, path, "`<<` merges a mapping, or a list of mappings")
                continue
            inner = _Builder(self._file, self._substitute, self._numbered)
            inner._count = self._count
            value = inner.build(mapping, path, depth + 1)
            self._count = inner._count
            self.problems.extend(inner.problems)
            for key in [key for key in value if key not in result]:
                result[key] = value[key]
                under = (*path, key)
                self.places.update(
                    {p: place for p, place in inner.places.items() if p[: len(under)] == under}
                )
