"""Permutation importance finds what a model reads, and says nothing of what it does not."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score

from evaluation import Attribution, DataError, EvaluationError, permutation_importance


@pytest.fixture(scope="module")
def world() -> tuple[pa.Table, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    table = pa.table({name: generator.normal(size=1000) for name in ("strong", "weak", "unused")})
    chance = 1 / (1 + np.exp(-2 * table["strong"].to_numpy() - 0.5 * table["weak"].to_numpy()))
    return table, (generator.random(1000) < chance).astype(int)


def predict(table: pa.Table) -> Any:
    return 2 * table["strong"].to_numpy() + 0.5 * table["weak"].to_numpy()


EACH = {name: [name] for name in ("strong", "weak", "unused")}


def test_features_are_ordered_by_what_is_lost(world: Any) -> None:
    table, label = world
    result = permutation_importance(predict, table, label, EACH)
    assert [one.feature for one in result.features] == ["strong", "weak", "unused"]
    strong, _, unused = result.features
    assert strong.loss.low > 0.2
    assert (unused.loss.value, unused.loss.low, unused.loss.high) == (0, 0, 0)
    assert result.value == pytest.approx(roc_auc_score(label, predict(table)))
    assert "strong" in str(result)
    assert "| strong |" in result.to_markdown()
    assert "<table>" in result._repr_html_()
    assert isinstance(result.plot(), Figure)


def test_columns_of_a_feature_are_shuffled_together(world: Any) -> None:
    table, label = world
    both = permutation_importance(predict, table, label, {"all": ["strong", "weak"]}).features[0].loss
    assert both.value == pytest.approx(roc_auc_score(label, predict(table)) - 0.5, abs=0.03)


def test_a_lower_metric_is_a_loss_too(world: Any) -> None:
    table, label = world
    result = permutation_importance(
        lambda part: 1 / (1 + np.exp(-predict(part))),
        table,
        label,
        EACH,
        metric="log_loss",
        user=np.arange(1000) // 4,
    )
    assert result.features[0].loss.value > 0.1
    assert result.unit == "user"


def test_on_models_of_scikit_learn() -> None:
    data = load_breast_cancer()
    columns = [f"f{place}" for place in range(5)]
    table = pa.table(dict(zip(columns, data.data[:, :5].T, strict=True)))
    model = LogisticRegression(max_iter=5000).fit(data.data[:, :5], data.target)

    def scores(part: pa.Table) -> Any:
        return model.predict_proba(np.stack([part[name].to_numpy() for name in columns], axis=1))[:, 1]

    result = permutation_importance(scores, table, data.target, {name: [name] for name in columns}, repeats=1)
    assert max(one.loss.value for one in result.features) > 0.1
    sugar = load_diabetes()
    ridge = Ridge().fit(sugar.data, sugar.target)
    wide = pa.table({f"f{place}": sugar.data[:, place] for place in range(10)})
    judged = permutation_importance(
        lambda part: ridge.predict(np.stack([part[f"f{place}"].to_numpy() for place in range(10)], axis=1)),
        wide,
        sugar.target,
        {"body": ["f2", "f3"]},
        type_="regression",
        metric="r2",
    )
    assert judged.value == pytest.approx(r2_score(sugar.target, ridge.predict(sugar.data)))
    assert judged.features[0].loss.low > 0


def test_wrong_requests_are_explained(world: Any) -> None:
    table, label = world
    with pytest.raises(DataError, match="did you mean 'strong'"):
        permutation_importance(predict, table, label, {"x": ["strng"]})
    with pytest.raises(EvaluationError, match="at least one repeat"):
        permutation_importance(predict, table, label, {}, repeats=0)


def test_an_attribution_adds_up_and_says_what_is_left() -> None:
    one = Attribution("row 1", 1.25, 0.25, {"a": 0.75, "b": 0.2}, {"a": "x"}, "log-odds")
    assert one.gap == pytest.approx(0.05)
    assert "prediction (log-odds)" in str(one)
    assert "all others" in one.table(1).to_text()
