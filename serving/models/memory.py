"""Gives back memory that only loading a bundle needed."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Container
from pathlib import Path

import pyarrow as pa

_MAPS = Path("/proc/self/maps")


def release_pages(folder: Path, scanned: Container[str] = ()) -> int:
    """Gives back the pages of all files below a folder; returns how many bytes are mapped.

    They stay in the kernel's cache and are mapped again when they are read; but until then they are not counted as the
    process's memory, which limits of containers are held against. Requests read a row here and a row there, and the
    kernel is told so: else it would read many pages around each of them from the disk, which push out others where
    memory is short.

    Args:
        folder: Holds files that are mapped for reading only.
        scanned: Names of files that are read from beginning to end.
    """
    if sys.platform != "linux" or not _MAPS.exists():
        return 0
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    below, total = f"{folder.resolve()}/", 0
    for line in _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not fields[5].startswith(below) or "w" in fields[1]:
            continue
        first, last = (int(address, 16) for address in fields[0].split("-"))
        advise(first, last - first, mmap.MADV_DONTNEED)
        if Path(fields[5]).name not in scanned:
            advise(first, last - first, mmap.MADV_RANDOM)
        total += last - first
    return total


def release_heap() -> None:
    """Gives back what was freed but is kept for later by Arrow's allocator, and by the C library where that is GNU's.

    Loading takes several times the memory that serving takes afterwards.
    """
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
