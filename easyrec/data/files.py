"""Which files a path, glob, folder or URL stands for, in an order that is always the same."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import fsspec
from fsspec.core import url_to_fs

from easyrec.errors import DataError, nearest

SUFFIXES: Mapping[str, str] = {
    ".parquet": "parquet", ".parq": "parquet", ".pq": "parquet",
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".txt": "csv", ".dat": "csv", ".data": "csv",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip
COMPRESSED = (".gz", ".bz2", ".zst", ".xz")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class DataFile:
    """One file.

    Attributes:
        name: How it is called in messages: the path or URL as the user would write it.
        location: The path within `filesystem`.
        filesystem: An fsspec filesystem.
        size: Bytes.
        version: Modification time, ETag or whatever the filesystem knows that changes with the content.
        partitions: Hive partition values (`country=de/`) by name; None for a null.
    """

    name: str
    location: str
    filesystem: Any = field(compare=False)
    size: int
    version: str = ""
    partitions: tuple[tuple[str, str | None], ...] = ()

    def open(self) -> Any:
        """The file, open for reading bytes."""
        return self.filesystem.open(self.location, "rb")

    def local_path(self) -> str | None:
        """The path on this machine, or None for a file elsewhere."""
        protocol = self.filesystem.protocol
        return self.location if "file" in ([protocol] if isinstance(protocol, str) else protocol) else None


def format_of(name: str) -> str | None:
    """The format that a file name's suffix stands for, or None."""
    lower = name.lower()
    for suffix in COMPRESSED:
        if lower.endswith(suffix):
            inner = posixpath.splitext(lower[: -len(suffix)])[1]
            return SUFFIXES.get(inner, "csv")
    return SUFFIXES.get(posixpath.splitext(lower)[1])


def find_files(
    paths: Sequence[str], storage_options: Mapping[str, Any] | None = None, any_suffix: bool = False
) -> list[DataFile]:
    """The files that `paths` stand for: the paths in their order, what is in a folder or matches a glob by name.

    Args:
        paths: Files, globs, folders (searched to any depth; hive partitions become columns) or fsspec URLs.
        storage_options: Passed to fsspec.
        any_suffix: Take every file of a folder, whatever its suffix (the format is given).

    Raises:
        DataError: A path is missing, a glob matches nothing, a folder holds nothing to read.
    """
    files = [file for path in paths for file in _expand(path, dict(storage_options or {}), any_suffix)]
    known: dict[str, DataFile] = {}
    for file in files:
        known.setdefault(file.location, file)
    return list(known.values())


def _expand(path: str, storage_options: dict[str, Any], any_suffix: bool) -> list[DataFile]:
    filesystem, location = _filesystem(path, storage_options)
    try:
        if filesystem.isfile(location):
            return [_file(filesystem, location, path, location)]
        if filesystem.isdir(location):
            return _folder(filesystem, location, path, any_suffix)
        if any(sign in path for sign in "*?["):
            return _glob(filesystem, location, path)
    except PermissionError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be reached: {type(error).__name__}: {error}") from error
    raise DataError(f"{path} does not exist.{_hint(filesystem, location)}")


def _filesystem(path: str, storage_options: dict[str, Any]) -> tuple[Any, str]:
    try:
        return url_to_fs(path, **(storage_options if "://" in path else {}))
    except ImportError as error:
        raise DataError(f"{path}: this kind of URL needs a package that is not installed: {error}") from error
    except (ValueError, TypeError) as error:
        known = [name for name in fsspec.available_protocols() if len(name) > 1]
        protocol = path.split("://", 1)[0]
        raise DataError(f"{path} cannot be opened: {error}.{nearest(protocol, known)}") from error


def _folder(filesystem: Any, location: str, path: str, any_suffix: bool) -> list[DataFile]:
    root = location.rstrip("/")
    visible = [
        found
        for found in sorted(filesystem.find(location))
        if not _hidden(found[len(root) :]) and (any_suffix or format_of(found) is not None)
    ]
    if not visible:
        everything = [found[len(root) + 1 :] for found in sorted(filesystem.find(location))]
        if not everything:
            raise DataError(f"the folder {path} is empty")
        raise DataError(
            f"the folder {path} holds no file to read; there is {_some(everything)}. "
            f"Suffixes that are read: {', '.join(SUFFIXES)}, also compressed; else give `format:`"
        )
    return [_file(filesystem, found, _child_name(path, root, found), found[len(root) :]) for found in visible]


def _glob(filesystem: Any, location: str, path: str) -> list[DataFile]:
    matches = [found for found in sorted(filesystem.glob(location)) if filesystem.isfile(found)]
    matches = [found for found in matches if not posixpath.basename(found).startswith((".", "_"))]
    if not matches:
        fixed = location[: min(location.find(sign) for sign in "*?[" if sign in location)]
        folder = posixpath.dirname(fixed)
        if not filesystem.isdir(folder):
            raise DataError(f"nothing matches {path}: the folder does not exist.{_hint(filesystem, folder)}")
        names = [posixpath.basename(str(entry).rstrip("/")) for entry in filesystem.ls(folder, detail=False)]
        there = f"it holds {_some(sorted(names))}" if names else "it is empty"
        raise DataError(f"nothing matches {path}; looked in {folder}, {there}")
    return [_file(filesystem, found, _display(path, found), found) for found in matches]


def _file(filesystem: Any, location: str, name: str, relative: str) -> DataFile:
    info = filesystem.info(location)
    version = next(
        (str(info[key]) for key in ("ETag", "etag", "mtime", "LastModified", "created") if info.get(key)), ""
    )
    partitions = []
    for part in posixpath.dirname(relative).split("/"):
        key, sign, value = part.partition("=")
        if sign and key:
            partitions.append((unquote(key), None if value == _NULL_PARTITION else unquote(value)))
    return DataFile(name, location, filesystem, int(info.get("size") or 0), version, tuple(partitions))


def _hidden(relative: str) -> bool:
    parts = relative.strip("/").split("/")
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)


def _child_name(path: str, root: str, found: str) -> str:
    return path.rstrip("/") + found[len(root) :]


def _display(path: str, found: str) -> str:
    protocol, sign, _ = path.partition("://")
    return f"{protocol}://{found.lstrip('/')}" if sign else found


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")


def _hint(filesystem: Any, location: str) -> str:
    """The nearest name beside a missing path, or the deepest folder that exists."""
    folder, name = posixpath.split(location.rstrip("/"))
    missing = None
    while folder and not filesystem.isdir(folder):
        parent, missing = posixpath.split(folder)
        if parent == folder:
            return ""
        folder = parent
    if missing is not None and not folder:
        return ""
    try:
        entries = filesystem.ls(folder, detail=False)
    except OSError:
        return ""
    names = [posixpath.basename(str(entry).rstrip("/")) for entry in entries]
    if missing is not None:
        return f" The folder {folder} exists, but {missing} in it does not.{nearest(missing, names)}"
    return nearest(name, names) or f" The folder {folder} is empty."
