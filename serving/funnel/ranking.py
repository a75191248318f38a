"""Ranking: the model's predictions for each candidate, combined by a formula."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator

from easyrec.config.base import StrictModel
from easyrec.config.expressions import Expression, columns, parse
from easyrec.data.expressions import to_arrow
from easyrec.errors import ConfigError, nearest
from serving.funnel.candidates import Candidates, Scores
from serving.funnel.filters import condition
from serving.funnel.query import Query

SOURCES_SCORE = "merged"
POPULARITY = "popularity"
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


class RankingConfig(StrictModel):
    """How candidates are ranked."""

    model: str | None = None
    """Name of the model that ranks; the one served first unless given."""
    score: Annotated[str, AfterValidator(condition)] | None = None
    """Formula over the tasks, such as `click + 3 * purchase`; the first task unless given. A task of several classes
    stands for its expected class, `merged` for the score of the merged sources, `popularity` for recent takings."""
    enabled: bool = True
    """Rank with the model; else candidates stay in the order of the sources."""


class Ranking:
    """See `RankingConfig`."""

    def __init__(self, config: RankingConfig) -> None:
        self._formula: Expression | None = None if config.score is None else parse(config.score)

    def score(self, query: Query, candidates: Candidates) -> Scores:
        """[M] the score of each candidate; higher is better.

        Raises:
            ConfigError: The formula names what there is not.
        """
        predictions = query.model.score(query.encoded(), candidates.rows)
        values = {task: expected(array) for task, array in predictions.items()}
        if self._formula is None:
            return values[query.model.tasks[0]]
        named = columns(self._formula)
        if SOURCES_SCORE in named:
            values.setdefault(SOURCES_SCORE, candidates.scores)
        if POPULARITY in named:
            values.setdefault(POPULARITY, query.catalogue.popularity[1][candidates.rows])
        for name in named:
            if name not in values:
                known = [*predictions, SOURCES_SCORE, POPULARITY]
                raise ConfigError(f"ranking.score: the model has no task {name!r}.{nearest(name, known)}")
        table = pa.table({name: pa.array(values[name]) for name in named} or {"": pa.nulls(len(candidates))})
        scores = to_arrow(self._formula, table)
        if not any(fits(scores.type) for fits in _NUMBERS):
            raise ConfigError(f"ranking.score: expected a number, but the formula gives {scores.type}")
        return np.asarray(scores.to_numpy(zero_copy_only=False), np.float32)


def expected(values: np.ndarray) -> np.ndarray:
    """[M] of [M], or the expected class of [M, C] probabilities."""
    return values if values.ndim == 1 else np.asarray(values @ np.arange(values.shape[1]), np.float32)
