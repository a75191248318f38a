"""The network of a pipeline from its fitted features: the same one in training, on a cluster, and for export."""

from __future__ import annotations

from collections.abc import Mapping

import keras
import numpy as np

from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import RetrievalTask
from easyrec.embedding.layout import build_groups
from easyrec.features.encoder import Encoder
from easyrec.models.network import Network, build_network


def network_of(
    config: PipelineConfig,
    encoder: Encoder,
    label_moments: Mapping[str, tuple[float, float]] | None = None,
    shards: int = 1,
) -> Network:
    """The network, with fresh weights drawn from `training.seed`.

    Args:
        config: The resolved configuration.
        encoder: The fitted features.
        label_moments: As for `build_network`.
        shards: How many variables hold each embedding table; one a parameter server.
    """
    keras.utils.set_random_seed(config.training.seed)
    item = item_feature(config)
    counts = encoder.counts(item) if item is not None else None
    return build_network(config, encoder.schema, counts, label_moments, shards=shards)


def check_network(config: PipelineConfig, encoder: Encoder) -> None:
    """Builds the network over tables of one row, to see whether features, model and tasks fit each other.

    Raises:
        ConfigError: They do not.
    """
    build_groups(encoder.schema.ids)
    build_network(config, encoder.schema.short(), np.ones(1, np.int64))


def item_feature(config: PipelineConfig) -> str | None:
    """The feature of the item key whose counts a retrieval loss needs."""
    if not any(isinstance(task, RetrievalTask) for task in config.tasks.values()):
        return None
    key = config.data.keys.item
    return next(
        (
            name
            for name, feature in config.features.items()
            if feature.type == "id" and feature.columns(name) == [key]
        ),
        None,
    )
