"""`--set training.epochs=5`: single values set from outside the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from easyrec.config.locations import SOURCE, Location
from easyrec.config.paths import Path, format_path, parse_path
from easyrec.config.yaml_reader import Document, read_yaml
from easyrec.errors import ConfigError, Problem

_SPLIT = re.compile(r"""((?:[^="']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)=(.*)""", re.DOTALL)
_PATH_SHORTHANDS: frozenset[Path] = frozenset(
    {("data", "train"), ("data", "eval"), ("data", "tables", "user"), ("data", "tables", "item")}
)


def apply_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """Sets values in a document.

    `path=value`: the path has dots (`features."I*".buckets`, `data.train.path[0]`), the value is YAML
    (`[64, 32]`, `{type: id}`, `null`, `1e-3`). Mappings on the way are made when missing, and a short form is
    written out (`model=deepfm` under `model.dropout=0.1` becomes `{type: deepfm}`).

    Args:
        document: What was read; it is not changed.
        overrides: In order; a later one wins.

    Returns:
        A new document; problems with overrides are added to its problems.
    """
    result = Document(_copied(document.value), dict(document.places), list(document.problems))
    for override in overrides:
        try:
            _apply(result, override)
        except ConfigError as error:
            result.problems.extend(error.problems)
        except ValueError as error:
            result.problems.append(Problem("", f"{override!r}: {error}", SOURCE))
    return result


def _apply(document: Document, override: str) -> None:
    match = _SPLIT.fullmatch(override)
    if match is None:
        raise ValueError("an override is written path=value, such as training.epochs=5")
    path = parse_path(match[1].strip())
    # On a command line, no anchors, tags or blocks: a glob or a separator need not be quoted once more.
    literal = match[2].lstrip().startswith(tuple("*&!|>%@`"))
    parsed = Document(match[2]) if literal else read_yaml(match[2], SOURCE, numbered=False)
    if parsed.problems:
        raise ConfigError([Problem(format_path(path), found.message, SOURCE) for found in parsed.problems])
    target = document.value
    walked: Path = ()
    for part in path[:-1]:
        key = _key(target, part, walked)
        walked = (*walked, key)
        if isinstance(target, dict) and target.get(key) is None:
            target[key] = {}
            document.places[walked] = Location(SOURCE)
        if isinstance(target[key], str):
            target[key] = {"path" if walked in _PATH_SHORTHANDS else "type": target[key]}
        target = target[key]
    key = _key(target, path[-1], walked)
    target[key] = parsed.value
    where = (*walked, key)
    for old in [old for old in document.places if old[: len(where)] == where]:
        del document.places[old]
    document.places[where] = Location(SOURCE)


def _key(target: Any, part: str | int, walked: Path) -> Any:
    """The part of a path as a key of a mapping or a position in a list."""
    if isinstance(target, dict):
        return str(part)
    if not isinstance(target, list):
        raise ValueError(f"{format_path(walked)} is {target!r}, which has no options of its own")
    if not str(part).isdecimal() or int(part) >= len(target):
        valid = f"a position from 0 to {len(target) - 1}" if target else "no position: it is empty"
        raise ValueError(f"{format_path(walked)} is a list, which has {valid}; got {part!r}")
    return int(part)


def _copied(value: Any) -> Any:
    """A copy of nested dicts and lists; everything else is shared."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
