"""All features of a pipeline together: fitted in one pass, then the same function in training and in serving."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from numpy.typing import NDArray

from easyrec.config.columns import ColumnInfo
from easyrec.config.features import FEATURES
from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import BundleError, ConfigError, DataError, SchemaError, nearest
from easyrec.features import state as stored
from easyrec.features.assemble import assemble, to_batch
from easyrec.features.base import Counter, Transform
from easyrec.features.batch import EncodedBatch
from easyrec.features.checks import check_tables, join_inputs
from easyrec.features.columns import Column, check_aligned, read
from easyrec.features.coverage import Coverage
from easyrec.features.graph import Layout, Traced, column_layout, column_tensors, trace
from easyrec.features.outputs import FeatureSchema
from easyrec.features.scope import Scope
from easyrec.features.tensors import Tensor
from easyrec.features.vocabulary import SharedVocabularies, TableVocabulary, Vocabulary, VocabularyFitter


class Encoder:
    """Raw columns to the encoded batch that `easyrec.features.outputs` describes.

    Args:
        config: The resolved pipeline: no patterns, every side known.
        columns: The columns that features may use, or just their kinds by name.

    Raises:
        ConfigError: Features contradict each other.
        SchemaError: A feature names a column that is not there or of a kind it cannot use.

    Example:
        encoder = Encoder(config, columns).fit(chunks)
        encoder.save("run/features")
        batch = encoder.encode_table(table)
    """

    def __init__(self, config: PipelineConfig, columns: Mapping[str, ColumnInfo | str]) -> None:
        self.config = config
        self.kinds = {name: info if isinstance(info, str) else info.kind for name, info in columns.items()}
        self.vocabularies = SharedVocabularies()
        self.transforms: dict[str, Transform[Any]] = {
            name: FEATURES.build(feature, self._scope(name, feature.side or "context"))
            for name, feature in config.features.items()
        }
        self.inputs = join_inputs(self.transforms)
        self._coverage = Coverage()
        self._traced: dict[tuple[Any, ...], Any] = {}
        self._lock = threading.Lock()
        self._schema: FeatureSchema | None = None

    def _scope(self, name: str, side: Any) -> Scope:
        return Scope(name, side, self.kinds, self.config.features, self.config.embedding, self.vocabularies)

    # Fitting and storing

    def fit_columns(self, counts: Iterable[str] = ()) -> list[str]:
        """The columns that `fit` reads; empty when there is nothing to learn from the data."""
        features = [*self._fitters(counts)]
        specs = [spec for name in features for spec in self.transforms[name].inputs()]
        return list(dict.fromkeys(spec.column for spec in specs))

    def fit(self, chunks: Iterable[pa.Table], counts: Iterable[str] = ()) -> Encoder:
        """Learns vocabularies and statistics in one pass over the training data.

        Args:
            chunks: Tables that hold `fit_columns`; not read when there is nothing to learn.
            counts: Features whose ids are counted although their vocabulary needs no fitting (`counts`).

        Returns:
            The encoder itself.

        Raises:
            DataError: There are no rows, a feature is missing throughout, or a value cannot be used.
        """
        for transform in self.transforms.values():
            transform.warnings = []
        fitters = list(self._fitters(counts).values())
        rows = 0
        with ThreadPoolExecutor(max(1, min(len(fitters), os.cpu_count() or 1))) as threads:
            for chunk in chunks if fitters else ():
                rows += chunk.num_rows
                _all(threads, [partial(fitter.update, chunk) for fitter in fitters])
            if fitters and rows == 0:
                raise DataError("the training data have no rows, so there is nothing to fit the features on")
            for fitter in fitters:
                fitter.finish()
            _all(threads, [vocabulary.fit for vocabulary in self.vocabularies])
        self._fitted()
        return self

    def save(self, directory: str | Path) -> None:
        """Writes vocabularies (Parquet) and statistics (JSON) into a folder, made if need be."""
        tables = {v.table: v for v in self.vocabularies if isinstance(v, TableVocabulary)}
        state = stored.FittedState(
            {spec.column: self.kinds[spec.column] for spec in self.inputs.values()},
            {
                name: {"type": one.config.type, "state": one.state(), "warnings": one.warnings}
                for name, one in self.transforms.items()
            },
            {table: (vocabulary.values, vocabulary.value_counts) for table, vocabulary in tables.items()},
            {
                feature: by_id
                for vocabulary in self.vocabularies
                for feature, by_id in vocabulary.counts.items()
            },
            self.fingerprint,
        )
        stored.save(Path(directory), state)

    @classmethod
    def load(cls, config: PipelineConfig, directory: str | Path) -> Encoder:
        """The encoder that was saved in a folder.

        Raises:
            BundleError: A file is missing, damaged, or of other features than `config` describes.
        """
        state = stored.load(Path(directory))
        encoder = cls(config, state.columns)
        fitted = {name: feature["type"] for name, feature in state.features.items()}
        configured = {name: transform.config.type for name, transform in encoder.transforms.items()}
        if fitted != configured:
            wrong = sorted(name for name, _ in fitted.items() ^ configured.items())
            raise BundleError(
                f"the features in {directory} are not those of the configuration; these differ: "
                f"{', '.join(dict.fromkeys(wrong))}"
            )
        for name, transform in encoder.transforms.items():
            transform.load_state(state.features[name]["state"])
            transform.warnings = list(state.features[name]["warnings"])
        for table, (values, counts) in state.vocabularies.items():
            vocabulary = encoder.vocabularies.get(table)
            if not isinstance(vocabulary, TableVocabulary):
                raise BundleError(
                    f"the features in {directory} hold values of the table {table!r}, which no feature uses"
                )
            vocabulary.set_values(values, counts)
        for feature, by_id in state.counts.items():
            encoder.vocabulary(feature).counts[feature] = by_id
        encoder._fitted()
        if encoder.fingerprint != state.fingerprint:
            raise BundleError(
                f"the features in {directory} do not have the fingerprint that was stored with them: a file was "
                "changed, or they were fitted with other options"
            )
        return encoder

    def _fitters(self, counts: Iterable[str]) -> dict[str, Any]:
        wanted = set(counts)
        for name in wanted - self.transforms.keys():
            raise ConfigError(f"counts: {name!r} is not a feature.{nearest(name, self.transforms)}")
        fitters = {}
        for name, transform in self.transforms.items():
            fitter = transform.fitter()
            only_counts = isinstance(fitter, VocabularyFitter) and not fitter.vocabulary.needs_fit
            if fitter is not None and (name in wanted or not only_counts):
                fitters[name] = fitter
        return fitters

    def _fitted(self) -> None:
        schema = FeatureSchema(tuple(transform.output() for transform in self.transforms.values()))
        check_tables(schema.ids)
        self._schema = schema
        self._traced = {}

    # What came of it

    @property
    def schema(self) -> FeatureSchema:
        """The outputs of all features.

        Raises:
            DataError: The encoder is not fitted yet.
        """
        if self._schema is None:
            raise DataError("the features are not fitted yet; call Encoder.fit or Encoder.load first")
        return self._schema

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides which ids and numbers come out."""
        facts = {
            "inputs": {name: [spec.kind, spec.list] for name, spec in self.inputs.items()},
            "outputs": [repr(output) for output in self.schema.outputs],
            "features": {
                name: [one.config.model_dump(mode="json"), one.state()]
                for name, one in self.transforms.items()
            },
        }
        return stored.digest(
            facts, {v.table: v.values for v in self.vocabularies if isinstance(v, TableVocabulary)}
        )

    @property
    def warnings(self) -> list[str]:
        """Sentences about what fitting met, such as a number that never changes."""
        return [warning for transform in self.transforms.values() for warning in transform.warnings]

    def vocabulary(self, feature: str) -> Vocabulary:
        """The vocabulary of a feature.

        Raises:
            SchemaError: There is no such feature, or it has no vocabulary.
        """
        if feature not in self.transforms:
            raise SchemaError(f"{feature!r} is not a feature.{nearest(feature, self.transforms)}")
        vocabulary = getattr(self.transforms[feature], "vocabulary", None)
        if vocabulary is None:
            raise SchemaError(f"the feature {feature!r} has no vocabulary")
        return vocabulary

    def counts(self, feature: str) -> NDArray[np.int64]:
        """[rows] how often each id of a feature occurs in the training data.

        Raises:
            SchemaError: They were not counted; see the argument `counts` of `fit`.
        """
        counts = self.vocabulary(feature).counts
        if feature not in counts:
            raise SchemaError(f"the ids of {feature!r} were not counted; counted are {sorted(counts)}")
        return counts[feature]

    @property
    def resources(self) -> tuple[Any, ...]:
        """Lookup tables made so far; a tf.Module that exports `encode` keeps them in an attribute, after tracing."""
        return tuple(table for vocabulary in self.vocabularies for table in vocabulary.resources)

    # Encoding

    def encode(
        self, columns: Mapping[str, Tensor], features: Collection[str] | None = None
    ) -> dict[str, Tensor]:
        """Raw tensors to encoded ones, in graph operations: what the exported signatures call.

        Args:
            columns: Tensors by the names of `inputs`: [B], or lists as [B, L] padded with missing values or ragged.
            features: Encode these only, such as those of the item side; all unless given.

        Returns:
            Tensors under the keys of `easyrec.features.outputs`, for `schema` or its `select(features)`.

        Raises:
            SchemaError: An input is not among `columns`.
        """
        schema, transforms = self._selection(features)
        encoded = {}
        for name, transform in transforms.items():
            specs = transform.inputs()
            for spec in specs:
                if spec.name not in columns:
                    raise SchemaError(
                        f"feature {name!r}: the input {spec.name!r} is missing.{nearest(spec.name, columns)}"
                    )
            encoded[name] = transform.transform({spec.name: columns[spec.name] for spec in specs}, Counter())
        return assemble(schema, encoded)

    def encode_table(
        self, table: pa.Table, count: bool | Coverage = False, features: Collection[str] | None = None
    ) -> EncodedBatch:
        """The rows of a chunk, encoded; labels and weights in it are taken along. Safe to call from several threads.

        Args:
            table: Raw columns, and `label/<task>` and `weight` where there are any.
            count: Whether to add to `coverage`, or what to add to instead.
            features: Encode these only, such as those of the item side; all unless given.

        Raises:
            SchemaError: A column is missing or of a type that does not fit.
            DataError: A value cannot be used.
        """
        schema, transforms = self._selection(features)
        columns = _read(table, transforms)
        layout = tuple(column_layout(name, role, column) for (name, role), column in columns.items())
        with tf.device("CPU:0"):  # text and look-ups live there; the batch is shuffled in main memory next
            run, counters = self._function(transforms, layout, count is not False)
            outputs, totals = run(
                *(tensor for column in columns.values() for tensor in column_tensors(column))
            )
        if count is not False:
            coverage = self._coverage if count is True else count
            coverage.add(table.num_rows, dict(zip(counters, totals.numpy().tolist(), strict=True)))
        return to_batch(schema, outputs, table.num_rows, self._labels(table))

    def coverage(self) -> dict[str, dict[str, float]]:
        """What `encode_table(count=True)` met so far, by feature: rows, counters, `missing_share`, `unseen_share`."""
        return self._coverage.report()

    def coverage_warnings(self) -> list[str]:
        """Sentences about features that were missing or unseen in all rows counted."""
        return self._coverage.warnings()

    def reset_coverage(self, report: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Begins counting anew, or from what an earlier `coverage` said."""
        self._coverage = Coverage()
        if report is not None:
            self._coverage.add_report(report)

    def _selection(self, features: Collection[str] | None) -> tuple[FeatureSchema, dict[str, Transform[Any]]]:
        if features is None:
            return self.schema, self.transforms
        for name in features:
            if name not in self.transforms:
                raise SchemaError(f"{name!r} is not a feature.{nearest(name, self.transforms)}")
        if not features:
            raise SchemaError("no feature was selected, so there is nothing to encode")
        chosen = {name: transform for name, transform in self.transforms.items() if name in features}
        return self.schema.select(set(features)), chosen

    def _function(self, transforms: Mapping[str, Transform[Any]], layout: Layout, count: bool) -> Traced:
        key = (tuple(transforms), layout, count)
        with self._lock:
            if key not in self._traced:
                self._traced[key] = trace(transforms, layout, count)
            return self._traced[key]

    def _labels(self, table: pa.Table) -> dict[str, NDArray[np.float32]]:
        names = [f"label/{task}" for task in self.config.tasks]
        if self.config.data.weight is not None:
            names.append("weight")
        return {
            name: np.asarray(table.column(name).cast(pa.float32()).combine_chunks())
            for name in names
            if name in table.column_names
        }


def _all(threads: Executor, calls: Iterable[Callable[[], None]]) -> None:
    """Runs the calls at the same time (Arrow and TensorFlow let go of the interpreter); the first error is raised."""
    for future in [threads.submit(call) for call in calls]:
        future.result()


def _read(table: pa.Table, transforms: Mapping[str, Transform[Any]]) -> dict[tuple[str, str], Column]:
    """Each input once, by name and role."""
    columns: dict[tuple[str, str], Column] = {}
    for transform in transforms.values():
        specs = transform.inputs()
        for spec in specs:
            key = (spec.name, spec.role)
            if key not in columns:
                columns[key] = read(table, spec)
        by_name = {spec.name: columns[spec.name, spec.role] for spec in specs}
        for spec in specs:
            if spec.aligned_with is not None:
                check_aligned(by_name[spec.name], by_name[spec.aligned_with], spec)
    return columns
