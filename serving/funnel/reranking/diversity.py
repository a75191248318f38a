"""Variety: maximal marginal relevance, and a determinantal point process."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from serving.funnel.candidates import Candidates
from serving.funnel.query import Query
from serving.funnel.reranking.similarity import CONTENT, similarity
from serving.funnel.stages import RerankerConfig, Resources

Floats = npt.NDArray[np.floating]


class DiversityConfig(RerankerConfig):
    """Options of re-rankers that make for variety."""

    by: str = CONTENT
    """What items are alike by: `content`, `vectors` of a two-tower model, or a column of the item table."""
    separator: str | None = Field(None, min_length=1)
    """What stands between several values of that column."""
    top: int = Field(100, ge=2, le=1000)
    """How many of the best candidates it orders."""


class MmrConfig(DiversityConfig):
    """Maximal marginal relevance (Carbonell and Goldstein 1998): each next item trades score against likeness."""

    type: Literal["mmr"] = "mmr"
    relevance: float = Field(0.7, ge=0, le=1)
    """The weight of the score; 1 changes nothing."""


class Mmr:
    """See `MmrConfig`."""

    def __init__(self, config: MmrConfig, resources: Resources) -> None:
        self._config = config
        self._resources = resources

    def rerank(self, query: Query, ranked: Candidates) -> Candidates:
        """The best `top` candidates in an order of marginal relevance, the others behind them."""
        config = self._config
        head = ranked.take(slice(0, config.top))
        alike = similarity(query, head.rows, config.by, config.separator, self._resources)
        order = mmr(scaled(head.scores), alike, config.relevance, query.n)
        return _front(ranked, order, len(head))


class DppConfig(DiversityConfig):
    """A determinantal point process (Chen, Zhang and Zhou 2018): the most probable set of good and different items."""

    type: Literal["dpp"] = "dpp"
    relevance: float = Field(0.7, ge=0, lt=1)
    """The weight of the score; near 1 it changes little."""


class Dpp:
    """See `DppConfig`."""

    def __init__(self, config: DppConfig, resources: Resources) -> None:
        self._config = config
        self._resources = resources

    def rerank(self, query: Query, ranked: Candidates) -> Candidates:
        """The best `top` candidates in the order of greedy inference, the others behind them."""
        config = self._config
        head = ranked.take(slice(0, config.top))
        alike = similarity(query, head.rows, config.by, config.separator, self._resources)
        quality = np.exp(config.relevance / (2 * (1 - config.relevance)) * scaled(head.scores))
        order = greedy_dpp(quality[:, None] * alike * quality[None, :], query.n)
        return _front(ranked, order, len(head))


def scaled(scores: Floats) -> npt.NDArray[np.float64]:
    """Scores between 0 and 1; all 1 when they are equal."""
    values = np.asarray(scores, np.float64)
    values = np.where(
        np.isfinite(values), values, np.nanmin(np.where(np.isfinite(values), values, np.nan), initial=0)
    )
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    return (values - low) / (high - low) if high > low else np.ones(len(values))


def mmr(scores: Floats, alike: Floats, relevance: float, n: int) -> list[int]:
    """Positions in the order of maximal marginal relevance.

    argmax over the rest of relevance × score − (1 − relevance) × largest cosine with an item chosen before.

    Args:
        scores: [M] between 0 and 1.
        alike: [M, M] cosines.
        relevance: Between 0 and 1.
        n: How many to choose.
    """
    left = np.ones(len(scores), bool)
    nearest = np.zeros(len(scores))
    chosen: list[int] = []
    while len(chosen) < min(n, len(scores)):
        margin = np.where(left, relevance * scores - (1 - relevance) * nearest, -np.inf)
        best = int(margin.argmax())
        chosen.append(best)
        left[best] = False
        nearest = np.maximum(nearest, alike[best])
    return chosen


def greedy_dpp(kernel: Floats, n: int, epsilon: float = 1e-10) -> list[int]:
    """Positions in the order of greedy MAP inference (Chen, Zhang and Zhou 2018, algorithm 1).

    Each step takes the item that enlarges the determinant of the chosen part of the kernel most. It ends early when
    nothing different is left.

    Args:
        kernel: [M, M] symmetric, positive semi-definite.
        n: How many to choose.
        epsilon: A gain below this is rounding.
    """
    gains = np.diagonal(kernel).astype(np.float64).copy()
    rows = np.zeros((min(n, len(gains)), len(gains)))
    chosen: list[int] = []
    while len(chosen) < min(n, len(gains)):
        best = int(gains.argmax())
        if gains[best] < epsilon:
            break
        row = (kernel[best] - rows[: len(chosen), best] @ rows[: len(chosen)]) / np.sqrt(gains[best])
        rows[len(chosen)] = row
        gains -= row**2
        gains[best] = -np.inf
        chosen.append(best)
    return chosen


def _front(ranked: Candidates, chosen: list[int], head: int) -> Candidates:
    """The chosen ones first, then the rest as it was."""
    rest = np.setdiff1d(np.arange(len(ranked)), chosen)
    return ranked.take(np.concatenate([np.asarray(chosen, np.int64), rest]))


MEMBERS = (("mmr", MmrConfig, Mmr), ("dpp", DppConfig, Dpp))
