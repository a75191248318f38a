"""Starting TensorFlow without the pages its C++ code writes about itself.

TensorFlow logs while it is being loaded, before any of its settings about logging apply, and reports a missing GPU
driver as an error when it first looks for devices. Both go straight to file descriptor 2. What is written there
meanwhile is kept back, and everything that is not such a record is passed on.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_RECORD = re.compile(
    r"(?P<level>[IWEF])\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+\] "  # I0000 00:00:1796033405.012392   31076 port.cc:153] ...
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: (?P<old>[IWEF]) "
    r"|WARNING: All log messages before "
)


def start_tensorflow(errors: bool = True) -> None:
    """Imports TensorFlow and lets it look for devices, quietly; does nothing when it is imported already.

    `TF_CPP_MIN_LOG_LEVEL` is set to 2 (errors only) unless the environment has it. With 0 or 1 there, nothing is kept
    back.

    Args:
        errors: Whether its C++ code shall write errors, too; not where whoever calls it says in words what they mean.
    """
    if "tensorflow" in sys.modules:
        return
    if os.environ.setdefault(LOG_LEVEL, "2" if errors else "3") in ("0", "1"):
        return
    with quiet_records():
        importlib.import_module("tensorflow").config.list_physical_devices()


@contextmanager
def quiet_records() -> Iterator[None]:
    """Keeps back TensorFlow's log records on file descriptor 2; all else arrives there when the block ends."""
    try:
        sys.stderr.flush()
        standard_error = os.dup(2)
    except (OSError, AttributeError):  # a process without standard error has nothing to keep quiet
        yield
        return
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(standard_error, 2)
            os.close(standard_error)
            kept.seek(0)
            sys.stderr.write(
                "".join(worth_showing(kept.read().decode(errors="replace").splitlines(keepends=True)))
            )


def worth_showing(lines: list[str], driver: Path = Path("/proc/driver/nvidia")) -> Iterator[str]:
    """The lines that are not records below an error, nor the error that there is no GPU where there is none.

    Args:
        lines: What was written, with line ends.
        driver: A folder that is there when the machine has the driver of a GPU.
    """
    for line in lines:
        record = _RECORD.match(line)
        severe = record is None or (record["level"] or record["old"]) in ("E", "F")
        if severe and ("cuInit" not in line or driver.exists()):
            yield line
