"""What is recommended against what is consumed, over items from popular to rare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.arrays import FloatArray
from evaluation.metrics.ranking import NO_ITEM, RankedLists

_EDGES = (0.01, 0.05, 0.2, 0.5, 1.0)
_GROUPS = ("top 1 %", "to 5 %", "to 20 %", "to 50 %", "rest")


@dataclass(frozen=True)
class PopularityShares:
    """Shares by group of items.

    Attributes:
        groups: Groups of items by popularity in training, the most popular first.
        shares: Share of each group by name: "consumed" for the training interactions, then the models.
    """

    groups: Sequence[str]
    shares: Mapping[str, Sequence[float]]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "groups": list(self.groups),
            "shares": {name: list(values) for name, values in self.shares.items()},
        }


def popularity_shares(lists: Mapping[str, RankedLists], k: int) -> PopularityShares | None:
    """Count recommendations and consumption by the popularity of the item.

    Args:
        lists: Ranked lists by model, with facts.
        k: Positions that count.

    Returns:
        The shares, or None where popularity is unknown or nothing was consumed.
    """
    facts = next(iter(lists.values())).facts
    if facts is None or facts.popularity is None or not facts.popularity.any():
        return None
    order = np.argsort(-facts.popularity, kind="stable")
    ends = np.maximum(
        np.ceil(np.array(_EDGES) * facts.n_items).astype(np.int64), np.arange(1, len(_EDGES) + 1)
    )
    group = np.empty(facts.n_items, dtype=np.int64)
    group[order] = np.minimum(np.searchsorted(ends, np.arange(facts.n_items), side="right"), len(_EDGES) - 1)

    def shares(counts: FloatArray) -> list[float]:
        total = np.bincount(group, counts, len(_GROUPS))
        return [float(share) for share in total / max(total.sum(), 1.0)]

    found = {"consumed": shares(facts.popularity)}
    for name, one in lists.items():
        items = one.items[:, :k]
        found[name] = shares(np.bincount(items[items != NO_ITEM], minlength=facts.n_items).astype(np.float64))
    return PopularityShares(_GROUPS, found)
