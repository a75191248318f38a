"""All scenes of a service, ready to run: configured ones, those made from the bundles, and their variants."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from easyrec.errors import ConfigError, nearest
from serving.funnel.funnel import Funnel
from serving.funnel.query import Query, RequestError
from serving.funnel.scene import SceneConfig
from serving.funnel.stages import Resources
from serving.funnel.trace import Trace
from serving.models.served import ServedModel
from serving.people.person import Person

DEFAULT, SIMILAR, POPULAR = "default", "similar", "popular"
_VARIANTS = 256


class Scenes:
    """Scenes by name.

    Args:
        configured: By name; the first is the default.
        models: The models that serve; the first one ranks.
        resources: What stages share.

    Raises:
        ConfigError: A scene names a model that there is not.
    """

    def __init__(
        self, configured: Mapping[str, SceneConfig], models: Sequence[ServedModel], resources: Resources
    ) -> None:
        self._resources = resources
        made = {
            DEFAULT: default_scene(models, resources),
            SIMILAR: _similar_scene(),
            POPULAR: _popular_scene(),
        }
        configs = {**configured, **{name: one for name, one in made.items() if name not in configured}}
        self._models = [model.name for model in models]
        for scene, config in configured.items():
            _check_models(scene, config, self._models)
        self.default = next(iter(configured), DEFAULT)
        self._funnels = {name: Funnel(config, resources) for name, config in configs.items()}
        for name in self._funnels:  # which also makes the first request as fast as the others
            self.check(name, self._funnels[name], {model.name: model for model in models})
        self._variants: OrderedDict[tuple[str, str], Funnel] = OrderedDict()
        self._lock = threading.Lock()
        self.uses_served = any(funnel.uses_served for funnel in self._funnels.values())
        """Whether any scene, or a variant of one that was asked for, asks what was served."""

    @property
    def names(self) -> list[str]:
        """Names of all scenes, the default one first."""
        return [self.default, *(name for name in self._funnels if name != self.default)]

    def funnel(self, name: str | None, overrides: Mapping[str, Any] | None = None) -> tuple[str, Funnel]:
        """A scene's name and funnel.

        Args:
            name: Of the scene; the default one unless given.
            overrides: Parameters that an experiment sets, by dotted path.

        Raises:
            RequestError: There is no such scene.
            ConfigError: The overrides do not fit the scene.
        """
        name = self.default if name is None else name
        funnel = self._funnels.get(name)
        if funnel is None:
            raise RequestError(f"there is no scene {name!r}.{nearest(name, self._funnels)}")
        return (name, self._variant(name, funnel, overrides)) if overrides else (name, funnel)

    def check(self, name: str, funnel: Funnel, models: Mapping[str, ServedModel]) -> None:
        """Tries a scene, or a variant of one.

        Raises:
            ConfigError: A stage cannot work with these models.
        """
        model = models[funnel.config.ranking.model or next(iter(models))]
        query = Query(Person(), 1, model, models, Trace("check", name), 0.0, float("inf"))
        try:
            funnel.check(query)
        except ConfigError as error:
            raise ConfigError(f"scenes.{name}.{error}") from error

    def _variant(self, name: str, funnel: Funnel, overrides: Mapping[str, Any]) -> Funnel:
        key = (name, json.dumps(overrides, sort_keys=True, default=str))
        with self._lock:
            known = self._variants.get(key)
            if known is not None:
                self._variants.move_to_end(key)
                return known
        try:
            config = funnel.config.with_overrides(overrides)
            _check_models(name, config, self._models)
            made = Funnel(config, self._resources)
        except (ValidationError, ValueError) as error:
            raise ConfigError(
                f"the scene {name!r} cannot be changed to {dict(overrides)}: {error}"
            ) from error
        self.uses_served = self.uses_served or made.uses_served
        with self._lock:
            self._variants[key] = made
            while len(self._variants) > _VARIANTS:
                self._variants.popitem(last=False)
        return made


def default_scene(models: Sequence[ServedModel], resources: Resources) -> SceneConfig:
    """A funnel from what the bundles offer.

    Vectors where a model has towers, items taken or alike to the latest ones, what is popular in the person's segment
    and overall, what is trending, and new items; nothing that the person has met.
    """
    ranker = models[0]
    sources: dict[str, Any] = {}
    if any(model.two_tower for model in models):
        sources["towers"] = {"type": "two_tower", "n": 300, "weight": 2.0}
    sources["together"] = {"type": "item_to_item", "n": 150}
    tables = resources.tables.of(ranker)
    if tables.content is not None:
        sources["alike"] = {"type": "content", "n": 100}
    for column in sorted({column for column, _ in tables.segments}):
        sources[f"popular_by_{column}"] = {"type": "popularity", "n": 50, "by": column}
    sources["popular"] = {"type": "popularity", "n": 500, "weight": 0.5}
    sources["trending"] = {"type": "trending", "n": 50}
    sources["new"] = {"type": "fresh", "n": 20}
    return SceneConfig.model_validate({"sources": sources, "filters": {"seen": {"type": "seen"}}})


def _similar_scene() -> SceneConfig:
    """What goes with an item: taken by the same users, or alike."""
    return SceneConfig.model_validate(
        {
            "sources": {
                "together": {"type": "item_to_item", "n": 200},
                "alike": {"type": "content", "n": 200, "weight": 0.7},
            },
            "filters": {"seen": {"type": "seen", "soft": True}},
            "ranking": {"enabled": False},
            "fallback": {},
        }
    )


def _popular_scene() -> SceneConfig:
    """What most users took lately, in the person's segments where they are known."""
    return SceneConfig.model_validate(
        {
            "sources": {"popular": {"type": "popularity", "n": 1000}},
            "merge": {"by": "priority", "limit": 1000},
            "filters": {"seen": {"type": "seen", "soft": True}},
            "ranking": {"enabled": False},
            "fallback": {},
        }
    )


def _check_models(scene: str, config: SceneConfig, names: Sequence[str]) -> None:
    wanted = [(f"scenes.{scene}.ranking.model", config.ranking.model)]
    wanted += [
        (f"scenes.{scene}.sources.{name}.model", getattr(source, "model", None))
        for name, source in config.sources.items()
    ]
    for path, name in wanted:
        if name is not None and name not in names:
            raise ConfigError(f"{path}: there is no model {name!r}.{nearest(name, names)}")
