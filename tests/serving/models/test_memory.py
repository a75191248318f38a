"""What is given back is no memory of the process any more; pages are there when they are read again."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from serving.models.memory import release_heap, release_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other kernels tell and are told otherwise")


def resident(path: Path) -> int:
    """KiB of a file that are in the process's memory."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"^[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def test_pages_are_given_back_and_come_again(tmp_path):
    inside, beside = tmp_path / "bundle" / "part", tmp_path / "other"
    for folder in (inside, beside):
        folder.mkdir(parents=True)
        np.save(folder / "array.npy", np.arange(1 << 20))
    arrays = [np.load(folder / "array.npy", mmap_mode="r") for folder in (inside, beside)]
    written = np.load(inside / "array.npy", mmap_mode="c")
    written[7] = -1  # a copy of the process's own, which there is nowhere else
    assert [int(array.sum()) for array in arrays] == [(1 << 20) * ((1 << 20) - 1) // 2] * 2
    assert resident(beside / "array.npy") >= 8 << 10
    assert release_pages(tmp_path / "bundle") >= 8 << 20
    assert resident(inside / "array.npy") < 1 << 10
    assert resident(beside / "array.npy") >= 8 << 10
    assert (written[7], arrays[0][7], arrays[0][-1]) == (-1, 7, (1 << 20) - 1)
    assert release_pages(tmp_path / "nothing") == 0


def flags(path: Path) -> str:
    """What the kernel was told of a mapped file."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.endswith(str(path)))
    return next(line for line in lines if line.startswith("VmFlags:"))


def test_the_kernel_reads_single_rows_but_for_what_is_scanned(tmp_path):
    for name in ("rows", "all"):
        np.save(tmp_path / f"{name}.npy", np.arange(1 << 16))
    arrays = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("rows", "all")]
    release_pages(tmp_path, scanned=["all.npy"])
    assert " rr" in flags(tmp_path / "rows.npy")
    assert " rr" not in flags(tmp_path / "all.npy")
    assert [int(array[-1]) for array in arrays] == [(1 << 16) - 1] * 2


def test_memory_that_was_freed_is_given_back():
    process = psutil.Process()
    texts = [bytes(1000) + str(number).encode() for number in range(200_000)]  # small pieces stay in the heap
    last = bytes(1000)  # and this one keeps its end from shrinking
    held = process.memory_info().rss
    del texts
    release_heap()
    assert held - process.memory_info().rss > 100 << 20
    assert len(last) == 1000
