"""Looks for new bundles in folders and has them loaded.

A watched folder is a run, a bundle, or holds some, such as one sub-folder a version. A bundle that appears or changes
is loaded once it has stayed the same for a whole interval, so that one that is still being copied is left alone; one
that was refused is tried again when it has changed.

A process that starts catches up: for each model it loads the version that was chosen last, by the API or by being the
latest to come. So all processes serve the same, whenever they were started.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from easyrec.errors import EasyRecError
from easyrec.export.layout import RUN_BUNDLE
from easyrec.export.manifest import MANIFEST, read_manifest
from serving.models.decisions import Activation, Decided
from serving.models.hub import ModelHub
from serving.models.served import ServedModel

# Files, bytes, latest change in nanoseconds, and which manifest it is.
Signature: TypeAlias = tuple[int, int, int, int]

_LOG = logging.getLogger(__name__)


class FolderWatcher:
    """Watches folders on a thread of its own.

    Args:
        hub: Where bundles are loaded.
        folders: What to watch.
        interval: Seconds between looks.
        decided: What was decided through the API.
    """

    def __init__(
        self,
        hub: ModelHub,
        folders: Iterable[str | Path],
        interval: float = 10.0,
        decided: Callable[[], Decided] = Decided,
    ) -> None:
        self._hub = hub
        self._folders = [Path(folder) for folder in folders]
        self._interval = interval
        self._decided = decided
        self._seen: dict[Path, Signature] = {}
        self._settling: dict[Path, Signature] = {}
        self._fetched: dict[Path, Signature] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins; of the bundles that are there now, those are loaded that would serve had this process run before."""
        self._seen = self._signatures()
        self._catch_up()
        self._thread = threading.Thread(target=self._run, name="model-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends, and waits for the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> list[Future[ServedModel]]:
        """Looks once; what is new and has settled is being loaded, oldest version first."""
        found = self._signatures()
        settled = [
            path
            for path, seen in found.items()
            if seen != self._seen.get(path) and seen == self._settling.get(path)
        ]
        self._settling = found
        self._seen = {path: seen for path, seen in self._seen.items() if path in found}
        self._seen |= {path: found[path] for path in settled}
        return [self._load(path) for path in sorted(settled, key=_version)]

    def _catch_up(self) -> None:
        decided = self._decided()
        for name, bundles in _by_name(self._seen).items():
            if name not in self._hub.names():
                continue  # a folder may hold the runs of all kinds of models
            active = self._hub.active(name)
            wanted = _last(bundles, decided.active.get(name), active.manifest.created)
            if wanted is not None and wanted.version != active.version:
                self._load(wanted.path)
        self.fetch()

    def fetch(self) -> list[Future[ServedModel]]:
        """Has versions loaded that were chosen in another process, and are not loaded in this one."""
        decided, loading = self._decided(), []
        for name in self._hub.names():
            choice, beside = decided.active.get(name), decided.shadow.get(name)
            beside = beside if beside is not None and beside.percent else None
            wanted = {one.version for one in (choice, beside) if one is not None}
            wanted -= {model.version for model in self._hub.loaded(name)}
            bundles = _by_name(self._seen).get(name, []) if wanted else []
            # A choice lasts until another bundle comes; one that was refused is not tried again.
            for one in (_last(bundles, choice, ""), _of_version(bundles, beside)):
                if one is not None and one.version in wanted:
                    wanted.remove(one.version)
                    if self._fetched.get(one.path) != self._seen[one.path]:
                        self._fetched[one.path] = self._seen[one.path]
                        loading.append(self._hub.load(one.path, activate=False))
        return loading

    def _load(self, path: Path) -> Future[ServedModel]:
        _LOG.info("a new bundle in %s is being loaded", path)
        return self._hub.load(path)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            for future in [*self.look(), *self.fetch()]:
                try:
                    future.result()
                except (EasyRecError, CancelledError):
                    continue  # the hub has logged it, and keeps why

    def _signatures(self) -> dict[Path, Signature]:
        signatures = {}
        for folder in self._folders:
            for path in _bundles(folder):
                try:
                    signatures[path] = _signature(path)
                except OSError:  # it is being moved or removed; the next look will tell
                    continue
        return signatures


@dataclass(frozen=True)
class _Bundle:
    """One in a watched folder.

    Attributes:
        path: Where.
        version: Of the bundle.
        order: What bundles of a model are ordered by.
        came: When it came to the folder, seconds since 1970, whenever it was made.
    """

    path: Path
    version: str
    order: tuple[str, str]
    came: float


def _by_name(paths: Iterable[Path]) -> dict[str, list[_Bundle]]:
    """Bundles by the name of their model; those that cannot be read are left out."""
    found: dict[str, list[_Bundle]] = {}
    for path in paths:
        try:
            manifest, came = read_manifest(path), (path / MANIFEST).stat().st_ctime
        except (EasyRecError, OSError):
            continue
        order = (manifest.created, manifest.version)
        found.setdefault(manifest.name, []).append(_Bundle(path, manifest.version, order, came))
    return found


def _last(bundles: Iterable[_Bundle], choice: Activation | None, made: str) -> _Bundle | None:
    """The one that was chosen, unless others came later: of them, the newest.

    Args:
        bundles: Of one model.
        choice: What was decided last.
        made: When the bundle was made that serves; without a decision, an older one does not take its place.
    """
    if choice is None:
        newer = [one for one in bundles if one.order[0] > made]
        return max(newer, key=lambda one: one.order, default=None)
    later = [one for one in bundles if one.came > choice.at]
    return max(later, key=lambda one: one.order) if later else _of_version(bundles, choice)


def _of_version(bundles: Iterable[_Bundle], choice: Activation | None) -> _Bundle | None:
    return next((one for one in bundles if choice is not None and one.version == choice.version), None)


def _bundles(folder: Path) -> list[Path]:
    """The bundles that a folder is or holds."""
    try:
        below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []
    places = [folder, folder / RUN_BUNDLE, *below, *(path / RUN_BUNDLE for path in below)]
    return [path for path in dict.fromkeys(places) if (path / MANIFEST).is_file()]


def _signature(bundle: Path) -> Signature:
    states = [path.stat() for path in bundle.rglob("*") if path.is_file()]
    manifest = (bundle / MANIFEST).stat()
    return (
        len(states),
        sum(one.st_size for one in states),
        max(one.st_mtime_ns for one in states),
        manifest.st_ino,
    )


def _version(bundle: Path) -> tuple[str, str]:
    """What bundles are sorted by; one that cannot be read comes first, to be refused."""
    try:
        manifest = read_manifest(bundle)
    except EasyRecError:
        return "", bundle.name
    return manifest.created, manifest.version
