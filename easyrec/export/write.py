"""Writes a bundle from a trained model, and does not put it in place unless it predicts what the model predicted."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from easyrec.config.features import CrossFeature, SequenceFeature
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.schema import resolved_yaml
from easyrec.config.tasks import BinaryTask, RetrievalTask
from easyrec.export.bundle import Bundle
from easyrec.export.candidates import Candidates
from easyrec.export.content import describe_items
from easyrec.export.encoded import ENCODED, write_encoded
from easyrec.export.examples import LITERT_TOLERANCE, choose_examples, replay_examples, write_examples
from easyrec.export.folder import replace_folder
from easyrec.export.layout import CANDIDATES, CONFIG, EXAMPLES, FEATURES, LITERT, MAPPED_USERS, MODEL, USERS
from easyrec.export.litert.convert import write_litert
from easyrec.export.litert.functions import load_runtime
from easyrec.export.manifest import HistoryEntry, Manifest, text_hash, write_manifest
from easyrec.export.mapped import MappedTable
from easyrec.export.ranking import Ranker
from easyrec.export.runtime import ITEM_EMBEDDING, SCORE, Predictions
from easyrec.export.segments import segment_popularity, write_segments
from easyrec.export.signatures import ModelFunctions
from easyrec.export.statistics import item_statistics
from easyrec.export.tables import KeyedTable
from easyrec.features.encoder import Encoder
from easyrec.models.network import Network
from easyrec.versions import versions


def write_bundle(
    target: str | Path,
    *,
    config: PipelineConfig,
    encoder: Encoder,
    network: Network,
    examples: pa.Table,
    items: pa.Table | None = None,
    users: pa.Table | None = None,
    interactions: Iterable[pa.Table] = (),
    metrics: Mapping[str, float] | None = None,
    version: str | None = None,
) -> Manifest:
    """Writes a bundle in one step: until it is complete, a bundle that was there stays.

    Args:
        target: Folder of the bundle.
        config: The resolved configuration.
        encoder: The fitted features.
        network: The network with its trained weights.
        examples: Raw rows to store with their scores, spread over the table; holds all columns the features read.
        items: The catalogue, with the item key, all columns of item features and anything else worth showing.
        users: Latest columns of each user, with the user key and a column `seen`; left out if `export.users` is false.
        interactions: Tables with the keys, of rows in which the user took the item (`positive_rows`).
        metrics: Evaluation metrics to store.
        version: Version of the bundle; the time unless given.

    Returns:
        The manifest.

    Raises:
        BundleError: It cannot be written, a table lacks a column, or the written model does not agree with the trained.
    """
    keys = config.data.keys
    catalogue = None if items is None or keys.item is None else KeyedTable(items, keys.item)
    item_columns = () if catalogue is None else catalogue.table.column_names
    functions = ModelFunctions(encoder, network, item_columns, 0 if catalogue is None else len(catalogue))
    created = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    with replace_folder(Path(target)) as folder:
        yaml = resolved_yaml(config).encode()
        (folder / CONFIG).write_bytes(yaml)
        encoder.save(folder / FEATURES)
        functions.save(folder / MODEL)
        if config.export.litert:
            write_litert(folder / LITERT, functions)
        if catalogue is not None:
            candidates = _candidates(functions, catalogue, interactions, config)
            candidates.write(folder / CANDIDATES)
            if SCORE in functions.functions:
                encoded = functions.runtime().encode_items(catalogue.table)
                write_encoded(folder / CANDIDATES / ENCODED, encoded, functions.encoded)
            _describe_candidates(folder / CANDIDATES, candidates, users, config)
        if users is not None and keys.user is not None and config.export.users:
            (folder / USERS).parent.mkdir()
            known = KeyedTable(users, keys.user)
            known.write(folder / USERS)
            MappedTable.write_files(known, folder / MAPPED_USERS)
        rows = choose_examples(examples, functions.inputs, config.export.signature_examples)
        write_examples(folder / EXAMPLES, rows, _trained_scores(encoder, network, rows))
        manifest = Manifest(
            name=config.name,
            version=version or created.strftime("%Y%m%dT%H%M%SZ"),
            created=created.isoformat(),
            model=config.model.type,
            config_hash=hashlib.sha256(yaml).hexdigest(),
            schema_fingerprint=_schema_fingerprint(functions),
            libraries=versions(),
            metrics={
                name: value if math.isfinite(value) else None for name, value in (metrics or {}).items()
            },
            keys={"user": keys.user, "item": keys.item, "time": keys.time},
            inputs=functions.inputs,
            histories=_histories(config, functions, item_columns),
            encoded=functions.encoded,
            tasks=functions.tasks,
            signatures=list(functions.functions),
        )
        manifest = write_manifest(folder, manifest)
        replay_examples(folder / EXAMPLES, Bundle.load(folder, verify=False).runtime)
        if config.export.litert:
            replay_examples(folder / EXAMPLES, load_runtime(folder / LITERT, manifest), LITERT_TOLERANCE)
    return manifest


def positive_rows(chunks: Iterable[pa.Table], config: PipelineConfig) -> Iterator[pa.Table]:
    """The rows of training chunks in which a user took an item, for popularity and neighbours.

    Those are the rows whose label of the first task is above 0, if that task is binary or a retrieval, or if negatives
    were sampled; else all rows.

    Args:
        chunks: With the key columns, and `label/<task>` where there are labels.
        config: The configuration.
    """
    name, task = next(iter(config.tasks.items()))
    label = f"label/{name}"
    for chunk in chunks:
        counts = isinstance(task, (BinaryTask, RetrievalTask)) or config.data.negatives is not None
        if counts and label in chunk.column_names:
            chunk = chunk.filter(pc.greater(chunk[label], 0))
        yield chunk


def _candidates(
    functions: ModelFunctions, items: KeyedTable, interactions: Iterable[pa.Table], config: PipelineConfig
) -> Candidates:
    found = item_statistics(interactions, items, config.data.keys.user, config.data.keys.time)
    runtime = functions.runtime()
    vectors = Ranker(runtime, items).item_vectors() if runtime.has(ITEM_EMBEDDING) else None
    return Candidates(items, found.count, found.recent, found.neighbors, found.neighbor_scores, vectors)


def _describe_candidates(
    folder: Path, candidates: Candidates, users: pa.Table | None, config: PipelineConfig
) -> None:
    """Writes what items are alike by, and what is popular within groups of users."""
    key, items = config.data.keys.item, candidates.items
    described = {
        column: getattr(feature, "separator", None)
        for name, feature in config.features.items()
        if feature.side == "item" and not isinstance(feature, (SequenceFeature, CrossFeature))
        for column in feature.columns(name)[:1]
        if column != key
    }
    content = describe_items(items.table, described, candidates.recent)
    if content is not None:
        content.write(folder)
    if users is not None and config.data.keys.user is not None and config.export.users:
        grouped = [
            column
            for name, feature in config.features.items()
            if feature.side in ("user", "context")
            for column in feature.columns(name)
            if column != config.data.keys.user
        ]
        with np.errstate(invalid="ignore", divide="ignore"):
            weights = np.nan_to_num(candidates.recent / candidates.count)
        write_segments(folder, segment_popularity(users, items, dict.fromkeys(grouped), weights))


def _trained_scores(encoder: Encoder, network: Network, rows: pa.Table) -> Predictions:
    """Scores on the path that training takes, which the exported one must agree with."""
    batch = {name: tf.constant(array) for name, array in encoder.encode_table(rows).as_dict().items()}
    return {task: values.numpy() for task, values in network.predict(batch).items()}


def _histories(
    config: PipelineConfig, functions: ModelFunctions, item_columns: Collection[str]
) -> list[HistoryEntry]:
    """Inputs of sequence features that list a column of the item table."""
    found = []
    inputs = {entry.column: entry for entry in functions.inputs}
    for name, feature in config.features.items():
        if not isinstance(feature, SequenceFeature):
            continue
        of = None if feature.history is None else feature.history.of
        if of is None and feature.of is not None:
            of = config.features[feature.of].columns(feature.of)[0]
        column = feature.columns(name)[0]
        if of in item_columns and column in inputs and not inputs[column].of_item:
            found.append(HistoryEntry(name=inputs[column].name, of=str(of), separator=feature.separator))
    return found


def _schema_fingerprint(functions: ModelFunctions) -> str:
    outputs = [repr(output) for output in functions.encoder.schema.outputs]
    return text_hash({"inputs": [entry.model_dump() for entry in functions.inputs], "outputs": outputs})
