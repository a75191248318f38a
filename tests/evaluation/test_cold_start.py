"""Cold users and cold items are judged apart."""

import numpy as np
import pytest
from scipy import sparse

from evaluation import Interactions, RankedLists, evaluate_ranking
from evaluation.metrics.ranking import recall_at_k


def test_parts_hold_who_they_say() -> None:
    generator = np.random.default_rng(0)
    taken = generator.random((30, 20)) < 0.3
    taken[:8] = False
    taken[:, 15:] = False
    relevant = (generator.random((30, 20)) < 0.3) & ~taken
    relevant[:, 0] |= ~taken[:, 0]
    users, items = np.nonzero(taken)
    scores = generator.random((30, 20))
    result = evaluate_ranking(
        {"m": lambda block: scores[block]},
        sparse.csr_array(relevant.astype(float)),
        sparse.csr_array(taken.astype(float)),
        ks=(5,),
        metrics=["recall"],
        interactions=Interactions.of(users, items, n_users=30, n_items=20),
        resamples=50,
    )
    lists = result.lists["m"]
    recall = recall_at_k(lists, 5)
    cold = ~taken[lists.users].any(axis=1)
    assert result.apart["cold users"].n_users == cold.sum()
    assert result.apart["cold users"].models["m"]["recall@5"].value == pytest.approx(recall[cold].mean())
    assert result.apart["warm users"].models["m"]["recall@5"].value == pytest.approx(recall[~cold].mean())
    only_cold = sparse.csr_array((relevant & (np.arange(20) >= 15)).astype(float))
    expected = recall_at_k(RankedLists.of_items(lists.items, only_cold, lists.users), 5).mean()
    assert result.apart["cold items"].models["m"]["recall@5"].value == pytest.approx(expected)
    assert "cold items" in str(result)
    assert result.to_dict()["apart"]["cold users"]["meaning"].startswith("users who took nothing")
