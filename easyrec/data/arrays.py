"""Arrays in files, written in any order through memory maps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

_BLOCK = bytes(1 << 20)


def create_array(path: Path, dtype: DTypeLike, length: int) -> np.memmap[Any, Any]:
    """A new .npy file of zeros as a writable map, [length].

    Its space is taken from the disk at once: a map into a file with holes kills the process when the disk is full.

    Raises:
        OSError: The disk is full, or the file cannot be written.
    """
    array: np.memmap[Any, Any] = np.lib.format.open_memmap(path, "w+", dtype, (length,))
    with path.open("rb+") as file:
        size = path.stat().st_size
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.seek(array.offset)
            for start in range(array.offset, size, len(_BLOCK)):
                file.write(_BLOCK[: size - start])
    return array
