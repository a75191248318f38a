"""The experiments that are live: one immutable snapshot, replaced as a whole, or kept when a new file is wrong."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from easyrec.errors import ConfigError, nearest
from evaluation.abtest import assignment as rules
from evaluation.abtest.errors import ExperimentConfigError, Problem
from evaluation.abtest.loading import Surroundings, load_assigner
from evaluation.abtest.schema import ExperimentsConfig
from serving.assignment import Assignment, Exposure, Subject
from serving.experiments.counts import UnitCounts
from serving.funnel.scene import SceneConfig
from serving.funnel.scenes import POPULAR, SIMILAR
from serving.service import Service

logger = logging.getLogger(__name__)

VISITOR = "visitor"
"""The unit of a site with anonymous visits: the user where known, else the session."""
SCENE = "scene"
"""The attribute by which a condition chooses scenes."""
_WATCH_SECONDS = 3.0


@dataclass(frozen=True)
class Snapshot:
    """What is live.

    Attributes:
        config: The configuration.
        assigner: Compiled.
        loaded: When, seconds since 1970.
        scenes: Names of the scenes in which all variants of an experiment can be served, by experiment.
        defaults: Names of the scenes that a layer's defaults fit, by layer.
        differs: Whether the variants of an experiment are different funnels, by experiment and scene.
        counts: Live counts, by experiment.
    """

    config: ExperimentsConfig
    assigner: rules.Assigner
    loaded: float
    scenes: Mapping[str, frozenset[str]]
    defaults: Mapping[str, frozenset[str]]
    differs: Mapping[tuple[str, str], bool]
    counts: Mapping[str, UnitCounts] = field(default_factory=dict)


@dataclass(frozen=True)
class Decided:
    """What was decided for a request, for the exposure log.

    Attributes:
        snapshot: Under which configuration.
        chosen: The assignments that took part.
        attributes: What conditions could ask for.
    """

    snapshot: Snapshot
    chosen: Sequence[rules.Assignment]
    attributes: Mapping[str, Any]


class LiveExperiments:
    """Assigns requests under the newest valid file; any number of threads may assign while another reloads.

    Args:
        path: The file.
        service: Whose scenes and models variants must fit.
        clock: Seconds since 1970.

    Raises:
        ConfigError: The file is refused; at the start there is no older one to keep.
    """

    def __init__(self, path: Path, service: Service, clock: Callable[[], float]) -> None:
        self.path = path
        self._service = service
        self._clock = clock
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._stamp: tuple[int, int] | None = None
        self.problems: Sequence[Problem] = ()
        self._snapshot: Snapshot | None = None
        try:
            self.reload()
        except ExperimentConfigError as error:
            raise ConfigError(str(error)) from error

    @property
    def snapshot(self) -> Snapshot:
        """What is live."""
        if self._snapshot is None:
            raise ConfigError(f"{self.path} was never loaded")
        return self._snapshot

    def reload(self) -> Snapshot:
        """Read the file again.

        Raises:
            ExperimentConfigError: It is refused; what was live stays live, and `problems` says why.
        """
        with self._lock:
            self._stamp = self._stamp_now()
            previous = self._snapshot
            try:
                config, assigner = load_assigner(
                    self.path,
                    Surroundings(previous=previous.config if previous else None, probe=self._probe),
                )
            except ExperimentConfigError as error:
                self.problems = error.problems
                raise
            self.problems = ()
            if previous is None or previous.config.hash != config.hash:
                self._snapshot = self._made(config, assigner, previous)
            return self.snapshot

    def assign(self, subject: Subject) -> Assignment:
        """See `serving.assignment.Assigner`."""
        snapshot, now = self.snapshot, self._clock()
        units = {
            "device_id": subject.context.get("device_id"),
            "user_id": subject.user_id,
            "session_id": subject.session_id,
            "request_id": subject.request_id,
            VISITOR: subject.session_id if subject.user_id is None else subject.user_id,
        }
        attributes = {**subject.context, SCENE: subject.scene}
        decision = snapshot.assigner.assign(units, attributes, now)
        overrides: dict[str, Any] = {}
        beside: dict[str, Any] | None = None
        chosen = []
        for one in decision.assignments:
            if not decision.holdout and subject.scene in snapshot.defaults.get(one.layer, ()):
                overrides.update(snapshot.config.layers[one.layer].defaults)
            if one.variant is None or subject.scene not in snapshot.scenes.get(one.experiment or "", ()):
                continue
            chosen.append(one)
            overrides.update(one.overrides)
            if one.variant == rules.INTERLEAVED:
                control, other = self._interleaved(snapshot, one.experiment or "")
                overrides.update(control)
                beside = {**(beside or {}), **other}
        shown = [Exposure(one.layer, one.experiment or "", one.variant or "") for one in chosen]
        both = None if beside is None else {**overrides, **beside}
        return Assignment(overrides, shown, both, Decided(snapshot, chosen, attributes))

    def _interleaved(self, snapshot: Snapshot, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        one = snapshot.config.experiments[name]
        other = next(variant for key, variant in one.variants.items() if key != one.control)
        return one.variants[one.control].overrides, other.overrides

    def start(self) -> None:
        """Begins to look for changes of the file."""
        self._thread = threading.Thread(target=self._watch, name="experiments", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends that."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.wait(_WATCH_SECONDS):
            if self._stamp_now() == self._stamp:
                continue
            try:
                logger.info("experiments %s are live", self.reload().config.hash)
            except ExperimentConfigError as error:
                logger.error("the experiments stay as they were: %s", error)

    def _stamp_now(self) -> tuple[int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size

    def _made(
        self, config: ExperimentsConfig, assigner: rules.Assigner, previous: Snapshot | None
    ) -> Snapshot:
        scenes, differs = {}, {}
        for name, one in config.experiments.items():
            named = _asks_for_scene(one.when)
            fitting = self._fitting([variant.overrides for variant in one.variants.values()], named=named)
            scenes[name] = frozenset(fitting)
            for scene, configs in fitting.items():
                differs[name, scene] = any(other != configs[0] for other in configs[1:])
        defaults = {
            name: frozenset(self._fitting([layer.defaults], named=False))
            for name, layer in config.layers.items()
        }
        counts = {
            name: self._kept_counts(name, config, previous) or UnitCounts() for name in config.experiments
        }
        return Snapshot(config, assigner, self._clock(), scenes, defaults, differs, counts)

    def _kept_counts(
        self, name: str, config: ExperimentsConfig, previous: Snapshot | None
    ) -> UnitCounts | None:
        old = previous.config.experiments.get(name) if previous else None
        if previous is None or old is None or old.phase != config.experiments[name].phase:
            return None
        return previous.counts.get(name)

    def _fitting(self, several: Sequence[Mapping[str, Any]], *, named: bool) -> dict[str, list[SceneConfig]]:
        """Scenes that all of some overrides fit, with what they become; lists beside an item only if asked for."""
        found = {}
        for scene in self._service.scenes.names:
            if scene in (SIMILAR, POPULAR) and not named:
                continue
            try:
                found[scene] = [self._built(scene, overrides) for overrides in several]
            except ConfigError:
                continue
        return found

    def _built(self, scene: str, overrides: Mapping[str, Any]) -> SceneConfig:
        """A scene under overrides.

        Raises:
            ConfigError: They do not fit, or name a model that is not loaded.
        """
        _, funnel = self._service.scenes.funnel(scene, overrides)
        names = self._service.hub.names()
        wanted = [funnel.config.ranking.model]
        wanted += [getattr(source, "model", None) for source in funnel.config.sources.values()]
        for name in wanted:
            if name is not None and name not in names:
                raise ConfigError(f"the model {name!r} is not loaded.{nearest(name, names)}")
        self._service.scenes.check(scene, funnel, {name: self._service.hub.active(name) for name in names})
        return funnel.config

    def _probe(self, variants: Mapping[str, Mapping[str, Any]]) -> Mapping[str, str]:
        """What is wrong with variants that fit no scene."""
        scenes = self._service.scenes.names
        problems: dict[str, str] = {}
        for key, overrides in variants.items():
            errors = []
            for scene in scenes:
                try:
                    self._built(scene, overrides)
                except ConfigError as error:
                    errors.append(str(error))
            if len(errors) == len(scenes):
                problems[key] = f"no scene can be served like this; {errors[0]}"
        if not problems and not self._fitting(list(variants.values()), named=True):
            first = next(iter(variants))
            problems[first] = (
                "no scene fits all variants together; each parameter must exist in the same scene"
            )
        return problems


def _asks_for_scene(condition: Any) -> bool:
    if isinstance(condition, Mapping):
        return SCENE in condition or any(_asks_for_scene(one) for one in condition.values())
    return isinstance(condition, list) and any(_asks_for_scene(one) for one in condition)
