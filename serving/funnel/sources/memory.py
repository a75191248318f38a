"""Sources that only read memory: two towers, co-occurrence, popularity, contents, trends, new and fixed items."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from easyrec.errors import ConfigError, nearest
from easyrec.export.segments import segment_key
from serving.funnel.candidates import Found, Rows, Scores
from serving.funnel.query import Query
from serving.funnel.stages import Resources, SourceConfig
from serving.models.served import ServedModel

_DAY = 86_400.0
_MOST_SEEN = 1000


class TwoTowerConfig(SourceConfig):
    """The items whose vectors are nearest to the user's, by a two-tower model."""

    type: Literal["two_tower"] = "two_tower"
    model: str | None = None
    """Name of the model; the ranking one if it has towers, else the first that has, unless given."""


class TwoTower:
    """See `TwoTowerConfig`."""

    remote: ClassVar[bool] = False

    def __init__(self, config: TwoTowerConfig, resources: Resources) -> None:
        self._config = config

    def find(self, query: Query) -> Found:
        """Nothing for somebody of whom the model knows nothing."""
        model = self._model(query)
        if not query.columns(model).known:
            return Found.nothing()
        vector = query.computed(model, model.user_vector)
        # What filters will drop makes room beforehand: the items that the user has met already.
        spare = min(len(query.person.record.seen) + len(query.recent), _MOST_SEEN)
        rows, scores = model.search(vector, self._config.n + spare)
        rows = query.rows_of(rows, model)
        kept = ~np.isin(rows, query.recent)
        return Found(rows[kept], scores[kept])

    def _model(self, query: Query) -> ServedModel:
        if self._config.model is not None:
            return named_model(query, self._config.model)
        candidates = [query.model, *query.models.values()]
        for model in candidates:
            if model.two_tower:
                return model
        raise ConfigError("the source two_tower needs a two_tower model, and none is loaded")


class ItemToItemConfig(SourceConfig):
    """The items that users of the person's latest items took, too."""

    type: Literal["item_to_item"] = "item_to_item"
    last: int = Field(10, ge=1, le=100)
    """How many of the latest items count."""
    decay: float = Field(0.85, gt=0, le=1)
    """What an item counts in proportion to the next later one."""


class ItemToItem:
    """See `ItemToItemConfig`."""

    remote: ClassVar[bool] = False

    def __init__(self, config: ItemToItemConfig, resources: Resources) -> None:
        self._config = config

    def find(self, query: Query) -> Found:
        """The neighbours of all latest items, their scores added up."""
        config = self._config
        seeds = query.recent[: config.last]
        weights = config.decay ** np.arange(len(seeds))
        rows, scores = [], []
        for seed, weight in zip(seeds, weights, strict=True):
            found, values = query.catalogue.neighbors(int(seed), config.n)
            rows.append(found)
            scores.append(values * weight)
        return added_up(rows, scores, seeds, config.n)


class ContentConfig(SourceConfig):
    """The items that are most alike to the person's latest items, new ones included."""

    type: Literal["content"] = "content"
    last: int = Field(10, ge=1, le=100)
    """How many of the latest items count."""
    decay: float = Field(0.85, gt=0, le=1)
    """What an item counts in proportion to the next later one."""


class ContentBased:
    """See `ContentConfig`."""

    remote: ClassVar[bool] = False

    def __init__(self, config: ContentConfig, resources: Resources) -> None:
        self._config = config
        self._resources = resources

    def find(self, query: Query) -> Found:
        """The items alike to all latest items, their cosines added up."""
        config, tables = self._config, self._resources.tables.of(query.model)
        seeds = query.recent[: config.last]
        content, new_items = tables.content, self._resources.new_items
        if content is None or not len(seeds):
            return Found.nothing()
        weights = config.decay ** np.arange(len(seeds))
        fresh = new_items.alike(query.model, seeds, weights)
        rows, scores = [fresh.rows], [fresh.scores]
        for seed, weight in zip(seeds, weights, strict=True):
            if seed < tables.size:
                found = np.asarray(content.neighbors[seed])
                count = int(np.count_nonzero(found >= 0))
                rows.append(found[:count].astype(np.int64))
                scores.append(np.asarray(content.scores[seed, :count]) * weight)
            else:
                near = new_items.neighbors(query.model, int(seed))
                rows.append(near.rows)
                scores.append(near.scores * weight)
        return added_up(rows, scores, seeds, config.n)


class PopularityConfig(SourceConfig):
    """What most users took lately, overall or among users with the same value of a column."""

    type: Literal["popularity"] = "popularity"
    by: str | None = None
    """A column of the user or of the context, such as `country`; overall unless given."""


