"""Users without history and items nobody took in training, judged apart: where models of ids know nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.arrays import SparseRows
from evaluation.interactions import Interactions
from evaluation.metrics.metric import MetricAtK
from evaluation.metrics.ranking import RankedLists
from evaluation.model_draws import ModelDraws
from evaluation.uncertainty import Estimate


@dataclass(frozen=True)
class Apart:
    """Ranking metrics of a part of what was judged.

    Attributes:
        meaning: What the part is, in words.
        n_users: Number of users it has.
        models: Estimates by model and metric.
    """

    meaning: str
    n_users: int
    models: Mapping[str, Mapping[str, Estimate]]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "meaning": self.meaning,
            "n_users": self.n_users,
            "models": {
                model: {name: one.to_dict() for name, one in table.items()}
                for model, table in self.models.items()
            },
        }


def cold_parts(
    lists: Mapping[str, RankedLists],
    relevant: SparseRows,
    interactions: Interactions,
    columns: Sequence[MetricAtK],
    resamples: int,
    seed: int,
    level: float,
) -> dict[str, Apart]:
    """Split what was judged by what training knew.

    Args:
        lists: Ranked lists by model, of the same users.
        relevant: CSR [all users, items] of what counts as relevant.
        interactions: What users took in training.
        columns: Metrics with a value a user.
        resamples: Number of bootstrap resamples; 0 for no intervals.
        seed: Their seed.
        level: Confidence level.

    Returns:
        "cold users", "warm users" and "cold items" as far as there are any of both kinds.
    """
    if not columns:
        return {}
    users = next(iter(lists.values())).users
    has_history = np.isin(users, interactions.users)
    known_items = np.zeros(int(relevant.shape[1]))
    known_items[interactions.items] = 1.0
    of_cold_items = relevant.multiply(1 - known_items[None, :]).tocsr()
    parts: dict[str, tuple[str, dict[str, RankedLists]]] = {}
    if (~has_history).any() and has_history.any():
        for name, meaning, kept in (
            ("cold users", "users who took nothing in training", ~has_history),
            ("warm users", "users who took something in training", has_history),
        ):
            parts[name] = (
                meaning,
                {
                    model: RankedLists.of_items(one.items[kept], relevant, users[kept])
                    for model, one in lists.items()
                },
            )
    if of_cold_items.count_nonzero():
        parts["cold items"] = (
            "only items that nobody took in training count as relevant",
            {model: RankedLists.of_items(one.items, of_cold_items, users) for model, one in lists.items()},
        )
    return {
        name: Apart(
            meaning,
            next(iter(some.values())).n_users,
            ModelDraws.of(some, columns, resamples, seed).estimates(level),
        )
        for name, (meaning, some) in parts.items()
    }
