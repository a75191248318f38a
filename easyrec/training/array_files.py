"""Arrays as NumPy files that know their checksum, written in slices so that no second copy of a table is needed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from easyrec.errors import CheckpointError

Array = npt.NDArray[Any]
DAMAGED = "The checkpoint is damaged; choose another one or train again"
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Variable:
    """One array of the state, read and written in slices along its first axis.

    Attributes:
        name: Its name, unique in the state.
        shape: Its shape.
        dtype: Its NumPy type.
        read: Yields its slices in order (a scalar as one array without axes).
        write: Overwrites it with an array of this shape.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], Iterator[Array]]
    write: Callable[[Array], None]


class _Hashing:
    """A file that hashes what is written to it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self.stream.write(data)


def write_array(stream: BinaryIO, variable: Variable) -> tuple[str, int]:
    """Writes an array in NumPy's format; returns its sha256 and size."""
    hashing = _Hashing(stream)
    header = {"descr": variable.dtype.str, "fortran_order": False, "shape": variable.shape}
    np.lib.format.write_array_header_1_0(hashing, header)
    for part in variable.read():
        hashing.write(np.ascontiguousarray(part, variable.dtype).reshape(-1).view(np.uint8).data)
    return hashing.digest.hexdigest(), hashing.size


def verify_file(path: Path, entry: Mapping[str, Any]) -> None:
    """Compares a file with the `sha256` of its entry in the manifest.

    Raises:
        CheckpointError: It differs, or cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while data := stream.read(READ_BYTES):
                digest.update(data)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}. {DAMAGED}") from error
    if digest.hexdigest() != entry["sha256"]:
        raise CheckpointError(
            f"{path}: its content has changed since it was written (sha256 differs). {DAMAGED}"
        )


def file_name(name: str, taken: set[str]) -> str:
    """A file name for an array, unlike those `taken` on any file system; it is added to them."""
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", name.replace("/", "__"))[:150]
    file, count = f"{stem}.npy", 1
    while file.casefold() in taken:
        file, count = f"{stem}-{count}.npy", count + 1
    taken.add(file.casefold())
    return file


def flush_directory(path: Path) -> None:
    """Makes a rename or new files in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
