"""A cache folder for what is made once from the data: text files as Parquet, splits, histories."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from easyrec.errors import DataError

_BUILDING = ".building-"
SHARDS = "shards"
"""Name of a folder that somebody else keeps there, with fingerprints of its own."""


class Store:
    """A folder of folders, each made as a whole or not at all, named by a fingerprint of what it was made from.

    Args:
        root: The folder; a temporary one, removed with this object, unless given.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="easyrec-") if root is None else root)
        self._used: set[str] = set()
        if root is None:
            weakref.finalize(self, shutil.rmtree, self.root, ignore_errors=True)

    def build(self, name: str, parts: Any, make: Callable[[Path], None]) -> Path:
        """The folder that `make` fills, made now unless an earlier call with equal `parts` did.

        Args:
            name: What it holds, one word.
            parts: Everything the content depends on; JSON types, tuples and objects with a text form.
            make: Called with an empty folder; when it raises, nothing stays behind.

        Raises:
            DataError: The disk is full or the folder cannot be written.
        """
        final = self.root / f"{name}-{fingerprint(parts)}"
        self._used.add(final.name)
        if final.is_dir():
            return final
        working: Path | None = None
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._remove_abandoned()
            working = Path(tempfile.mkdtemp(prefix=f"{_BUILDING}{os.getpid()}-", dir=self.root))
            make(working)
            self._publish(working, final)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM):
                raise
            reason = error.strerror or str(error)
            raise DataError(f"the cache folder {self.root} cannot be written: {reason}") from error
        finally:
            if working is not None:
                shutil.rmtree(working, ignore_errors=True)
        return final

    def prune(self) -> None:
        """Removes folders that this object was not asked for: they were made from other data or for other options."""
        for folder in self.root.iterdir() if self.root.is_dir() else ():
            if folder.name not in (*self._used, SHARDS) and not folder.name.startswith(_BUILDING):
                shutil.rmtree(folder, ignore_errors=True)

    def _publish(self, working: Path, final: Path) -> None:
        try:
            working.rename(final)
        except OSError:
            if not final.is_dir():  # else another process made the same in the meantime
                raise

    def _remove_abandoned(self) -> None:
        """Removes what a killed process left half made."""
        for folder in self.root.glob(f"{_BUILDING}*"):
            pid = folder.name[len(_BUILDING) :].partition("-")[0]
            if pid.isdigit() and int(pid) != os.getpid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)


def fingerprint(parts: Any) -> str:
    """16 hexadecimal digits that change when `parts` change."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
