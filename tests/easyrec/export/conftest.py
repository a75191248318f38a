"""A tiny pipeline with every feature type, on both sides, and rows that are hard to encode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf

from easyrec.config.pipeline import PipelineConfig
from easyrec.export.bundle import Bundle, load
from easyrec.export.write import write_bundle
from easyrec.features.encoder import Encoder
from easyrec.models.network import Network, build_network

USERS, ITEMS = 6, 9

FEATURES: dict[str, Any] = {
    "user_id": {"type": "id", "side": "user"},
    "age": {"type": "number", "side": "user", "embedding": True},
    "device": {"type": "id", "column": "device kind", "side": "context", "vocabulary": {"buckets": 7}},
    "recent": {"type": "sequence", "side": "user", "of": "movie_id", "max_length": 4},
    "movie_id": {"type": "id", "side": "item"},
    "genres": {"type": "tags", "side": "item", "separator": "|", "max_length": 3},
    "keywords": {"type": "tags", "side": "item", "weights": "keyword_weights", "pooling": "sum"},
    "year": {"type": "number", "side": "item", "buckets": 3},
}
CROSS: dict[str, Any] = {
    "user x movie": {"type": "cross", "side": "context", "of": ["device kind", "movie_id"], "buckets": 11}
}
FEW = ("user_id", "age", "recent", "movie_id", "genres")
EVERY = (*FEATURES, *CROSS)
KINDS = {
    "user_id": "int",
    "age": "float",
    "device kind": "string",
    "recent": "list<string>",
    "movie_id": "string",
    "genres": "string",
    "keywords": "list<string>",
    "keyword_weights": "list<float>",
    "year": "int",
}
ITEM_COLUMNS = ("movie_id", "genres", "keywords", "keyword_weights", "year", "title")
USER_COLUMNS = ("user_id", "age", "recent")


def item_table() -> pa.Table:
    """The catalogue; item 0 has nothing but its key."""
    words = [[f"w{n}" for n in range(item)] for item in range(ITEMS)]
    return pa.table(
        {
            "movie_id": [f"m{item}" for item in range(ITEMS)],
            "genres": pa.array([None, *("|".join(f"g{n}" for n in range(item)) for item in range(1, ITEMS))]),
            "keywords": pa.array([None, *words[1:]], pa.list_(pa.string())),
            "keyword_weights": pa.array([[0.5] * len(word) for word in words], pa.list_(pa.float32())),
            "year": pa.array([None, *range(1990, 1989 + ITEMS)], pa.int64()),
            "title": [f"Movie {item}" for item in range(ITEMS)],
        }
    )


def user_table() -> pa.Table:
    """The users as of the end of training; user 0 has no past."""
    return pa.table(
        {
            "user_id": pa.array(range(100, 100 + USERS)),
            "age": pa.array([None, *(20.0 + user for user in range(1, USERS))], pa.float32()),
            "recent": pa.array(
                [[f"m{n}" for n in range(user)] for user in range(USERS)], pa.list_(pa.string())
            ),
            "device kind": pa.array(["phone", "web", None, "tv", "phone", "web"]),
            "seen": pa.array(
                [[f"m{n}" for n in range(user)] for user in range(USERS)], pa.list_(pa.string())
            ),
        }
    )


def interactions() -> pa.Table:
    """What users took: user n the items before n, later ones later."""
    pairs = [(user, item) for user in range(USERS) for item in range(user)]
    return pa.table(
        {
            "user_id": [100 + user for user, _ in pairs],
            "movie_id": [f"m{item}" for _, item in pairs],
            "time": [1_700_000_000 + item for _, item in pairs],
        }
    )


def raw_rows() -> pa.Table:
    """Rows with missing, unseen, empty and over-long values: each user with each item, and some unknown ones."""
    users = user_table().take(np.repeat(np.arange(USERS), ITEMS)).drop_columns("seen")
    items = item_table().take(np.tile(np.arange(ITEMS), USERS)).drop_columns("title")
    rows = users
    for name in items.column_names:
        rows = rows.append_column(name, items[name])
    edge = pa.Table.from_pylist(
        [
            dict.fromkeys(KINDS),
            {"user_id": -5, "age": float("nan"), "device kind": "", "recent": [], "movie_id": "new", "genres": "|| |",
             "keywords": [], "keyword_weights": [], "year": 1},
            {"user_id": 2**62, "age": float("inf"), "device kind": "é", "recent": [None, "", "m1", "x"] * 3,
             "movie_id": "", "genres": "g1|" * 50, "keywords": ["w1", None, "?"] * 9,
             "keyword_weights": [1.0, 2.0, None] * 9, "year": -(2**62)},
        ],
        schema=rows.schema,
    )  # fmt: skip
    return pa.concat_tables([rows, edge]).combine_chunks()


def configuration(model: Any, tasks: Any = None, features: Any = None) -> PipelineConfig:
    """A resolved configuration."""
    if tasks is None:
        retrieval = isinstance(model, dict) and model["type"] == "two_tower"
        tasks = {"liked": {"type": "retrieval" if retrieval else "binary"}}
    return PipelineConfig.model_validate(
        {
            "name": "films",
            "data": {
                "train": "train.parquet",
                "keys": {"user": "user_id", "item": "movie_id", "time": "time"},
            },
            "features": FEATURES if features is None else features,
            "model": model,
            "tasks": tasks,
            "embedding": {"dim": 4, "initializer": {"type": "normal", "scale": 0.5}},
        }
    )


@dataclass(frozen=True)
class Trained:
    """What an export needs."""

    config: PipelineConfig
    encoder: Encoder
    network: Network

    def scores(self, rows: pa.Table) -> dict[str, npt.NDArray[Any]]:
        """Predictions on the path that training takes."""
        batch = {
            name: tf.constant(array) for name, array in self.encoder.encode_table(rows).as_dict().items()
        }
        return {task: values.numpy() for task, values in self.network.predict(batch).items()}


@cache
def _encoder(names: tuple[str, ...]) -> Encoder:
    encoder = Encoder(configuration("fm", features=_named(names)), KINDS)
    return encoder.fit([raw_rows().slice(0, USERS * ITEMS)], counts=["movie_id"])


def _named(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: feature for name, feature in (FEATURES | CROSS).items() if name in names}


def make_trained(model: Any, tasks: Any = None, every: bool = False) -> Trained:
    """A network with random weights, of a model, tasks and few or all features."""
    names = EVERY if every else FEW
    encoder = _encoder(names)
    config = configuration(model, tasks, _named(names))
    network = build_network(config, encoder.schema, encoder.counts("movie_id"))
    random = np.random.default_rng(0)
    for variable in network.trainable_variables:
        variable.assign(random.normal(scale=0.5, size=variable.shape))
    for table in network.embeddings.tables.values():
        table.write(0, random.normal(scale=0.5, size=(table.rows, table.dim)).astype(np.float32))
    return Trained(config, encoder, network)


@pytest.fixture(scope="session")
def train() -> Callable[..., Trained]:
    """`make_trained`."""
    return make_trained


def make_bundle(trained: Trained, target: str | Path, **changes: Any) -> None:
    """Writes a bundle of the tiny pipeline."""
    tables = {
        "examples": raw_rows(),
        "items": item_table(),
        "users": user_table(),
        "interactions": [interactions()],
    }
    options = {"metrics": {"liked/auc": 0.5, "liked/gauc": float("nan")}, "version": "7"}
    write_bundle(
        target,
        config=trained.config,
        encoder=trained.encoder,
        network=trained.network,
        **{**tables, **options, **changes},
    )


@pytest.fixture(scope="session")
def export() -> Callable[..., None]:
    """`make_bundle`."""
    return make_bundle


@dataclass(frozen=True)
class Exported:
    """A bundle in the folder of a run, and what it was made from."""

    trained: Trained
    folder: Path
    bundle: Bundle


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A DeepFM with all features."""
    trained = make_trained({"type": "deepfm", "hidden_units": [8]}, every=True)
    folder = tmp_path_factory.mktemp("films")
    make_bundle(trained, folder / "bundle")
    return Exported(trained, folder, load(folder))


@pytest.fixture(scope="session")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A two-tower model."""
    trained = make_trained({"type": "two_tower", "hidden_units": [8], "output_dim": 3})
    folder = tmp_path_factory.mktemp("towers")
    make_bundle(trained, folder / "bundle")
    return Exported(trained, folder, load(folder))


@dataclass(frozen=True)
class Tables:
    """The data of the tiny pipeline."""

    rows: pa.Table
    items: pa.Table
    users: pa.Table


@pytest.fixture(scope="session")
def tables() -> Tables:
    """Rows (each user with each item, then rows that are hard to encode), the catalogue and the users."""
    return Tables(raw_rows(), item_table(), user_table())
