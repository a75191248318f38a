"""What every model must do, on a small schema that has every kind of feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from easyrec.config.pipeline import PipelineConfig
from easyrec.features.outputs import FeatureSchema, IdsOutput, NumbersOutput
from easyrec.models.network import Network, build_network

DIM = 4
ROWS = {"user_id": 12, "movie_id": 15, "city": 5, "genres": 6, "queries": 7}

SCHEMA = FeatureSchema(
    (
        IdsOutput("user_id", "user_id", ROWS["user_id"], DIM, "user"),
        IdsOutput("movie_id", "movie_id", ROWS["movie_id"], DIM, "item"),
        NumbersOutput("age", 1, "user"),
        IdsOutput("genres", "genres", ROWS["genres"], DIM, "item", pooling="mean", weighted=True),
        IdsOutput("city", "city", ROWS["city"], DIM, "context"),
        NumbersOutput("rating", 1, "item", embedding_dim=DIM),
        IdsOutput(
            "recent", "movie_id", ROWS["movie_id"], DIM, "user", pooling="mean", sequence=True, max_length=3
        ),
        IdsOutput(
            "queries", "queries", ROWS["queries"], DIM, "user", pooling="max", sequence=True, max_length=2
        ),
        NumbersOutput("prices", 2, "item"),
    )
)

FEATURES: dict[str, Any] = {
    "user_id": {"type": "id", "side": "user"},
    "movie_id": {"type": "id", "side": "item"},
    "age": {"type": "number", "side": "user"},
    "genres": {"type": "tags", "side": "item", "weight_separator": ":"},
    "city": {"type": "id", "side": "context"},
    "rating": {"type": "number", "side": "item", "embedding": True},
    "recent": {"type": "sequence", "side": "user", "of": "movie_id", "max_length": 3},
    "queries": {"type": "sequence", "side": "user", "pooling": "max", "max_length": 2},
    "prices": {"type": "number", "side": "item"},
}

ITEM_COUNTS = np.arange(ROWS["movie_id"])

# Small enough to be quick, and every option of a model's own at work.
OPTIONS: dict[str, dict[str, Any]] = {
    "dlrm": {"bottom_units": [4]},
    "din": {"attention_units": [4], "attention_activation": "prelu"},
    "mmoe": {"experts": 2, "tower_units": [4]},
    "two_tower": {"output_dim": 4},
}


def config(model: str | Mapping[str, Any], tasks: Mapping[str, Any], **sections: Any) -> PipelineConfig:
    """A pipeline with all features of `SCHEMA`.

    Args:
        model: Name of the model, which then has `OPTIONS`; or its whole configuration.
        tasks: Tasks by name.
        **sections: Other sections of the configuration.
    """
    if isinstance(model, str):
        model = {"type": model, **OPTIONS.get(model, {})}
        if model["type"] not in ("logistic_regression", "fm"):
            model = {"hidden_units": [8, 4], **model}
    return PipelineConfig.model_validate(
        {
            "data": {"train": "train.parquet", "keys": {"user": "user_id", "item": "movie_id"}},
            "features": FEATURES,
            "model": model,
            "tasks": tasks,
            **sections,
        }
    )


def network(model: str | Mapping[str, Any], tasks: Mapping[str, Any], **sections: Any) -> Network:
    """A network over `SCHEMA`."""
    return build_network(config(model, tasks, **sections), SCHEMA, ITEM_COUNTS)


def batch(rows: int, seed: int = 0, schema: FeatureSchema = SCHEMA) -> dict[str, np.ndarray]:
    """Random encoded rows; multi-valued features are empty in some, and labels can be learned from the ids."""
    rng = np.random.default_rng(seed)
    ids = [rng.integers(0, output.rows, rows) for output in schema.single_ids]
    arrays: dict[str, np.ndarray] = {
        "ids": np.reshape(ids, [len(ids), rows]).T.astype(np.int32),
        "numbers": rng.normal(size=(rows, sum(output.width for output in schema.numbers))).astype(np.float32),
    }
    for output in schema.multi_ids:
        lengths = rng.integers(0, (output.max_length or 3) + 1, rows)
        arrays[f"{output.feature}/row_lengths"] = lengths.astype(np.int32)
        arrays[f"{output.feature}/values"] = rng.integers(0, output.rows, lengths.sum()).astype(np.int32)
        if output.weighted:
            arrays[f"{output.feature}/weights"] = rng.uniform(0.5, 2, lengths.sum()).astype(np.float32)
    taste = arrays["ids"].sum(axis=1) + (arrays["numbers"][:, :1] > 0).sum(axis=1)
    arrays["label/liked"] = (taste % 2).astype(np.float32)
    arrays["label/rating"] = (taste % 5).astype(np.float32)
    arrays["label/kind"] = (taste % 3).astype(np.float32)
    return arrays


def tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
    """Arrays as tensors."""
    return {key: tf.constant(value) for key, value in arrays.items()}


def side_only(arrays: Mapping[str, np.ndarray], sides: tuple[str, ...]) -> dict[str, tf.Tensor]:
    """The part of a batch that belongs to some sides, as their features alone would be encoded."""
    ids = [output.side in sides for output in SCHEMA.single_ids]
    numbers = [output.side in sides for output in SCHEMA.numbers for _ in range(output.width)]
    part = {"ids": arrays["ids"][:, ids], "numbers": arrays["numbers"][:, numbers]}
    for output in SCHEMA.multi_ids:
        if output.side in sides:
            part.update({key: value for key, value in arrays.items() if key.startswith(f"{output.feature}/")})
    return tensors(part)


def gradients(
    net: Network, data: Mapping[str, tf.Tensor], training: bool = True
) -> tuple[float, list[tf.Tensor], dict[str, tf.Tensor]]:
    """Loss, gradients of the dense weights, and gradients of the tables' rows as dense arrays [rows, D]."""
    lookup = net.embeddings.lookup(data)
    rows = net.embeddings.gather(lookup)
    weights = [weight.value for weight in net.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(rows)
        logits = net.dense(net.embeddings.expand(rows, lookup), data["numbers"], training=training)
        loss, _ = net.loss(logits, data)
    of_weights, of_rows = tape.gradient(loss, [weights, rows])
    tables = {}
    for key, gradient in of_rows.items():
        unique = lookup[f"unique/{key.split('/')[1]}"]
        shape = [net.embeddings.tables[key].rows, rows[key].shape[1]]
        tables[key] = None if gradient is None else tf.scatter_nd(unique[:, None], gradient, shape)
    return float(loss), of_weights, tables


def train(net: Network, data: Mapping[str, tf.Tensor], steps: int) -> list[float]:
    """Losses of gradient steps on one batch, Adam on all weights and rows."""
    optimizer = keras.optimizers.Adam(0.02)
    optimizer.build(net.trainable_variables)
    losses = []
    for _ in range(steps):
        loss, of_weights, of_tables = gradients(net, data)
        losses.append(loss)
        optimizer.apply(of_weights, net.trainable_variables)
        for key, gradient in of_tables.items():
            shard = net.embeddings.tables[key].shards[0]
            shard.assign_sub(0.5 * gradient)
    return losses


def state(net: Network) -> dict[str, np.ndarray]:
    """All weights of a network, tables included."""
    dense = {name: variable.numpy() for name, variable in net.named_variables().items()}
    return {**dense, **{key: table.read() for key, table in net.embeddings.tables.items()}}


def restore(net: Network, arrays: Mapping[str, np.ndarray]) -> None:
    """Gives a network the weights of another."""
    for name, variable in net.named_variables().items():
        variable.assign(arrays[name])
    for key, table in net.embeddings.tables.items():
        table.write(0, arrays[key])


def spread(net: Network, seed: int = 0) -> Network:
    """Fills every weight with random values, so that no term is hidden by a zero."""
    rng = np.random.default_rng(seed)
    for variable in net.trainable_variables:
        variable.assign(rng.normal(scale=0.5, size=variable.shape))
    for table in net.embeddings.tables.values():
        table.write(0, rng.normal(scale=0.5, size=(table.rows, table.dim)).astype(np.float32))
    return net
