"""`evaluate_ranking`: the same users for every model, verdicts, and refusals."""

import json
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from evaluation import DataError, EvaluationError, MetricError, RankedLists, evaluate_ranking
from evaluation.ranking import evaluate_ranking as same_function
from evaluation.uncertainty import mean_estimates

N_USERS, N_ITEMS = 80, 30


@pytest.fixture(scope="module")
def world() -> dict[str, Any]:
    """Users who like items near their own place on a line; the model sees the place, popularity does not."""
    generator = np.random.default_rng(0)
    taste = generator.random(N_USERS)[:, None]
    place = np.linspace(0, 1, N_ITEMS)[None, :]
    affinity = -np.abs(taste - place)
    likes = affinity + generator.gumbel(0, 0.1, affinity.shape) > -0.12
    likes[:3] = False
    held_out = likes & (generator.random(likes.shape) < 0.5)
    seen = likes & ~held_out
    counts = np.tile(seen.sum(axis=0).astype(float), (N_USERS, 1))
    return {
        "relevant": sparse.csr_array(held_out.astype(float)),
        "seen": sparse.csr_array(seen.astype(float)),
        "models": {
            "model": lambda users: affinity[users],
            "popularity": lambda users: counts[users],
            "worst": lambda users: -affinity[users],
        },
    }


@pytest.fixture(scope="module")
def result(world: dict[str, Any]) -> Any:
    return evaluate_ranking(world["models"], world["relevant"], world["seen"])


def test_the_better_model_beats_popularity(result: Any, world: dict[str, Any]) -> None:
    assert result.by_primary() == ["model", "popularity", "worst"]
    assert result.primary == "ndcg@10"
    assert result.reference == "popularity"
    relevant = world["relevant"].toarray()
    assert result.n_users == int(relevant.any(axis=1).sum())
    assert result.n_excluded == N_USERS - result.n_users > 0
    gap = result.differences["model"]["ndcg@10"]
    assert gap.is_significant
    expected = result.value("model") - result.value("popularity")
    assert gap.difference.value == pytest.approx(expected)
    assert result.verdict("model").startswith(f"model beats popularity by {expected:.3f}"[:-1])
    assert result.verdict("worst").startswith("worst is worse than popularity by 0.")
    assert "−" not in result.verdict("worst").split("interval")[1].split(",")[0]


def test_the_strongest_baseline_is_named_beside_the_reference(result: Any, world: dict[str, Any]) -> None:
    assert result.strongest is None  # popularity is the only baseline, and the reference
    assert result.verdicts("model") == [result.verdict("model")]

    better = {**world["models"], "co_occurrence": world["models"]["model"]}
    found = evaluate_ranking(better, world["relevant"], world["seen"])
    assert found.strongest == "co_occurrence"
    assert found.from_strongest["worst"].difference.value == pytest.approx(
        found.value("worst") - found.value("co_occurrence")
    )
    first, second = found.verdicts("model")
    assert first == result.verdict("model")
    assert second.startswith(
        "Against the strongest baseline: No clear difference between model and co_occurrence in NDCG@10"
    )
    assert second in str(found)
    assert second in found.to_markdown()
    assert len(found.verdicts("co_occurrence")) == 1  # a baseline is not judged by another
    assert found.to_dict()["strongest"] == "co_occurrence"
    plain = evaluate_ranking(better, world["relevant"], world["seen"], intervals=False)
    assert plain.strongest is None


def test_lines_of_one_colour_are_told_apart(world: dict[str, Any]) -> None:
    many = {f"model {place}": world["models"]["model"] for place in range(9)}
    found = evaluate_ranking(many, world["relevant"], world["seen"], intervals=False)
    [axes] = found.plot("ndcg").axes
    looks = [(line.get_color(), line.get_linestyle()) for line in axes.lines if len(line.get_xdata()) > 1]
    assert len(looks) == len(set(looks)) == 9


def test_seen_items_are_never_recommended(result: Any, world: dict[str, Any]) -> None:
    seen = world["seen"].toarray()
    for lists in result.lists.values():
        rows = np.repeat(lists.users, lists.length)
        items = lists.items.ravel()
        assert not seen[rows[items >= 0], items[items >= 0]].any()


def test_values_are_means_of_the_per_user_values(result: Any) -> None:
    lists = result.lists["model"]
    per_user = (lists.relevance[:, :5] > 0).mean(axis=1)
    [expected] = mean_estimates(per_user[:, None])
    assert result.models["model"]["precision@5"] == expected


