"""Classes are found in the labels, whatever they are, and labels that are none of them are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from easyrec.config.loader import parse_config
from easyrec.config.resolve import resolve
from easyrec.data.bound import BoundDataset
from easyrec.data.classes import with_classes
from easyrec.data.dataset import open_dataset
from easyrec.errors import ConfigError, DataError

Bind = Callable[..., BoundDataset]


@pytest.fixture
def bind(tmp_path: Path) -> Bind:
    """The data of a multi-class task, bound with its classes."""

    def binder(labels: list[Any], held_out: list[Any] | None = None, **task: Any) -> BoundDataset:
        data = {}
        for part, values in (("train", labels), ("eval", held_out)):
            if values is not None:
                data[part] = str(tmp_path / f"{part}.parquet")
                pd.DataFrame({"x": range(len(values)), "y": values}).to_parquet(data[part])
        config = parse_config(
            {
                "name": "classes",
                "data": data,
                "features": {"x": {"type": "number"}},
                "model": {"type": "logistic_regression"},
                "tasks": {"y": {"type": "multiclass", **task}},
            }
        )
        dataset = open_dataset(config, cache=tmp_path / "cache")
        resolved = resolve(config, dataset.columns)
        return dataset.bind(with_classes(resolved, dataset.bind(resolved)))

    return binder


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        (["b", "a", None, "ß", "a"], ["a", "b", "ß"], [1, 0, 2, 0]),
        (pd.Categorical(["b", "a", "", "a"]), ["a", "b"], [1, 0, 0]),
        ([7, -3, 7, 40], [-3, 7, 40], [1, 0, 1, 2]),
        ([3.0, 5.0, None, 3.0], [3, 5], [0, 1, 0]),
        ([0, 2, 1, 1], 3, [0, 2, 1, 1]),
        ([True, False, True], 2, [1, 0, 1]),
    ],
)
def test_classes_are_found_and_numbered(bind: Bind, labels: Any, classes: Any, numbers: list[int]) -> None:
    data = bind(labels)
    assert data.config.tasks["y"].classes == classes
    [chunk] = data.train.chunks()
    assert chunk["label/y"].to_pylist() == numbers


def test_a_class_of_the_held_out_rows_alone_is_one(bind: Bind) -> None:
    data = bind(["a", "b"], ["b", "c"])
    assert data.config.tasks["y"].classes == ["a", "b", "c"]
    assert data.eval is not None
    assert next(data.eval.chunks())["label/y"].to_pylist() == [1, 2]


def test_the_order_of_classes_may_be_given(bind: Bind) -> None:
    [chunk] = bind(["low", "high", "mid"], classes=["low", "mid", "high"]).train.chunks()
    assert chunk["label/y"].to_pylist() == [0, 2, 1]
    [chunk] = bind(["1", "3", "2"], classes=[3, 2, 1]).train.chunks()
    assert chunk["label/y"].to_pylist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("labels", "task", "message"),
    [
        (["a", "b", "z"], {"classes": ["a", "b"]}, r"'z' in .*row 3. A label is one of the classes 'a', 'b'"),
        ([1, 2, 9], {"classes": [1, 2]}, r"9 in .*row 3. A label is one of the classes 1, 2"),
        ([1.0, 2.5], {}, "the label holds 2.5, but classes are words or whole numbers"),
        (["a", "a"], {}, "all rows have the label 'a', so there is nothing to learn"),
        ([None, None], {}, "no row has a label"),
        ([f"name {row}" for row in range(30)], {}, "30 different values in 30 rows, such as 'name 0'"),
        ([row % 1500 for row in range(4000)], {}, "more than 1,000 different values"),
    ],
)
def test_labels_that_are_no_classes_are_refused(bind: Bind, labels: Any, task: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(bind(labels, **task).train.chunks())


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["a"], "at least two"),
        (["a", "a"], "'a' is given twice"),
        (1, "greater than or equal to 2|at least 2"),
    ],
)
def test_classes_must_differ(bind: Bind, classes: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bind(["a", "b"], classes=classes)


def test_text_where_classes_are_counted_says_what_to_do(bind: Bind) -> None:
    with pytest.raises(ConfigError, match="leave out `classes`, or list the words"):
        bind(["a", "b"], classes=2)
