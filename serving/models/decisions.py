"""What people decide about models through the API, known to all processes that share a folder of data.

A request reaches one of several processes; the others read the file within seconds, and one that is started later reads
it when it starts.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from easyrec.errors import BundleError
from serving.models.hub import ModelHub
from serving.models.served import ServedModel

TryBeside = Callable[[str, str, float], None]
Decision = TypeVar("Decision", bound="Activation")
_LOG = logging.getLogger(__name__)


class Activation(BaseModel, frozen=True):
    """A version was made active."""

    version: str
    number: int
    """Counts the decisions of its kind about one model, so that choosing a version again is a decision, too."""
    at: float = 0.0
    """When, seconds since 1970: a bundle that came to a watched folder later took its place."""


class Shadow(Activation, frozen=True):
    """A version was let score a share of the requests; none if `percent` is 0."""

    percent: float


class Decided(BaseModel):
    """The latest decisions, by name of the model."""

    active: dict[str, Activation] = {}
    shadow: dict[str, Shadow] = {}


class Decisions:
    """Makes changes to a hub, writes them down, and makes those that others have written.

    Args:
        path: The file, JSON of `Decided`.
        hub: Has the models.
        try_beside: Lets a version (name, version, percent) score beside the active one; raises BundleError if it is
            not loaded.
    """

    def __init__(self, path: Path, hub: ModelHub, try_beside: TryBeside) -> None:
        self._path = path
        self._hub = hub
        self._try_beside = try_beside
        self._made = Decided()
        self._seen: tuple[int, int] | None = None
        self._told = ""

    def activate(self, name: str, version: str) -> ServedModel:
        """Makes a loaded version the active one, everywhere.

        Raises:
            BundleError: It is not loaded.
        """
        return self._activated(self._hub.activate(name, version))

    def rollback(self, name: str) -> ServedModel:
        """Makes the previous version active again, everywhere.

        Raises:
            BundleError: There is none.
        """
        return self._activated(self._hub.rollback(name))

    def shadow(self, name: str, version: str, percent: float) -> None:
        """Lets a loaded version score a share of the requests of every process; 0 ends it.

        Raises:
            BundleError: It is not loaded, or `percent` is no share.
        """
        self._try_beside(name, version, percent)
        with self._written() as decided:
            number = _next(decided.shadow.get(name))
            decided.shadow[name] = Shadow(version=version, percent=percent, number=number, at=time.time())
            self._made.shadow[name] = decided.shadow[name]

    def made(self) -> Decided:
        """What was decided so far, by whichever process."""
        return self._read()

    def follow(self) -> None:
        """Makes what others have decided; a version that is not loaded here is waited for."""
        changed = self._changed()
        if changed is None or changed == self._seen:
            return
        decided, made = self._read(), self._made
        waiting = [
            *_follow(decided.active, made.active, lambda name, one: self._hub.activate(name, one.version)),
            *_follow(
                decided.shadow,
                made.shadow,
                lambda name, one: self._try_beside(name, one.version, one.percent),
            ),
        ]
        if not waiting:
            self._seen = changed
        told = ", ".join(waiting)
        if told and told != self._told:
            _LOG.warning("another process has chosen %s, not loaded here yet", told)
        self._told = told

    def _activated(self, model: ServedModel) -> ServedModel:
        name = model.name
        with self._written() as decided:
            number = _next(decided.active.get(name))
            decided.active[name] = Activation(version=model.version, number=number, at=time.time())
            self._made.active[name] = decided.active[name]
        return model

    @contextmanager
    def _written(self) -> Iterator[Decided]:
        """What is decided, to be changed; it is written when the block ends."""
        with self._path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            decided = self._read()
            yield decided
            new = self._path.with_suffix(".new")
            new.write_text(decided.model_dump_json(), encoding="utf-8")
            os.replace(new, self._path)

    def _read(self) -> Decided:
        try:
            return Decided.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return Decided()
        except ValidationError as error:
            _LOG.error(
                "what was decided about models is not known: %s: %s", self._path, error.errors()[0]["msg"]
            )
            return Decided()

    def _changed(self) -> tuple[int, int] | None:
        try:
            state = self._path.stat()
        except FileNotFoundError:
            return None
        return state.st_ino, state.st_mtime_ns


def _follow(
    decided: Mapping[str, Decision], made: dict[str, Decision], make: Callable[[str, Decision], object]
) -> list[str]:
    """Makes what is decided and not made yet; names the versions that are not loaded here."""
    waiting = []
    for name, one in decided.items():
        if one != made.get(name):
            try:
                make(name, one)
                made[name] = one
            except BundleError:
                waiting.append(f"version {one.version} of the model {name}")
    return waiting


def _next(before: Activation | None) -> int:
    """Number of the decision after one."""
    return 1 if before is None else before.number + 1
