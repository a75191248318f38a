"""API keys: made at random, kept as hashes, compared in constant time.

A key has 256 random bits, so no hash that is slow on purpose is needed: nobody can try them all, and a fast hash keeps
a request cheap. Only the hash is kept; a key is shown once, when it is made.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError

from easyrec.config.base import StrictModel
from easyrec.errors import ConfigError, Problem

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
_KEY_PREFIX = "er_"
_HASH_PREFIX = "sha256:"
_CHECK_SECONDS = 2.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """Who sends a request.

    Attributes:
        name: Name of the key, or None where there are no keys.
        scopes: What the caller may do; `admin` includes the others.
        rate: Requests a second, or None for the service's default.
    """

    name: str | None
    scopes: frozenset[Scope]
    rate: float | None = None

    def may(self, scope: Scope) -> bool:
        """Whether the caller has a scope."""
        return scope in self.scopes or "admin" in self.scopes


ANYBODY = Caller(None, frozenset(SCOPES))
"""The caller where there are no keys."""


class KeyEntry(StrictModel):
    """One key in the file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """Who uses it; stands in logs."""
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)]
    """`read` asks for recommendations, `write` sends events and changes users and items, `admin` does everything."""
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    """Of the key."""
    created: datetime | None = None
    """When it was made."""
    expires: datetime | None = None
    """From when on it is refused."""
    rate: Annotated[float, Field(gt=0)] | None = None
    """Requests a second, in place of `security.requests_per_second`."""


class KeyFile(StrictModel):
    """The file of keys."""

    keys: tuple[KeyEntry, ...] = ()
    """All keys; their names differ."""


def new_key() -> str:
    """A key that nobody can guess."""
    return _KEY_PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """What is kept of a key."""
    return _HASH_PREFIX + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def read_keys(path: Path) -> list[KeyEntry]:
    """The keys in a file.

    Raises:
        ConfigError: It cannot be read, or is no file of keys.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _problem(path, "there is no such file; `easyrec keys create NAME --file` makes it") from error
    except OSError as error:
        raise _problem(path, f"the file cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise _problem(path, "the file is not YAML") from error
    try:
        entries = KeyFile.model_validate(content if content is not None else {}).keys
    except ValidationError as error:
        raise ConfigError(
            # The received value is left out: somebody may have put a key where its hash belongs.
            [Problem(".".join(map(str, one["loc"])), one["msg"], str(path)) for one in error.errors()]
        ) from error
    for field in ("name", "hash"):
        values = [getattr(entry, field) for entry in entries]
        if len(set(values)) < len(values):
            raise _problem(path, f"two keys have the same {field}")
    return list(entries)


def write_keys(path: Path, entries: Iterable[KeyEntry]) -> None:
    """Replaces a file of keys, readable by its owner only; a reader sees the old one or the new one.

    Raises:
        ConfigError: It cannot be written.
    """
    content = KeyFile(keys=tuple(entries)).model_dump(mode="json", exclude_none=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            yaml.safe_dump(content, file, sort_keys=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise _problem(path, f"the file cannot be written: {error.strerror}") from error


class KeyRing:
    """The keys of a service.

    Args:
        entries: The keys.
        clock: Now, in UTC.
    """

    def __init__(
        self, entries: Sequence[KeyEntry], clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._clock = clock
        self._keys = [(entry.hash.encode(), entry) for entry in entries]

    def caller(self, key: str) -> Caller | None:
        """Who uses a key; None if it is unknown or has expired.

        Every hash is compared, and each in constant time, so that the time taken says nothing about the keys there are.
        """
        presented, found = hash_key(key).encode(), None
        for known, entry in self._keys:
            if hmac.compare_digest(known, presented):
                found = entry
        if found is None or (found.expires is not None and _aware(found.expires) <= self._clock()):
            return None
        return Caller(found.name, frozenset(found.scopes), found.rate)


class KeyFileRing:
    """The keys of a file that may change while the service runs: one that is taken out of it is refused at once.

    Args:
        path: The file.
        clock: Seconds that never run backwards.

    Raises:
        ConfigError: See `read_keys`.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp = _stamp(path)
        self._ring = KeyRing(read_keys(path))
        self._next = clock() + _CHECK_SECONDS

    def caller(self, key: str) -> Caller | None:
        """See `KeyRing.caller`."""
        if self._clock() >= self._next:
            self._look_again()
        return self._ring.caller(key)

    def _look_again(self) -> None:
        with self._lock:
            self._next = self._clock() + _CHECK_SECONDS
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            try:
                self._ring = KeyRing(read_keys(self._path))
            except ConfigError as error:  # a half-edited file locks nobody out
                logger.error(
                    "the file of API keys is not used as it is now; the keys before remain: %s", error
                )
            else:
                logger.info("the file of API keys was read again")
            self._stamp = stamp


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _problem(path: Path, message: str) -> ConfigError:
    return ConfigError([Problem("", message, str(path))])
