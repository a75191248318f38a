"""Configuration files and what they include, merged into one document."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from easyrec.config.environment import substitute
from easyrec.config.locations import Location
from easyrec.config.paths import Path
from easyrec.config.yaml_reader import Document, read_yaml
from easyrec.errors import ConfigError, Problem, nearest

MAX_INCLUDES = 100
"""More files than this, those that are included twice counted twice, are taken for a mistake."""

_REMOVABLE = ("features", "tasks")
"""Blocks of named entries, of which a later file may remove one by setting it to null."""


def read_files(
    path: str | os.PathLike[str], environment: Mapping[str, str], *, generated: bool = False
) -> Document:
    """Reads a file and those it includes.

    `include: other.yaml` (or a list) names files relative to the one that includes them. They are read in order; what
    comes later wins, and the including file comes last. Mappings are merged key by key; everything else, and a
    mapping whose `type` changes, is replaced. An entry of `features` or `tasks` that is set to null is removed.

    Args:
        path: The file.
        environment: Variables for `${NAME}`.
        generated: Whether this package wrote them; see `read_yaml`.

    Raises:
        ConfigError: A file cannot be read, is not YAML, or includes itself.
    """
    return _Files(environment, generated).read(os.fspath(path), (), None)


class _Files:
    def __init__(self, environment: Mapping[str, str], generated: bool) -> None:
        self._substitute = partial(substitute, environment=environment)
        self._generated = generated
        self._count = 0

    def read(self, file: str, chain: tuple[FilePath, ...], cause: Location | None) -> Document:
        """Reads one file; `chain` are the files that include it, `cause` the line that does."""
        self._count += 1
        if self._count > MAX_INCLUDES:
            raise ConfigError([_include_problem(f"more than {MAX_INCLUDES} files are included", cause)])
        document = read_yaml(_text(file, cause), file, self._substitute, generated=self._generated)
        if document.value is None:
            raise ConfigError([Problem("", "the file is empty; a configuration starts with `data:`", file)])
        if not isinstance(document.value, dict):
            kind = "a list" if isinstance(document.value, list) else f"{document.value!r}"
            message = f"a configuration is a mapping such as `data: ...`, but the file holds {_short(kind)}"
            raise ConfigError([Problem("", message, file, document.places[()].line)])
        includes = document.value.pop("include", None)
        return self._with_includes(document, includes, file, chain) if includes is not None else document

    def _with_includes(
        self, document: Document, includes: Any, file: str, chain: tuple[FilePath, ...]
    ) -> Document:
        names = [includes] if isinstance(includes, str) else includes
        cause = document.places.pop(("include",))
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            message = f"a file name, or a list of them, is expected; got {_short(repr(includes))}"
            document.problems.append(_include_problem(message, cause))
            return document
        own = FilePath(file).resolve()
        merged = Document({}, {(): document.places[()]})
        for index, name in enumerate(names):
            place = document.places.pop(("include", index), cause)
            target = os.path.join(os.path.dirname(file), name)
            if FilePath(target).resolve() in (*chain, own):
                raise ConfigError(
                    [_include_problem(f"{name!r} includes this file again; includes form a circle", place)]
                )
            merged = merge(merged, self.read(target, (*chain, own), place))
        return merge(merged, document)


def _include_problem(message: str, cause: Location | None) -> Problem:
    return Problem("include", message, cause.file if cause else None, cause.line if cause else None)


def _text(file: str, cause: Location | None) -> str:
    """The text of a file in UTF-8."""
    try:
        with open(file, "rb") as stream:
            data = stream.read()
    except (OSError, ValueError) as error:
        message = _unreadable(file, error)
        raise ConfigError(
            [_include_problem(message, cause) if cause else Problem("", message, None)]
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8: byte 0x{data[error.start]:02X} cannot be read; save the file as UTF-8"
        raise ConfigError([Problem("", message, file, line)]) from error


def _unreadable(file: str, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no such file: {file}.{_siblings(file)}"
    if isinstance(error, IsADirectoryError):
        return f"{file} is a folder; name the configuration file in it.{_yaml_files(file)}"
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"cannot read {file!r}: {reason}"


def _siblings(file: str) -> str:
    folder = os.path.dirname(file) or "."
    if not os.path.isdir(folder):
        return f" There is no folder {folder} either."
    hint = nearest(os.path.basename(file), _listing(folder))
    return hint if "Did you mean" in hint else ""


def _yaml_files(folder: str) -> str:
    names = [name for name in _listing(folder) if name.endswith((".yaml", ".yml"))]
    return nearest("", names)


def _listing(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def merge(under: Document, over: Document) -> Document:
    """Two documents in one; what is in `over` wins."""
    places = dict(under.places)
    value = _merged(under.value, over.value, (), places, over.places)
    return Document(value, places, [*under.problems, *over.problems])


def _merged(
    under: Any, over: Any, path: Path, places: dict[Path, Location], new_places: Mapping[Path, Location]
) -> Any:
    if not isinstance(under, dict) or not isinstance(over, dict) or _type_changes(under, over):
        for old in [old for old in places if old[: len(path)] == path]:
            del places[old]
        places.update({new: place for new, place in new_places.items() if new[: len(path)] == path})
        return over
    if path in new_places:
        places[path] = new_places[path]
    result = dict(under)
    for key, value in over.items():
        below = (*path, key)
        if value is None and len(path) == 1 and path[0] in _REMOVABLE and key in result:
            del result[key]
        elif key in result:
            result[key] = _merged(result[key], value, below, places, new_places)
        else:
            result[key] = value
            places.update({new: place for new, place in new_places.items() if new[: len(below)] == below})
    return result


def _type_changes(under: Mapping[str, Any], over: Mapping[str, Any]) -> bool:
    return "type" in over and "type" in under and over["type"] != under["type"]
