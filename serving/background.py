"""What runs beside the requests: streams, compaction, watched folders, items of other processes, forgetting."""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from easyrec.errors import ConfigError
from serving.events.compactor import Compactor
from serving.events.writer import EventWriter
from serving.models.decisions import Decisions
from serving.models.hub import ModelHub
from serving.models.watch import FolderWatcher
from serving.settings import EXPOSURES, Settings
from serving.stores.base import StoreError
from serving.stores.guard import GuardedStore

logger = logging.getLogger(__name__)

_FOLLOW_SECONDS = 1.0
_PRUNE_SECONDS = 3600.0
_STEADY_SECONDS = 60.0
_DAY = 86_400.0


class Helper(Protocol):
    """Something with a thread of its own."""

    def start(self) -> None:
        """Begins."""

    def stop(self) -> None:
        """Ends."""


class Follower(Protocol):
    """Knows something that other processes may be given."""

    def follow(self) -> None:
        """Takes over what they were given since the last call."""


class Upkeep:
    """Takes over what other processes were given, and lets the store forget what is old.

    It forgets only while the clock runs as it should: one that has jumped since the start would have it forget
    everything.

    Args:
        followers: Know the items, and which models were chosen.
        store: Forgets.
        keep_days: How long the store keeps events.
        clock: Seconds since 1970.
        steady: Seconds that never jump.
    """

    def __init__(
        self,
        followers: Sequence[Follower],
        store: GuardedStore,
        keep_days: float,
        clock: Callable[[], float],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._followers = followers
        self._store = store
        self._keep = keep_days * _DAY
        self._clock = clock
        self._steady = steady
        self._started = clock() - steady()
        self._pruned = steady()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def turn(self) -> None:
        """Does what is due.

        Raises:
            EasyRecError: The store cannot be used.
        """
        for follower in self._followers:
            follower.follow()
        if self._steady() - self._pruned < _PRUNE_SECONDS:
            return
        self._pruned = self._steady()
        if abs(self._clock() - self._steady() - self._started) > _STEADY_SECONDS:
            logger.warning("the clock has jumped since the start; nothing is forgotten until the next one")
            return
        self._store.call(self._store.store.prune, self._clock() - self._keep)

    def _run(self) -> None:
        failing = False
        while not self._stopping.wait(_FOLLOW_SECONDS):
            try:
                self.turn()
                failing = False
            except StoreError as error:
                if not failing:
                    logger.warning("items put elsewhere are not known until the store answers: %s", error)
                failing = True
            except Exception:  # whatever it is, the next turn must come
                logger.exception("the upkeep of items and store failed")


def helpers(settings: Settings, writer: EventWriter, hub: ModelHub, decisions: Decisions) -> list[Helper]:
    """What the settings ask for, ready to start.

    Raises:
        ConfigError: A package is not installed, or a URL is wrong.
    """
    found: list[Helper] = []
    events = settings.events
    if events.stream is not None or events.forward is not None:
        try:
            streams = importlib.import_module("serving.events.streams")
            forwarding = importlib.import_module("serving.events.forward")
        except ImportError as error:
            raise ConfigError(
                "events: streams need the package redis: pip install 'easyrec[redis]'"
            ) from error
        if events.stream is not None:
            found.append(streams.StreamIntake(events.stream, writer))
        if events.forward is not None:
            forward = forwarding.StreamForward(events.forward, settings.data / "events")
            writer.add_sink(forward)
            found.append(forward)
    if events.compact:
        folders = settings.data / "events", settings.data / EXPOSURES
        found.append(Compactor(*folders, events.compact_minutes, events.late_minutes, settings.store))
    if settings.watch:
        found.append(FolderWatcher(hub, settings.watch, settings.watch_seconds, decisions.made))
    return found
