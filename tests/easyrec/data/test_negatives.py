from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from easyrec.config.data import NegativesConfig
from easyrec.data.bound import BoundDataset
from easyrec.data.negatives import NegativeSampler, SeenItems
from easyrec.errors import ConfigError, DataError

Bind = Callable[..., BoundDataset]
KEYS = {"user": "user", "item": "item", "time": "time"}
ITEMS = [f"item-{index}" for index in range(40)]
FEATURES = {
    "user": {"type": "id"},
    "item": {"type": "id"},
    "genre": {"type": "id"},
    "price": {"type": "number", "side": "item"},
    "hour": {"type": "number"},
    "recent": {"type": "sequence", "of": "item", "max_length": 3},
}


def log() -> dict[str, Any]:
    random = np.random.default_rng(0)
    items = random.integers(0, 10, 200)
    return {
        "user": random.integers(0, 20, 200),
        "item": [ITEMS[index] for index in items],
        "time": np.arange(200),
        "price": items.astype(float),
        "hour": random.integers(0, 24, 200),
        "rating": random.integers(1, 6, 200),
    }


@pytest.fixture
def data(write: Callable[..., str], bind: Bind) -> BoundDataset:
    items = write({"item": ITEMS, "genre": [f"genre-{index % 4}" for index in range(40)]}, "items.parquet")
    return bind(
        {
            "train": write(log(), row_group_size=64),
            "keys": KEYS,
            "tables": {"item": items},
            "negatives": {"per_row": 3, "where": "rating >= 4"},
        },
        FEATURES,
        tasks={"liked": {"type": "binary", "label": "rating >= 4"}},
    )


def test_sampled_rows_are_copies_with_another_item_and_label_0(data: BoundDataset) -> None:
    real = {
        (row["user"], row["item"], row["time"]): row
        for chunk in data.train.chunks()
        for row in chunk.to_pylist()
    }
    rows = [row for chunk in data.train.chunks(seed=1) for row in chunk.to_pylist()]
    liked = {(user, item) for (user, item, _), row in real.items() if row["label/liked"] == 1}
    added = 0
    for index, row in enumerate(rows):
        if (row["user"], row["item"], row["time"]) in real:
            origin = row
            assert row == real[row["user"], row["item"], row["time"]]
            following = rows[index + 1 : index + 4]
            sampled = len(following) == 3 and all(other["time"] == row["time"] for other in following)
            assert sampled == (row["label/liked"] == 1)
            continue
        added += 1
        assert row["label/liked"] == 0
        assert {name: row[name] for name in ("user", "time", "hour", "recent")} == {
            name: origin[name] for name in ("user", "time", "hour", "recent")
        }
        assert row["item"] != origin["item"]
        assert (row["user"], row["item"]) not in liked
        index = ITEMS.index(row["item"])
        assert row["genre"] == f"genre-{index % 4}"  # from the item table
        assert row["price"] == (float(index) if index < 10 else None)  # as last seen in the interactions
    assert added == 3 * sum(row["label/liked"] == 1 for row in real.values())
    assert data.report.as_dict()["train"]["negatives"] == added
    for _ in data.train.chunks(columns=["item"]):  # a later look at the same rows
        pass
    assert data.report.as_dict()["train"]["negatives"] == added


def test_the_same_seed_draws_the_same_rows_and_another_does_not(data: BoundDataset) -> None:
    def drawn(seed: int) -> list[Any]:
        return [row for chunk in data.train.chunks(seed=seed) for row in chunk.to_pylist()]

    assert drawn(1) == drawn(1)
    assert sorted(map(str, drawn(1))) != sorted(map(str, drawn(2)))


def test_rows_read_to_fit_or_to_evaluate_are_never_sampled(data: BoundDataset) -> None:
    assert sum(chunk.num_rows for chunk in data.train.chunks()) == 200
    assert data.report.as_dict()["train"]["negatives"] == 0


