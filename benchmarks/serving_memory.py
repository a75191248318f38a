"""Whether the service answers as fast when the kernel gives it no more than so much memory, mapped files included.

    python benchmarks/serving_memory.py BUNDLE --runtime litert --limit 400    a bundle of serving_bundle.py; as root

Files are read from the disk into the limit's own account: what the kernel kept of them for others is dropped before.
With too little memory the process is killed, or reads the disk again and again, which shows in the latencies.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving import HERE, MIB, load, memory, outcome, serving, settings_file, show, write_bodies

GROUPS = Path("/sys/fs/cgroup")
NAME = "easyrec-benchmark"


@contextmanager
def limited(mebibytes: int) -> Iterator[Path]:
    """A control group with a limit of memory, version 1 or 2; yields its folder."""
    first = GROUPS / "memory"
    folder, limit = (
        (first / NAME, "memory.limit_in_bytes") if first.is_dir() else (GROUPS / NAME, "memory.max")
    )
    try:
        folder.mkdir(exist_ok=True)
        (folder / limit).write_text(str(mebibytes * MIB))
    except OSError as error:
        sys.exit(f"no limit can be set in {folder}: {error}; this needs root and control groups")
    try:
        yield folder
    finally:
        folder.rmdir()


def drop(bundle: Path) -> None:
    """Has the kernel forget what it keeps of the files."""
    os.sync()
    for path in bundle.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--runtime", default="litert", choices=["litert", "tensorflow"])
    parser.add_argument("--limit", type=int, default=400, help="MiB")
    parser.add_argument("--items", type=int, default=1_000_000, help="in the bundle")
    parser.add_argument("--rate", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()

    def join(process: subprocess.Popen[str]) -> None:
        (group / "cgroup.procs").write_text(str(process.pid))

    with tempfile.TemporaryDirectory(prefix="easyrec-serving-") as temporary, limited(options.limit) as group:
        folder = Path(temporary)
        bodies = write_bodies(folder, options.items)
        settings = settings_file(folder, options.bundle, options.runtime)
        command = [str(HERE / "serving_server.py"), str(settings), str(options.bundle)]
        drop(options.bundle)
        with serving(command, folder / "log", join) as (process, started):
            print(
                f"{options.runtime} within {options.limit} MiB: ready after {started:.1f} s, {memory(process)}"
            )
            print(
                f"{'':<42}{'p50':>8}{'p95':>10}{'p99':>10}{'p99.9':>10}{'requests':>10}{'failed':>9}{'< 3 p50 %':>11}"
            )
            outcome(load("/v1/recommend", bodies["rank"], options.seconds, options.rate))  # pages are read
            for kind in ("rank", "recommend"):
                found = outcome(load("/v1/recommend", bodies[kind], options.seconds, options.rate))
                show(options.runtime, f"{kind}, {options.rate:g} a second", found)
            print(f"{options.runtime:<12}{memory(process)}")


if __name__ == "__main__":
    main()
