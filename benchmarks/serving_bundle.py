"""A bundle to serve in benchmarks: 40 features, random weights, as many items as wanted; trained by nobody.

python benchmarks/serving_bundle.py FOLDER --items 100000 --model deepfm
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from easyrec.config.pipeline import PipelineConfig
from easyrec.export.write import write_bundle
from easyrec.features.encoder import Encoder
from easyrec.models.network import build_network

USERS, HISTORY = 20_000, 50
WORDS = {"user_word": 8, "item_word": 8}
NUMBERS = {"user_number": 8, "item_number": 8}

FEATURES: dict[str, Any] = {
    "user_id": {"type": "id", "side": "user"},
    **{f"user_word_{n}": {"type": "id", "side": "user"} for n in range(WORDS["user_word"])},
    **{f"user_number_{n}": {"type": "number", "side": "user"} for n in range(NUMBERS["user_number"])},
    "recent": {"type": "sequence", "side": "user", "of": "item_id", "max_length": HISTORY},
    "device": {"type": "id", "side": "context"},
    "hour": {"type": "id", "side": "context", "vocabulary": {"size": 24}},
    "item_id": {"type": "id", "side": "item"},
    **{f"item_word_{n}": {"type": "id", "side": "item"} for n in range(WORDS["item_word"])},
    **{f"item_number_{n}": {"type": "number", "side": "item"} for n in range(NUMBERS["item_number"])},
    "tags": {"type": "tags", "side": "item", "max_length": 5},
    "brand": {"type": "id", "side": "item", "vocabulary": {"buckets": 5000}},
    "price": {"type": "number", "side": "item", "buckets": 20},
}


def users_table(random: np.random.Generator, users: int, items: int) -> pa.Table:
    """Users with histories of up to 50 items."""
    lengths = random.integers(0, HISTORY + 1, users)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    taken = pa.array(random.integers(0, items, offsets[-1]).astype(str))
    columns: dict[str, Any] = {"user_id": np.arange(users).astype(str)}
    for n in range(WORDS["user_word"]):
        columns[f"user_word_{n}"] = random.integers(0, 100 * (n + 1), users).astype(str)
    for n in range(NUMBERS["user_number"]):
        columns[f"user_number_{n}"] = random.normal(size=users).astype(np.float32)
    columns["recent"] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), taken)
    return pa.table(columns)


def items_table(random: np.random.Generator, items: int) -> pa.Table:
    """The catalogue."""
    columns: dict[str, Any] = {"item_id": np.arange(items).astype(str)}
    for n in range(WORDS["item_word"]):
        columns[f"item_word_{n}"] = random.integers(0, 100 * (n + 1), items).astype(str)
    for n in range(NUMBERS["item_number"]):
        columns[f"item_number_{n}"] = random.normal(size=items).astype(np.float32)
    words = pa.array(random.integers(0, 2000, 3 * items).astype(str))
    columns["tags"] = pa.ListArray.from_arrays(pa.array(np.arange(0, 3 * items + 1, 3), pa.int32()), words)
    columns["brand"] = random.integers(0, 20_000, items).astype(str)
    columns["price"] = random.gamma(2.0, 10.0, items).astype(np.float32)
    columns["title"] = pa.array([f"Item {n}" for n in range(items)])
    return pa.table(columns)


def write(
    folder: Path, items: int, model: dict[str, Any], users: int = USERS, version: str = "1", **export: Any
) -> None:
    """Writes the bundle.

    Args:
        folder: Where.
        items: How many items.
        model: The `model:` section.
        users: How many users it keeps.
        version: Version of the bundle.
        **export: The `export:` section.
    """
    random = np.random.default_rng(0)
    people, catalogue = users_table(random, users, items), items_table(random, items)
    rows = max(items, users)
    pairs = people.take(pa.array(np.arange(rows) % users))
    for name, column in zip(catalogue.column_names, catalogue.columns, strict=True):
        pairs = pairs.append_column(name, column.take(pa.array(np.arange(rows) % items)))
    pairs = pairs.append_column("device", pa.array(random.choice(["phone", "tv", "web"], rows)))
    pairs = pairs.append_column("hour", pa.array(random.integers(0, 24, rows)))
    config = PipelineConfig.model_validate(
        {
            "name": "benchmark",
            "data": {"train": "train.parquet", "keys": {"user": "user_id", "item": "item_id"}},
            "features": FEATURES,
            "model": model,
            "tasks": {"liked": {"type": "retrieval" if model["type"] == "two_tower" else "binary"}},
            "export": export,
        }
    )
    kinds = {
        field.name: "float"
        if pa.types.is_floating(field.type)
        else "int"
        if pa.types.is_integer(field.type)
        else "list<string>"
        if pa.types.is_list(field.type)
        else "string"
        for field in pairs.schema
    }
    encoder = Encoder(config, kinds).fit([pairs], counts=["item_id"])
    network = build_network(config, encoder.schema, encoder.counts("item_id"))
    for variable in network.trainable_variables:
        variable.assign(random.normal(scale=0.05, size=variable.shape))
    for table in network.embeddings.tables.values():
        table.write(0, random.normal(scale=0.05, size=(table.rows, table.dim)).astype(np.float32))
    seen = pa.table(
        {"user_id": people["user_id"], "item_id": pa.array(random.integers(0, items, users).astype(str))}
    )
    write_bundle(
        folder,
        config=config,
        encoder=encoder,
        network=network,
        examples=pairs.slice(0, 1000),
        items=catalogue,
        users=people.append_column("seen", people["recent"]),
        interactions=[seen],
        version=version,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--model", default="deepfm")
    parser.add_argument("--version", default="1")
    parser.add_argument("--litert", action="store_true", help="also write the LiteRT form")
    options = parser.parse_args()
    write(
        options.folder,
        options.items,
        {"type": options.model},
        options.users,
        options.version,
        **({"litert": True} if options.litert else {}),
    )