def test_without_an_item_table_the_items_of_training_are_the_catalogue(
    write: Callable[..., str], bind: Bind
) -> None:
    features = {"item": {"type": "id"}, "price": {"type": "number", "side": "item"}}
    data = bind(
        {"train": write(log()), "keys": {"item": "item"}, "negatives": {"per_row": 2}},
        features,
        tasks={"liked": {"type": "binary", "label": "rating >= 4"}},
    )
    rows = [row for chunk in data.train.chunks(seed=0) for row in chunk.to_pylist()]
    assert len(rows) == 600
    assert all(row["price"] == ITEMS.index(row["item"]) for row in rows)


def test_one_class_is_enough_where_negatives_are_sampled(write: Callable[..., str], bind: Bind) -> None:
    chosen = {"item": ["a", "b"], "label": [1, 1]}
    data = bind({"train": write(chosen), "keys": {"item": "item"}, "negatives": {}}, {"item": {"type": "id"}})
    assert sum(chunk.num_rows for chunk in data.train.chunks(seed=0)) == 10


def test_what_negatives_need_is_said(write: Callable[..., str], bind: Bind) -> None:
    path = write({"item": ["a", "a"], "label": [0, 1]})
    with pytest.raises(ConfigError, match=r"data\.negatives.*(item|key)"):
        bind({"train": path, "negatives": {}}, {"item": {"type": "id"}})
    with pytest.raises(DataError, match="a catalogue of at least 2 items, there are 1"):
        bind({"train": path, "keys": {"item": "item"}, "negatives": {}}, {"item": {"type": "id"}})
    with pytest.raises(ConfigError, match="regression"):
        bind(
            {"train": path, "keys": {"item": "item"}, "negatives": {}},
            {"item": {"type": "id"}},
            tasks={"label": {"type": "regression"}},
        )


# --------------------------------------------------------------------------------------------------------- sampler


def sampler(counts: list[int], seen: SeenItems | None = None, **options: Any) -> NegativeSampler:
    return NegativeSampler(NegativesConfig(**options), np.array(counts), seen)


def test_uniform_sampling_takes_each_item_alike() -> None:
    drawn = sampler([1, 100, 5, 0], per_row=10).draw(np.arange(4000), np.full(4000, -1), None, 0)
    assert np.abs(np.bincount(drawn) / len(drawn) - 0.25).max() < 0.01


def test_sampling_by_popularity_follows_the_power_of_the_counts() -> None:
    counts = [1, 16, 81, 0]
    drawn = sampler(counts, per_row=10, sampling="popularity", power=0.5).draw(
        np.arange(4000), np.full(4000, -1), None, 0
    )
    expected = np.sqrt(counts) / np.sqrt(counts).sum()
    assert np.abs(np.bincount(drawn, minlength=4) / len(drawn) - expected).max() < 0.01
    assert not (drawn == 3).any()


def test_neither_the_rows_item_nor_what_the_user_chose_is_drawn() -> None:
    users = pa.array(["u", "u", "v"])
    seen = SeenItems(users, np.array([0, 1, 3]), 4)
    rows = pa.array(["u", "v", "w", None] * 50)
    own = np.array([2, 0, 1, 1] * 50)
    drawn = sampler([1] * 4, seen, per_row=4).draw(np.arange(200), own, seen.find(rows), 7).reshape(-1, 4)
    assert set(drawn[0::4].ravel()) == {3}  # `u` chose 0 and 1, the row's own is 2
    assert set(drawn[1::4].ravel()) == {1, 2}
    assert set(drawn[2::4].ravel()) == set(drawn[3::4].ravel()) == {0, 2, 3}


def test_a_user_who_chose_everything_still_gets_another_item() -> None:
    seen = SeenItems(pa.array(["u"] * 3), np.array([0, 1, 2]), 3)
    drawn = sampler([1] * 3, seen, per_row=2).draw(
        np.arange(50), np.ones(50, np.int64), np.zeros(50, np.int64), 7
    )
    assert not (drawn == 1).any()
