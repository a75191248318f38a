"""A small pipeline: three ids, one tag list, one sequence and two numbers, with a label that depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from easyrec.config.pipeline import PipelineConfig
from easyrec.features.batch import EncodedBatch, RaggedColumn
from easyrec.features.outputs import FeatureSchema, IdsOutput, NumbersOutput
from easyrec.models.network import Network, build_network

SCHEMA = FeatureSchema(
    (
        IdsOutput("user", "user", 40, 4, "user"),
        IdsOutput("item", "item", 30, 4, "item"),
        IdsOutput("tags", "tags", 12, 4, "item", pooling="mean"),
        IdsOutput("recent", "item", 30, 4, "user", pooling="mean", sequence=True, max_length=5),
        NumbersOutput("age", 1, "user"),
        NumbersOutput("price", 1, "item"),
    )
)
ROWS = 200


def pipeline(model: str = "deepfm", **training: Any) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "data": {"train": "unused.parquet"},
            "features": {
                "user": {"type": "id", "side": "user"},
                "item": {"type": "id", "side": "item"},
                "tags": {"type": "tags", "side": "item"},
                "recent": {"type": "sequence", "of": "item", "max_length": 5, "side": "user"},
                "age": {"type": "number", "side": "user"},
                "price": {"type": "number", "side": "item"},
            },
            "model": {"type": model, "hidden_units": [8], "dropout": 0.2, "batch_norm": True},
            "tasks": {"liked": {"type": "binary"}},
            "training": {
                "batch_size": 32,
                "epochs": 2,
                "seed": 3,
                "log_every": 2,
                "jit_compile": False,
                **training,
            },
        }
    )


def network(config: PipelineConfig) -> Network:
    return build_network(config, SCHEMA)


def rows(seed: int = 0, count: int = ROWS) -> EncodedBatch:
    random = np.random.default_rng(seed)
    ids = np.stack([random.integers(0, 40, count), random.integers(0, 30, count)], 1).astype(np.int32)
    numbers = random.standard_normal((count, 2)).astype(np.float32)
    logit = (ids[:, 0] % 3 - 1) + (ids[:, 1] % 2) + numbers[:, 0]
    return EncodedBatch(
        count,
        {"ids": ids, "numbers": numbers, "label/liked": (logit > 0).astype(np.float32)},
        {"tags": _ragged(random, count, 3, 12), "recent": _ragged(random, count, 5, 30)},
    )


def _ragged(random: np.random.Generator, count: int, longest: int, size: int) -> RaggedColumn:
    lengths = random.integers(0, longest + 1, count).astype(np.int32)
    return RaggedColumn(random.integers(0, size, lengths.sum()).astype(np.int32), lengths)


@dataclass
class MemoryStream:
    """Batches of rows held in memory, in an order that depends on the epoch."""

    data: EncodedBatch
    batch_size: int = 32

    def batches(self, epoch: int, skip: int = 0) -> Iterator[EncodedBatch]:
        order = np.random.default_rng(epoch).permutation(self.data.num_rows)
        for start in range(skip * self.batch_size, self.data.num_rows, self.batch_size):
            yield self.data.take(order[start : start + self.batch_size])
