"""The configuration of a scene: which stages, in which order, with which parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from easyrec.config.base import OneOf, StrictModel
from easyrec.errors import nearest
from serving.funnel import filters, reranking, sources
from serving.funnel.candidates import MAX_SOURCES
from serving.funnel.ranking import RankingConfig
from serving.funnel.reranking.rules import PinConfig, SlotsConfig
from serving.funnel.sources.memory import FixedConfig
from serving.funnel.stages import (
    FILTERS,
    RERANKERS,
    SOURCES,
    FilterConfig,
    RerankerConfig,
    SourceConfig,
)

FAMILIES = (sources, filters, reranking)
"""The packages whose import registers the built-in members."""

SourceField = Annotated[SourceConfig, OneOf(SOURCES)]
FilterField = Annotated[FilterConfig, OneOf(FILTERS)]
RerankerField = Annotated[RerankerConfig, OneOf(RERANKERS)]

_PINNED = "pin"


class MergeConfig(StrictModel):
    """How the candidates of the sources become one list."""

    by: Literal["rank", "priority", "round_robin"] = "rank"
    """`rank` fuses reciprocal ranks, `priority` takes source after source, `round_robin` one of each in turn."""
    limit: int = Field(500, ge=1, le=10_000)
    """At most this many are ranked."""


class SceneConfig(StrictModel):
    """A funnel of named stages."""

    n: int = Field(20, ge=1, le=1000)
    """How many items are returned unless the request says."""
    deadline_ms: float = Field(500.0, gt=0)
    """When the time is up, stages that can be left out are."""
    sources: dict[str, SourceField]
    """Where candidates come from, by name."""
    merge: MergeConfig = MergeConfig()
    """How they become one list."""
    filters: dict[str, FilterField] = Field(default_factory=dict)
    """What is dropped, by name, in order."""
    ranking: RankingConfig = RankingConfig()
    """How they are ranked."""
    reranking: dict[str, RerankerField] = Field(default_factory=dict)
    """Variety and business rules, by name, in order."""
    fallback: dict[str, SourceField] = Field(default_factory=lambda: {"popular": _popular()})
    """Sources asked one after the other while the list is short; their items follow the ranked ones."""
    properties: tuple[str, ...] = ()
    """Columns of the item table that are returned unless the request says."""

    @field_validator("sources")
    @classmethod
    def _some(cls, value: dict[str, SourceConfig]) -> dict[str, SourceConfig]:
        if not value:
            raise ValueError("a scene needs a source, such as `popular: {type: popularity}`")
        if len(value) >= MAX_SOURCES:
            raise ValueError(f"a scene has at most {MAX_SOURCES - 1} sources, got {len(value)}")
        return value

    @model_validator(mode="after")
    def _known_sources(self) -> SceneConfig:
        known = {*self.sources, *self.fallback}
        for name, config in self.reranking.items():
            for source in config.sources if isinstance(config, SlotsConfig) else ():
                if source not in known:
                    raise ValueError(
                        f"reranking.{name}: the scene has no source {source!r}.{nearest(source, known)}"
                    )
        return self

    @property
    def all_sources(self) -> dict[str, SourceConfig]:
        """The sources that run, and one that brings pinned items."""
        found = {name: config for name, config in self.sources.items() if config.enabled}
        pinned = [
            item
            for config in self.reranking.values()
            if isinstance(config, PinConfig) and config.enabled
            for item in config.items.values()
        ]
        if pinned and _PINNED not in found:
            found[_PINNED] = FixedConfig(items=tuple(pinned), n=len(pinned), weight=1000)
        return found

    def with_overrides(self, overrides: Mapping[str, Any]) -> SceneConfig:
        """The scene with some parameters set, as an experiment does.

        Args:
            overrides: By dotted path, such as `{"sources.towers.n": 300}`.

        Raises:
            ValueError: A path leads nowhere, or a value is not allowed (pydantic's ValidationError).
        """
        values = self.model_dump(mode="json")
        for path, value in overrides.items():
            target: Any = values
            *parents, last = path.split(".")
            for step in parents:
                if not isinstance(target, dict) or not isinstance(target.get(step), dict):
                    known = target if isinstance(target, dict) else ()
                    raise ValueError(f"the scene has no {path!r}.{nearest(step, known)}")
                target = target[step]
            target[last] = value
        return type(self).model_validate(values)


def _popular() -> SourceConfig:
    return SOURCES["popularity"].config.model_validate({"type": "popularity", "n": 500})
