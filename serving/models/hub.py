"""The models that a service has: several names, several versions of each, one of them active.

Loading happens on a thread of its own. A version is verified and warmed up before anyone can see it; making it active
replaces one reference, so a request works with the version it began with and none waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from easyrec.errors import BundleError, EasyRecError, nearest
from serving.models.pace import paced
from serving.models.served import ServedModel, load_served_model
from serving.models.shadow import ShadowRecord, ShadowTraffic

State = Literal["active", "previous", "ready", "failed"]
Listener = Callable[[str, ServedModel], None]
Load = Callable[[Path], ServedModel]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class VersionInfo:
    """One version of a model.

    Attributes:
        name: Name of the model; the folder's where the bundle could not even be read.
        version: Version of the bundle, or "" where it could not be read.
        state: `active` serves, `previous` did before, `ready` is loaded, `failed` was refused.
        path: Where it was loaded from.
        runtime: What computes it.
        error: Why it was refused.
    """

    name: str
    version: str
    state: State
    path: Path
    runtime: str = ""
    error: str = ""


@dataclass
class _Versions:
    """The versions of one name, in the order of loading."""

    models: dict[str, ServedModel] = field(default_factory=dict)
    previous: str | None = None


class ModelHub:
    """Names to versions to models.

    Args:
        load: How a folder becomes a model; `load_served_model` with its defaults unless given.
    """

    def __init__(self, load: Load = load_served_model) -> None:
        self._load = load
        self._versions: dict[str, _Versions] = {}
        self._active: Mapping[str, ServedModel] = {}
        self._failed: dict[Path, VersionInfo] = {}
        self._shadows: Mapping[str, ShadowTraffic] = {}
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()
        self._loader = ThreadPoolExecutor(1, "model-loader")

    # Reading: no locks, so that no request ever waits for a swap.

    def active(self, name: str) -> ServedModel:
        """The active version of a model.

        Raises:
            BundleError: There is none.
        """
        model = self._active.get(name)
        if model is None:
            raise BundleError(f"there is no model {name!r}.{nearest(name, self._active)}")
        return model

    def names(self) -> list[str]:
        """Names of the models that have an active version."""
        return sorted(self._active)

    def versions(self, name: str | None = None) -> list[VersionInfo]:
        """What is known of all versions, or of those of one name, refused ones included."""
        with self._lock:
            found = [
                VersionInfo(model.name, version, self._state(model, version), model.folder, model.runtime)
                for versions in self._versions.values()
                for version, model in versions.models.items()
            ]
            found += self._failed.values()
        return [info for info in found if name is None or info.name == name]

    def loaded(self, name: str) -> list[ServedModel]:
        """All versions of a model that could serve: what changes of items have to reach."""
        with self._lock:
            return list(self._versions[name].models.values()) if name in self._versions else []

    # Changing

    def add_listener(self, listener: Listener) -> None:
        """Calls `listener(name, model)` before a model becomes active for the first time.

        It may bring the model up to date, such as with items that were put through the API. If it raises, the model
        does not become active.
        """
        self._listeners.append(listener)

    def load(self, path: str | Path, activate: bool = True) -> Future[ServedModel]:
        """Loads a bundle in the background; the future has the model, or the BundleError why it was refused.

        Args:
            path: The folder of a bundle or of a run.
            activate: Make it the active version once it is ready.
        """
        return self._loader.submit(self._load_beside, path, activate)

    def load_now(self, path: str | Path, activate: bool = True) -> ServedModel:
        """As `load`, on this thread.

        Raises:
            BundleError: It was refused; whatever was active stays so.
        """
        return self._served(Path(path), activate, nullcontext)

    def _served(
        self, path: Path, activate: bool, while_loading: Callable[[], AbstractContextManager[None]]
    ) -> ServedModel:
        try:
            with while_loading():
                model = self._load(path)
            # It can be found before the listeners bring it up to date, so that what changes meanwhile reaches it too.
            before = self._keep(model)
            try:
                for listener in self._listeners:
                    listener(model.name, model)
            except BaseException:
                self._let_go(model, before)
                raise
        except EasyRecError as error:
            with self._lock:
                self._failed[path] = VersionInfo(path.name, "", "failed", path, error=str(error))
            _LOG.error("the bundle in %s is refused and does not serve: %s", path, error)
            raise
        with self._lock:
            self._failed.pop(path, None)
        if activate:
            self.activate(model.name, model.version)
        return model

    def _load_beside(self, path: str | Path, activate: bool) -> ServedModel:
        return self._served(Path(path), activate, paced)

    def activate(self, name: str, version: str) -> ServedModel:
        """Makes a loaded version the active one; the one it replaces is kept, older ones are let go.

        Raises:
            BundleError: It is not loaded.
        """
        with self._lock:
            model, before = self._loaded(name, version), self._active.get(name)
            versions = self._versions[name]
            if before is model:
                return model
            self._active = {**self._active, name: model}
            if before is not None and before.version != version:
                shadow = self._shadows.get(name)
                kept = {version, before.version, shadow.model.version if shadow else ""}
                for old in [old for old in versions.models if old not in kept]:
                    del versions.models[old]
                versions.previous = before.version
        _LOG.info("version %s of the model %s is active", version, name)
        return model

    def rollback(self, name: str) -> ServedModel:
        """Makes the previous version active again.

        Raises:
            BundleError: There is none.
        """
        with self._lock:
            versions = self._versions.get(name)
            if versions is None or versions.previous is None:
                raise BundleError(f"the model {name!r} has no previous version to go back to")
            return self.activate(name, versions.previous)

    # Shadows

    def shadow(self, name: str) -> ShadowTraffic | None:
        """The version that is tried beside the active one, if there is one; no lock is taken."""
        return self._shadows.get(name)

    def set_shadow(
        self, name: str, version: str, percent: float, write: Callable[[ShadowRecord], None]
    ) -> ShadowTraffic:
        """Lets a loaded version score a share of the requests; see `ShadowTraffic`.

        Args:
            name: Name of the model.
            version: A loaded version of it.
            percent: Share of the requests, above 0, at most 100.
            write: Takes what was scored, such as a `ShadowLog`.

        Raises:
            BundleError: The version is not loaded, or `percent` is no share.
        """
        if not 0 < percent <= 100:
            raise BundleError(f"percent must be above 0 and at most 100, got {percent}")
        with self._lock:
            shadow = ShadowTraffic(lambda: self.active(name), self._loaded(name, version), percent, write)
            self.clear_shadow(name)
            self._shadows = {**self._shadows, name: shadow}
        return shadow

    def clear_shadow(self, name: str) -> None:
        """Ends the shadow of a model, if it has one."""
        with self._lock:
            shadow = self._shadows.get(name)
            self._shadows = {key: one for key, one in self._shadows.items() if key != name}
        if shadow is not None:
            shadow.close()

    def close(self) -> None:
        """Waits for what is being loaded or scored beside, and takes no more; what waits is not begun."""
        self._loader.shutdown(cancel_futures=True)
        for name in list(self._shadows):
            self.clear_shadow(name)

    def _keep(self, model: ServedModel) -> ServedModel | None:
        """Adds a version; returns the one of the same name and version that it replaces."""
        with self._lock:
            versions = self._versions.setdefault(model.name, _Versions())
            before = versions.models.get(model.version)
            versions.models[model.version] = model
            return before

    def _let_go(self, model: ServedModel, before: ServedModel | None) -> None:
        with self._lock:
            del self._versions[model.name].models[model.version]
            if before is not None:
                self._versions[model.name].models[model.version] = before

    def _loaded(self, name: str, version: str) -> ServedModel:
        versions = self._versions.get(name)
        if versions is None or version not in versions.models:
            known = [] if versions is None else list(versions.models)
            raise BundleError(
                f"version {version!r} of the model {name!r} is not loaded; loaded are "
                f"{', '.join(known) or 'none'}.{nearest(version, known)}"
            )
        return versions.models[version]

    def _state(self, model: ServedModel, version: str) -> State:
        active = self._active.get(model.name)
        if active is model:
            return "active"
        return "previous" if self._versions[model.name].previous == version else "ready"
