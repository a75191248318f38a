"""Business rules: boosts, caps, windows, slots for some sources, and pinned items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from easyrec.config.expressions import columns, parse
from serving.funnel.candidates import Candidates
from serving.funnel.filters import Condition, holds
from serving.funnel.query import Query
from serving.funnel.stages import RerankerConfig, Resources


class BoostConfig(RerankerConfig):
    """Multiplies the scores of some items; a negative score is divided, so that a boost always lifts."""

    type: Literal["boost"] = "boost"
    where: Condition
    """Which items: an expression over the item table."""
    factor: float = Field(gt=0)
    """Above 1 it lifts them, below 1 it lowers them."""


class Boost:
    """See `BoostConfig`."""

    def __init__(self, config: BoostConfig, resources: Resources) -> None:
        self._factor = config.factor
        self._expression = parse(config.where)
        self._columns = sorted(columns(self._expression))

    def rerank(self, query: Query, ranked: Candidates) -> Candidates:
        """Ordered by the new scores."""
        table = query.catalogue.table(ranked.rows, self._columns or [query.catalogue.key])
        wanted = holds(self._expression, table)
        lifted = np.where(ranked.scores >= 0, ranked.scores * self._factor, ranked.scores / self._factor)
        return ranked.with_scores(np.where(wanted, lifted, ranked.scores).astype(np.float32)).ordered()


class CapConfig(RerankerConfig):
    """At most so many items with the same value of a column; others move behind."""

    type: Literal["cap"] = "cap"
    column: str
    """The column of the item table; items without a value are not counted."""
    most: PositiveInt = 3
    """How many."""
    window: PositiveInt | None = None
    """Among so many consecutive positions; among all that are returned unless given."""


class Cap:
    """See `CapConfig`."""

    def __init__(self, config: CapConfig, resources: Resources) -> None:
        self._config = config

    def rerank(self, query: Query, ranked: Candidates) -> Candidates:
        """For each position the best item that keeps the rule, or the best there is when none does."""
        values = query.catalogue.column(self._config.column, ranked.rows).to_pylist()
        keys = [tuple(value) if isinstance(value, list) else value for value in values]
        order = spread(keys, self._config.most, self._config.window, query.n)
        rest = np.setdiff1d(np.arange(len(ranked)), order)
        return ranked.take(np.concatenate([np.asarray(order, np.int64), rest]))


class SlotsConfig(RerankerConfig):
    """Keeps positions for candidates of some sources, such as every fifth one for new items."""

    type: Literal["slots"] = "slots"
    sources: tuple[str, ...] = Field(min_length=1)
    """Names of the sources in the scene."""
    positions: tuple[PositiveInt, ...] = ()
    """The positions, from 1."""
    every: PositiveInt | None = None
    """Or every so many positions, beginning with that one."""

    @model_validator(mode="after")
    def _somewhere(self) -> SlotsConfig:
        if bool(self.positions) == (self.every is not None):
            raise ValueError("give either `positions` or `every`")
        return self


class Slots:
    """See `SlotsConfig`."""

    def __init__(self, config: SlotsConfig, resources: Resources) -> None:
        self._config = config

    def rerank(self, query: Query, ranked: Candidates) -> Candidates:
        """The best candidates of the sources at the positions; where there are no more of them, others move up."""
        config = self._config
        names: Sequence[str] = query.trace.notes.get("sources", ())
        chosen = np.zeros(len(ranked), bool)
        for number, name in enumerate(names):
            if name in config.sources:
                chosen |= ranked.from_source(number)
        last = min(query.n, len(ranked))
        slots = config.positions or range(config.every or 1, last + 1, config.every or 1)
        return placed(ranked, dict(zip(sorted(slots), np.flatnonzero(chosen).tolist(), strict=False)))


class PinConfig(RerankerConfig):
    """Puts items at positions, whatever their score."""

    type: Literal["pin"] = "pin"
    items: dict[PositiveInt, str | int] = Field(min_length=1)
    """Keys by position, from 1. They become candidates; an item that a filter drops is not pinned."""


class Pin:
    """See `PinConfig`."""

    def __init__(self, config: PinConfig, resources: Resources) -> None:
        self._items = config.items

    def rerank(self, query: Query, ranked: Candidates) -> Candidates:
        """The items at their positions, if filters have left them."""
        rows = query.catalogue.rows(self._items.values())
        places = {}
        for position, row in zip(self._items, rows, strict=True):
            found = np.flatnonzero(ranked.rows == row)
            if len(found):
                places[position] = int(found[0])
        return placed(ranked, places)


def spread(values: Sequence[object], most: int, window: int | None, n: int) -> list[int]:
    """Positions of the first `n`, each the earliest that keeps the rule, else the earliest there is.

    Args:
        values: The value of each item in order; None is not counted.
        most: How often a value may stand in a window.
        window: Consecutive positions, or None for all.
        n: How many to choose.
    """
    left = list(range(len(values)))
    chosen: list[int] = []
    counts: Counter[object] = Counter()
    while left and len(chosen) < n:
        if window is not None and len(chosen) >= window:
            counts[values[chosen[-window]]] -= 1
        place = next(
            (at for at, item in enumerate(left) if values[item] is None or counts[values[item]] < most), 0
        )
        item = left.pop(place)
        counts[values[item]] += 1
        chosen.append(item)
    return chosen


def placed(ranked: Candidates, places: dict[int, int]) -> Candidates:
    """Candidates with some at fixed positions.

    Args:
        ranked: In order.
        places: By position from 1: which candidate stands there.
    """
    fixed = {position: item for position, item in places.items() if position <= len(ranked)}
    taken = set(fixed.values())
    others = iter([item for item in range(len(ranked)) if item not in taken])
    order = [fixed[position] if position in fixed else next(others) for position in range(1, len(ranked) + 1)]
    return ranked.take(np.asarray(order, np.int64))


MEMBERS = (
    ("boost", BoostConfig, Boost),
    ("cap", CapConfig, Cap),
    ("slots", SlotsConfig, Slots),
    ("pin", PinConfig, Pin),
)