class Popularity:
    """See `PopularityConfig`."""

    remote: ClassVar[bool] = False

    def __init__(self, config: PopularityConfig, resources: Resources) -> None:
        self._config = config
        self._resources = resources

    def find(self, query: Query) -> Found:
        """The segment's items; what is popular overall when the person's segment is unknown and `by` is not given."""
        tables = self._resources.tables.of(query.model)
        n, by = self._config.n, self._config.by
        if by is None:
            return Found(tables.popular.rows[:n], tables.popular.scores[:n])
        known = {column for column, _ in tables.segments}
        if by not in known:
            raise ConfigError(f"the bundle does not know what is popular by {by!r}.{nearest(by, known)}")
        value = query.columns().values.get(by, query.person.context.get(by))
        segment = None if value is None else tables.segments.get((by, segment_key(value)))
        return Found.nothing() if segment is None else Found(segment.rows[:n], segment.scores[:n])


class TrendingConfig(SourceConfig):
    """What is taken right now: events of the last hours, each counting less as time goes by."""

    type: Literal["trending"] = "trending"
    least: float = Field(3.0, ge=0)
    """What an item's faded count must reach; so a single person makes no trend."""


class Trending:
    """See `TrendingConfig`."""

    remote: ClassVar[bool] = False

    def __init__(self, config: TrendingConfig, resources: Resources) -> None:
        self._config = config
        self._trends = resources.trends

    def find(self, query: Query) -> Found:
        """The items with the most events, faded."""
        keys, counts = self._trends.top(self._config.n)
        enough = sum(count >= self._config.least for count in counts)  # they fall
        if not enough:
            return Found.nothing()
        keys, counts = keys[:enough], counts[:enough]
        return Found(query.catalogue.rows(keys), np.asarray(counts, np.float32))


class FreshConfig(SourceConfig):
    """New items: those put through the API lately for the first time, in random order, so that each gets its chance."""

    type: Literal["fresh"] = "fresh"
    days: float = Field(7.0, gt=0)
    """For how long an item is new."""
    pool: int = Field(1000, ge=1)
    """From how many of the newest items it draws."""


class Fresh:
    """See `FreshConfig`."""

    remote: ClassVar[bool] = False

    def __init__(self, config: FreshConfig, resources: Resources) -> None:
        self._config = config
        self._new_items = resources.new_items

    def find(self, query: Query) -> Found:
        """A sample; the probability of being drawn is the score."""
        config = self._config
        newest = self._new_items.newest(query.model, config.pool, query.now - config.days * _DAY)
        if not len(newest.rows):
            return newest
        drawn = query.random.permutation(len(newest.rows))[: config.n]
        chance = min(1.0, config.n / len(newest.rows))
        query.trace.notes["fresh_propensity"] = chance
        return Found(newest.rows[drawn], np.full(len(drawn), chance, np.float32))


class FixedConfig(SourceConfig):
    """Items that are listed here, in this order."""

    type: Literal["fixed"] = "fixed"
    items: tuple[str | int, ...] = Field(min_length=1)
    """Their keys."""


class Fixed:
    """See `FixedConfig`."""

    remote: ClassVar[bool] = False

    def __init__(self, config: FixedConfig, resources: Resources) -> None:
        self._config = config

    def find(self, query: Query) -> Found:
        """The items that the catalogue knows."""
        rows = query.catalogue.rows(self._config.items)
        return Found(rows, -np.arange(len(rows), dtype=np.float32))


def named_model(query: Query, name: str) -> ServedModel:
    """A model of the request by its name."""
    model = query.models.get(name)
    if model is None:
        raise ConfigError(f"there is no model {name!r}.{nearest(name, query.models)}")
    return model


def added_up(rows: list[Rows], scores: list[Scores], without: Rows, n: int) -> Found:
    """Items of several lists, each with the sum of its scores, best first, those in `without` left out."""
    row = np.concatenate([np.empty(0, np.int64), *rows])
    score = np.concatenate([np.empty(0, np.float32), *scores])
    distinct, place = np.unique(row, return_inverse=True)
    total = np.bincount(place, score, len(distinct))
    kept = np.flatnonzero((distinct >= 0) & ~np.isin(distinct, without))
    order = kept[np.argsort(-total[kept], kind="stable")][:n]
    return Found(distinct[order], total[order].astype(np.float32))


MEMBERS = (
    ("two_tower", TwoTowerConfig, TwoTower),
    ("item_to_item", ItemToItemConfig, ItemToItem),
    ("content", ContentConfig, ContentBased),
    ("popularity", PopularityConfig, Popularity),
    ("trending", TrendingConfig, Trending),
    ("fresh", FreshConfig, Fresh),
    ("fixed", FixedConfig, Fixed),
)
