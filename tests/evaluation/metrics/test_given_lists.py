"""Ranking the rows of a table within users against scikit-learn and a loop."""

import numpy as np
import pytest
import sklearn.metrics as sk

from evaluation import DataError, RankedLists, ndcg, ranked_rows
from evaluation.metrics import ranking


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    user = generator.integers(0, 40, 600)
    return generator.integers(0, 4, 600) * (generator.random(600) < 0.4), generator.random(600), user


def test_ndcg_matches_scikit_learn(table: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    label, score, user = table
    for gain, grade in (("linear", label), ("exponential", 2.0**label - 1)):
        expected = [
            sk.ndcg_score([grade[user == one]], [score[user == one]], k=5)
            for one in np.unique(user)
            if label[user == one].any()
        ]
        lists = ranked_rows(label, score, user, length=5)
        assert ndcg(lists, 5, gain=gain) == pytest.approx(np.mean(expected))  # type: ignore[arg-type]


def test_every_metric_equals_that_of_full_lists(table: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    label, score, user = table
    lists = ranked_rows(label, score, user, length=4)
    users = [one for one in dict.fromkeys(user.tolist()) if label[user == one].any()]
    for place, one in enumerate(users):
        mine = label[user == one][np.argsort(-score[user == one])]
        alone = RankedLists.of_relevance(mine[None].astype(float))
        for name in ("precision_at_k", "recall_at_k", "map_at_k", "mrr_at_k", "mean_rank_at_k", "f1_at_k"):
            metric = getattr(ranking, name)
            assert metric(lists, 4)[place] == pytest.approx(metric(alone, 4)[0])
    assert lists.n_excluded == len(np.unique(user)) - len(users)


def test_the_order_of_the_table_gives_nothing_away() -> None:
    label = np.tile([1, 0, 0, 0], 2000)
    lists = ranked_rows(label, np.zeros(8000), np.repeat(np.arange(2000), 4))
    assert ranking.mrr_at_k(lists, 4).mean() == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4, abs=0.02)


def test_negative_relevance_is_refused() -> None:
    with pytest.raises(DataError, match="at least 0 to rank by, got -1"):
        ranked_rows([1, -1], [0.5, 0.4], ["a", "a"])
