"""A folder that changes in one step: readers see the old one whole or the new one whole, whatever happens."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from easyrec.errors import BundleError

# linux/fcntl.h and linux/fs.h: paths are relative to the working directory; both names swap what they stand for.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_SUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM}


@contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder that becomes `target` when the block ends without an error.

    The folder is written beside `target`, flushed to the disk, and put in place with one rename. Until then a folder
    that was at `target` stays as it is, even if the process is killed or the disk fills up. What a killed process has
    left behind is removed by the next one.

    Args:
        target: Where the folder shall be.

    Yields:
        The folder to write to.

    Raises:
        BundleError: It cannot be written; the message gives the reason of the operating system.
    """
    target = Path(os.path.abspath(target))
    writing = target.with_name(f".{target.name}.writing-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        writing.mkdir()
        try:
            yield writing
            _flush(writing)
            _put_in_place(writing, target)
        finally:
            shutil.rmtree(writing, ignore_errors=True)
    except OSError as error:
        kept = " What was there before is unchanged." if target.exists() else ""
        # NumPy gives a write that was cut short no error number.
        reason = error.strerror or f"{error}, as on a full disk"
        raise BundleError(
            f"cannot write {target}: {reason}.{kept} Check the free space and the permissions of "
            f"{target.parent}, then run the command again."
        ) from error


def _flush(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _put_in_place(writing: Path, target: Path) -> None:
    if not target.exists():
        os.rename(writing, target)
    elif not _exchange(writing, target):
        # This file system cannot swap two folders, so for an instant neither has the name.
        previous = writing.with_name(writing.name.replace(".writing-", ".previous-"))
        os.rename(target, previous)
        os.rename(writing, target)
        shutil.rmtree(previous, ignore_errors=True)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(first: Path, second: Path) -> bool:
    """Swaps two folders in one step with renameat2(2); False where that is not supported."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_SUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(second))


def _remove_leftovers(target: Path) -> None:
    """Removes what killed processes left beside `target`, and brings back a folder that one had set aside."""
    for state in ("previous", "writing"):
        for left in target.parent.glob(f".{target.name}.{state}-*-*"):
            process = left.name.split(f".{state}-", 1)[1].split("-", 1)[0]
            if not process.isdecimal() or _is_running(int(process)):
                continue
            if state == "previous" and not target.exists():
                os.rename(left, target)
            else:
                shutil.rmtree(left, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