def test_lists_of_codes_and_ranked_lists_are_models_too(result: Any, world: dict[str, Any]) -> None:
    items = np.tile(np.arange(N_ITEMS), (N_USERS, 1))
    given = {"codes": items, "lists": result.lists["model"], "popularity": world["models"]["popularity"]}
    again = evaluate_ranking(given, world["relevant"], world["seen"])
    assert again.models["lists"] == result.models["model"]
    assert again.models["popularity"] == result.models["popularity"]
    assert again.models["codes"]["hit_rate@20"].value <= 1


def test_relevant_items_already_seen_are_counted_and_left_out(world: dict[str, Any]) -> None:
    both = world["relevant"] + world["seen"]
    result = evaluate_ranking(world["models"], both, world["seen"], intervals=False)
    assert result.n_relevant_seen == world["seen"].nnz
    clean = evaluate_ranking(world["models"], world["relevant"], world["seen"], intervals=False)
    assert result.models == clean.models
    assert "already seen do not count" in result.facts()


def test_printed_forms(result: Any) -> None:
    for text in (str(result), result.to_markdown(), result._repr_html_()):
        assert "NDCG@10" in text
        assert "minus popularity" in text
        assert "model beats popularity" in text
        assert f"{result.n_users} users" in text
    as_json = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert as_json["schema"] == "easyrec.ranking/1"
    assert as_json["verdicts"]["model"] == result.verdict("model")


def test_without_intervals_or_reference_there_is_no_comparison(world: dict[str, Any]) -> None:
    alone = evaluate_ranking({"model": world["models"]["model"]}, world["relevant"], world["seen"])
    assert alone.reference is None
    assert not alone.differences
    assert "minus" not in str(alone)
    plain = evaluate_ranking(world["models"], world["relevant"], world["seen"], intervals=False)
    assert not plain.models["model"]["ndcg@10"].has_interval
    assert "No intervals" in str(plain)


def test_equal_models_have_no_clear_difference(world: dict[str, Any]) -> None:
    model = world["models"]["popularity"]
    result = evaluate_ranking({"a": model, "b": model}, world["relevant"], world["seen"], reference="b")
    assert result.verdict("a").startswith("No clear difference between a and b in NDCG@10")


@pytest.mark.parametrize(
    ("ks", "metrics", "expected"),
    [
        ((5, 10, 20), ("ndcg", "map"), "ndcg@10"),
        ((5, 7), ("recall",), "recall@7"),
        ((20, 15), ("map",), "map@15"),
    ],
)
def test_the_primary_metric(world: dict[str, Any], ks: Any, metrics: Any, expected: str) -> None:
    result = evaluate_ranking(world["models"], world["relevant"], ks=ks, metrics=metrics, intervals=False)
    assert result.primary == expected


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"models": {}}, EvaluationError, "models is empty"),
        ({"reference": "populrity"}, EvaluationError, "did you mean 'popularity'"),
        ({"primary": "ndcg@11"}, MetricError, "did you mean 'ndcg@1"),
        ({"metrics": ["ndgc"]}, MetricError, "did you mean 'ndcg@k'"),
        ({"metrics": "ndcg"}, MetricError, "must be lists"),
        (
            {"metrics": ["ndcg@10"]},
            MetricError,
            r"say cut-offs with ks=\[10\], and metrics without, as 'ndcg'",
        ),
        ({"ks": [0]}, MetricError, "at least 1"),
        (
            {"seen": sparse.csr_array((2, 2))},
            DataError,
            r"seen has shape \(2, 2\) but relevant has \(80, 30\)",
        ),
        ({"relevant": sparse.csr_array((N_USERS, N_ITEMS))}, DataError, "nobody to judge"),
        (
            {"models": {"short": np.zeros((N_USERS, 3), int)}},
            DataError,
            "Model 'short': its lists have 3 positions",
        ),
        (
            {"models": {"few": np.zeros((3, 20), int)}},
            DataError,
            r"Model 'few': its lists must have shape \[80, K\]",
        ),
        (
            {"models": {"bad": lambda users: np.full((len(users), N_ITEMS), np.nan)}},
            DataError,
            "Model 'bad'.* NaN",
        ),
        (
            {"models": {"odd": RankedLists.of_relevance([[1.0]])}},
            DataError,
            "Model 'odd': its lists are of 1 users",
        ),
        ({"resamples": 5}, EvaluationError, "at least 40"),
    ],
)
def test_wrong_requests_are_explained(world: dict[str, Any], change: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        same_function(**{**world, **change})
