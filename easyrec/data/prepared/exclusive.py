"""One process at a time prepares a folder of shards."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

from easyrec.errors import DataError


@contextlib.contextmanager
def alone(folder: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Waits until no other process prepares a folder, and keeps others waiting while the block runs.

    A process that is killed keeps nobody waiting: the system takes its lock away. Storage behind a URL has no locks;
    two processes that prepare the same shards there write the same files twice.

    Args:
        folder: The folder; the lock is a file beside it.
        tell: Called with a line of text when somebody else is at work.

    Raises:
        DataError: The folder's parent cannot be written.
    """
    if "://" in folder:
        yield
        return
    path = Path(f"{folder.rstrip('/')}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise DataError(
            f"{path.parent}: shards cannot be written there: {error.strerror or error}"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"waiting for another process, which prepares {folder}")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # a shared folder that has no locks
            tell(f"note: {folder} cannot be locked; prepare it from one process at a time")
        yield
