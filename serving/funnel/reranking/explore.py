"""A position for exploration: now and then another item stands there, and its probability is known."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt

from evaluation.abtest.hashing import drawer
from serving.funnel.candidates import Candidates
from serving.funnel.query import Query
from serving.funnel.stages import RerankerConfig, Resources

NOTE = "exploration"
"""Where the trace notes what was drawn."""


class ExploreConfig(RerankerConfig):
    """Fills one position with a random item of those that follow, with a small probability, which is logged.

    Only such logs tell what another ranker would have earned: see `evaluation.off_policy`.
    """

    type: Literal["explore"] = "explore"
    position: PositiveInt = 5
    """Which position, from 1."""
    epsilon: float = Field(0.1, gt=0, le=1)
    """How often it is drawn."""
    pool: PositiveInt = 50
    """How many items are drawn from: the one that stands there and those after it."""


class Explore:
    """See `ExploreConfig`."""

    def __init__(self, config: ExploreConfig, resources: Resources) -> None:
        self._config = config
        self._draw = drawer("explore")

    def rerank(self, query: Query, ranked: Candidates) -> Candidates:
        """With the drawn item in the position; the same request draws the same item again."""
        place = self._config.position - 1
        pool = min(self._config.pool, len(ranked) - place)
        if pool < 1 or place >= query.n:
            return ranked
        number = self._draw(query.trace.request_id)
        share = self._config.epsilon
        # The upper half of the bits decides whether, the lower half what; so the two do not depend on each other.
        explores = (number >> 32) < share * 2**32
        chosen = ((number & 0xFFFFFFFF) * pool) >> 32 if explores else 0
        query.trace.notes[NOTE] = {
            "item": str(query.catalogue.ids.take(ranked.rows[place + chosen : place + chosen + 1])[0]),
            "position": place + 1,
            "propensity": share / pool + (1 - share if chosen == 0 else 0.0),
        }
        order = np.arange(len(ranked))
        order[[place, place + chosen]] = order[[place + chosen, place]]
        return ranked.take(order)


MEMBERS = (("explore", ExploreConfig, Explore),)
