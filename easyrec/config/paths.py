"""Dotted paths into a configuration: `training.epochs`, `features."I*".buckets`, `data.train.path.0`."""

from __future__ import annotations

import re

Path = tuple[str | int, ...]
"""Keys of mappings and indices of lists, from the top."""

_PLAIN = re.compile(r"[^\s.\"'\[\]=:*?{},\\]+")
_PART = re.compile(
    r"""
      "(?P<double>(?:[^"\\]|\\.)*)"
    | '(?P<single>(?:[^'\\]|\\.)*)'
    | (?P<plain>[^.\"'\[\]=\s]+)
    """,
    re.VERBOSE,
)


def format_path(path: Path) -> str:
    """Writes a path with dots; a key that holds dots, spaces or signs is quoted.

    Args:
        path: Such as ("features", "I*", "buckets").
    """
    return ".".join(_format_part(part) for part in path)


def _format_part(part: str | int) -> str:
    text = str(part)
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse_path(text: str) -> Path:
    """Reads a path as `format_path` writes it; indices may also be written `path[0]`, keys in single quotes.

    Args:
        text: Such as `features."I*".buckets`.

    Returns:
        The path. A plain whole number stays text; whether it is an index depends on what it points into.

    Raises:
        ValueError: The text is not a path; the message says at which position.
    """
    parts: list[str | int] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None:
            raise ValueError(f"expected a key at position {position + 1} of {text!r}")
        quoted = match["double"] if match["double"] is not None else match["single"]
        parts.append(match["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        position = match.end()
        while index := re.compile(r"\[(\d+)\]").match(text, position):
            parts.append(int(index[1]))
            position = index.end()
        if position == len(text):
            return tuple(parts)
        if text[position] != ".":
            raise ValueError(f"expected a dot at position {position + 1} of {text!r}")
        position += 1
