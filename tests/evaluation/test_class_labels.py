"""Classes of text find their score columns."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, precision_recall_fscore_support

from evaluation import DataError, MetricError, TaskColumns, compare, evaluate, evaluate_slices, infer_task


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    shares = generator.dirichlet([1, 1, 1], 200)
    label = np.array([generator.choice(3, p=row) for row in shares])
    frame = pd.DataFrame(shares, columns=["p_cat", "p_dog", "p_cow"])
    frame["number"] = label
    frame["kind"] = np.array(["cat", "dog", "cow"])[label]
    frame["stars"] = label + 1
    frame["group"] = generator.integers(0, 2, 200)
    return frame


COLUMNS = ("p_cat", "p_dog", "p_cow")


@pytest.mark.parametrize(
    ("label", "columns", "classes"),
    [
        ("kind", COLUMNS, None),
        ("kind", ("cat", "dog", "cow"), None),
        ("kind", ("cat.p", "dog.p", "cow.p"), None),
        ("kind", ("score cat (7)", "score dog (7)", "score cow (7)"), None),
        ("kind", ("p_c_cat", "p_c_dog", "p_c_cow"), None),
        ("kind", ("a", "b", "c"), ["cat", "dog", "cow"]),
        ("stars", COLUMNS, [1, 2, 3]),
        ("stars", COLUMNS, ["1", "2", "3"]),
        ("number", COLUMNS, None),
    ],
)
def test_classes_are_found_by_name(table, label, columns, classes):
    named = table.rename(columns=dict(zip(COLUMNS, columns, strict=True)))
    tasks = {"kind": infer_task(named, label, columns, classes)}
    found = evaluate(named, tasks=tasks, intervals=False)["kind"]
    assert found.type == "multiclass"
    assert found.metrics["log_loss"].value == pytest.approx(log_loss(table["number"], table[list(COLUMNS)]))


def test_a_column_of_lists_needs_their_names(table):
    lists = table.assign(p=table[list(COLUMNS)].to_numpy().tolist())
    task = TaskColumns("multiclass", "kind", "p", ["cat", "dog", "cow"])
    value = evaluate(lists, tasks={"kind": task}, intervals=False).value("log_loss")
    assert value == pytest.approx(log_loss(table["number"], table[list(COLUMNS)]))
    four = TaskColumns("multiclass", "kind", "p", ["cat", "dog", "cow", "ox"])
    with pytest.raises(DataError, match="3 scores a row but 4 classes"):
        evaluate(lists, tasks={"kind": four})
    with pytest.raises(DataError, match=r"label '...' .* is none of the classes.*classes="):
        evaluate(lists, tasks={"kind": TaskColumns("multiclass", "kind", "p")})


def test_what_classes_begin_with_is_no_part_of_their_columns_names(table):
    two = table[table["kind"] != "dog"].rename(columns={"p_cat": "p_cat_7", "p_cow": "p_cow_7"})
    task = infer_task(two, "kind", ["p_cat_7", "p_cow_7"])
    assert evaluate(two, tasks={"kind": task}, metrics=["accuracy"], intervals=False).value("accuracy") > 0.5


def test_comparisons_and_slices_take_them_too(table):
    task = {"kind": infer_task(table, "kind", COLUMNS)}
    assert (
        compare(table, table, tasks=task, resamples=40).metrics["kind/accuracy"].paired.difference.value == 0
    )
    sliced = evaluate_slices(table, ["group"], tasks=task, resamples=40)
    assert [one.n_rows for one in sliced.slices] == table["group"].value_counts().sort_index().tolist()


@pytest.mark.parametrize(
    ("change", "classes", "message"),
    [
        ({"kind": ["cut"] + ["cow"] * 199}, None, r"label 'cut' in row 0 .* the classes; did you mean 'cat'"),
        ({"kind": None}, ["cat", "dog", "cow"], "label has a missing value in row"),
        ({}, ["cat", "dog"], "3 score columns but 2 classes"),
        ({}, ["cat", "dog", "dog"], "classes has a class twice"),
        ({}, ["cat", "dog", "ox"], r"label 'cow' .* is none of the classes"),
    ],
)
def test_labels_that_are_no_class(table, change, classes, message):
    with pytest.raises(DataError, match=message):
        evaluate(table.assign(**change), tasks={"kind": TaskColumns("multiclass", "kind", COLUMNS, classes)})


def test_how_each_class_fares(table):
    weight = np.random.default_rng(1).random(200)
    task = TaskColumns("multiclass", "kind", COLUMNS)
    found = evaluate(table.assign(w=weight), tasks={"kind": task}, weight="w", intervals=False)["kind"]
    names = np.array(["cat", "dog", "cow"])
    predicted = names[table[list(COLUMNS)].to_numpy().argmax(axis=1)]
    rates = precision_recall_fscore_support(table["kind"], predicted, labels=names, sample_weight=weight)
    for one, precision, recall, f1, rows in zip(found.classes, *rates, strict=True):
        assert (one.precision, one.recall, one.f1) == pytest.approx((precision, recall, f1))
        assert one.rows == pytest.approx(rows)
        mine = (table["kind"] == one.name) & (predicted != one.name)
        wrong = pd.Series(weight[mine]).groupby(predicted[mine]).sum()
        assert one.taken_for == wrong.idxmax()
        assert one.predicted == pytest.approx(weight[predicted == one.name].sum())
    assert [one.name for one in found.classes] == ["cat", "dog", "cow"]
    assert "most often taken for" in evaluate(table, tasks={"kind": task}, intervals=False).to_markdown()
    numbers = TaskColumns("multiclass", "number", COLUMNS)
    plain = evaluate(table, tasks={"n": numbers}, intervals=False)["n"].classes
    assert [one.name for one in plain] == ["cat", "dog", "cow"]
    lists = table.assign(p=table[list(COLUMNS)].to_numpy().tolist(), number=0)
    plain = evaluate(lists, tasks={"n": TaskColumns("multiclass", "number", "p")}, intervals=False)[
        "n"
    ].classes
    assert [one.name for one in plain] == ["0", "1", "2"]
    assert np.isnan(plain[1].recall)
    assert plain[1].to_dict()["recall"] is None
    assert plain[1].taken_for == ""


def test_label_and_score_are_two_columns():
    frame = pd.DataFrame({"label": [0, 1, 1], "score": [0.1, 0.2, 0.3]})
    with pytest.raises(DataError, match="as its label and as its score"):
        evaluate(frame, tasks={"label": TaskColumns("binary", "label", "label")})
    with pytest.raises(MetricError, match="needs probabilities"):
        evaluate(frame.assign(score=[-1, 2, 3]), metrics=["brier"])


def test_two_labels_that_are_not_0_and_1_are_pointed_out():
    frame = pd.DataFrame({"label": [-1, 1, 1], "score": [0.1, 0.2, 0.3]})
    [note] = evaluate(frame, intervals=False)["label"].notes
    assert note.startswith("Labels are -1 and 1 only, and were judged as numbers.")
