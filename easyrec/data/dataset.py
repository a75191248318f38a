"""START HERE: from the `data` part of a configuration to chunks of rows with all columns that features need."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from easyrec.config.columns import ColumnInfo
from easyrec.config.data import SourceConfig
from easyrec.config.features import NumberFeature, SequenceFeature, TagsFeature
from easyrec.config.patterns import covers
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import BinaryTask, RegressionTask
from easyrec.data.bound import BoundDataset
from easyrec.data.column_types import CastError, cast, is_text, kind_of, plain, unify
from easyrec.data.join import KeyedTable, Side
from easyrec.data.report import DataReport
from easyrec.data.row_groups import Source
from easyrec.data.source import TableStream, open_source, open_stream
from easyrec.data.store import Store
from easyrec.errors import ConfigError, SchemaError, nearest


def open_dataset(config: PipelineConfig, cache: str | os.PathLike[str] | None = None) -> Dataset:
    """Opens the data of a pipeline: finds the files, infers and unifies their schemas, reads user and item tables.

    Args:
        config: The pipeline; only its `data` part is needed, its features may still hold patterns.
        cache: Folder for what is made once from the data (text files as Parquet, histories, splits); a temporary one
            unless given. A folder inside the run lets a resumed run find it again.

    Raises:
        DataError: A file is missing, empty or damaged.
        SchemaError: Files do not fit each other, or a key is missing.
    """
    return Dataset(config, Store(cache))


def peek_columns(config: PipelineConfig) -> dict[str, ColumnInfo]:
    """The columns of a pipeline's data from a look at the beginning of its files; for checking a configuration.

    Types of text files are those of the first rows; `open_dataset` reads all of them.

    Raises:
        DataError: A file is missing, empty or damaged.
        SchemaError: Files do not fit each other.
    """
    data = config.data

    def look(source: SourceConfig | None) -> TableStream | None:
        return None if source is None else open_stream(source, data.storage_options, data.on_error)

    train = open_stream(data.train, data.storage_options, data.on_error)
    types = _common_types(config, train, look(data.eval))
    _refuse_unread(config, train)
    tables: dict[Side, pa.Schema] = {}
    sides: tuple[tuple[Side, SourceConfig | None], ...] = (
        ("user", data.tables.user),
        ("item", data.tables.item),
    )
    for side, source in sides:
        stream = look(source)
        if stream is not None:
            filled = _filled(config, stream.schema)
            tables[side] = pa.schema(
                [column.with_type(filled.get(column.name, column.type)) for column in stream.schema]
            )
    return _describe(pa.schema(list(types.items())), tables)


class Dataset:
    """Files, schemas and joined tables of a pipeline.

    Attributes:
        config: The pipeline.
        report: What was read and what was left out.
        fingerprints: Of the files of `train`, `eval`, `user table` and `item table`, their sizes and times of change.
        columns: All columns that features, labels and expressions may use.
    """

    def __init__(self, config: PipelineConfig, store: Store) -> None:
        self.config = config
        self.report = DataReport()
        self.fingerprints: dict[str, str] = {}
        self.store = store
        data = config.data
        train = self._open("train", data.train)
        evaluation = None if data.eval is None else self._open("eval", data.eval)
        _refuse_unread(config, train)
        types = _common_types(self.config, train, evaluation)
        self.train = train.with_types(types)
        self.eval = None if evaluation is None else evaluation.with_types(types)
        self.tables: dict[Side, KeyedTable] = {}
        self._join("user", data.tables.user, data.keys.user)
        self._join("item", data.tables.item, data.keys.item)
        tables = {side: joined.table.schema for side, joined in self.tables.items()}
        self.columns = _describe(self.train.schema, tables)
        for name in self.columns:
            if name in self.train.schema.names and _meant_as_number(config, name):
                self.columns[name] = replace(self.columns[name], stray=_first_stray(self.train, name))

    def bind(self, resolved: PipelineConfig) -> BoundDataset:
        """The rows as a resolved configuration needs them: labels, weights, histories, split, negatives.

        Raises:
            SchemaError: A column that is needed is not there.
            DataError: A split or the negatives cannot be made from these data.
        """
        return BoundDataset(
            resolved, self.train, self.eval, self.tables, self.columns, self.store, self.report
        )

    def _open(self, name: str, config: SourceConfig) -> Source:
        source = open_source(config, self.store, self.config.data.storage_options, self.config.data.on_error)
        self.report.faults[name] = source.faults
        self.fingerprints[name if name in ("train", "eval") else f"{name} table"] = source.fingerprint
        return source

    def _join(self, side: Side, config: SourceConfig | None, key: str | None) -> None:
        if config is None:
            return
        if key is None:
            raise ConfigError(f"data.tables.{side} is joined on `data.keys.{side}`, which is not given")
        if key not in self.train.schema.names:
            raise SchemaError(
                f"the training data ({self.train.name}) have no column {key!r}, which `data.keys.{side}` names."
                f"{nearest(key, self.train.schema.names)}"
            )
        source = self._open(side, config)
        source = source.with_types(_filled(self.config, source.schema))
        table = KeyedTable(side, key, source, self.train.schema.field(key).type)
        self.tables[side] = table
        self.report.note(table.note)
        if table.null_keys:
            self.report.note(f"{table.null_keys} rows of the {side} table have no key and are left out")
        hidden = [name for name in table.columns() if name in self.train.schema.names]
        if hidden:
            self.report.note(
                f"columns in the interactions and in the {side} table: {', '.join(hidden)}; "
                "those of the interactions are used"
            )


def _refuse_unread(config: PipelineConfig, table: _Described) -> None:
    """Raises a SchemaError where a key, a label or a feature names a column whose type is not read."""
    keys = config.data.keys
    named = [key for key in (keys.user, keys.item, keys.time) if key is not None]
    named += [task.label or name for name, task in config.tasks.items()]
    named += [column for name, feature in config.features.items() for column in feature.columns(name)]
    for column in named:
        if column in table.unread and column not in table.schema.names:
            raise SchemaError(
                f"the column {column!r} of {table.name} holds {table.unread[column]}, which is not read: values, "
                "lists of them, and maps to numbers are. Flatten it when the file is written"
            )


def _meant_as_number(config: PipelineConfig, column: str) -> bool:
    """Whether a feature or a label reads a column as numbers, as far as the unresolved configuration says."""
    features = (
        isinstance(feature, NumberFeature)
        and (column in feature.columns(name) or (feature.column is None and covers(name, column)))
        for name, feature in config.features.items()
    )
    labels = (
        column == (task.label or name) and isinstance(task, (BinaryTask, RegressionTask))
        for name, task in config.tasks.items()
    )
    return any(features) or any(labels)


def _strays(
    column: str, kind: pa.DataType, other: pa.DataType, train: _Described, evaluation: _Described
) -> str:
    """Where the first value is that makes text of what are numbers in the other part."""
    if not any(pa.types.is_integer(one) or pa.types.is_floating(one) for one in (kind, other)):
        return ""
    text = train if is_text(kind) else evaluation
    stray = _first_stray(text, column) if isinstance(text, Source) else ""
    return f"; the first that is no number is {stray}" if stray else ""


def _first_stray(source: Source, column: str) -> str:
    """The first value of a column of text that is no number, and where; "" when it is no text, or all are numbers."""
    if not is_text(source.schema.field(column).type):
        return ""
    for group in source.groups:
        for start, table in source.read(group, [column]):
            try:
                cast(plain(table.column(0)), pa.float64())
            except CastError as error:
                return f"{error.value!r} in {source.place(start + error.row)}"
    return ""


class _Described(Protocol):
    """A table whose columns are known."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def unread(self) -> Mapping[str, pa.DataType]: ...


def _common_types(
    config: PipelineConfig, train: _Described, evaluation: _Described | None
) -> dict[str, pa.DataType]:
    """One type for each column of training and evaluation data."""
    types: dict[str, pa.DataType] = {}
    for column in train.schema:
        kind = column.type
        if evaluation is not None and column.name in evaluation.schema.names:
            other = evaluation.schema.field(column.name).type
            both = unify(kind, other)
            if both is None:
                raise SchemaError(
                    f"column {column.name!r} is {kind_of(kind)} in the training data ({train.name}), but "
                    f"{kind_of(other)} in the evaluation data ({evaluation.name}); state one type under "
                    f"`columns:`, such as `{column.name}: string`{_strays(column.name, kind, other, train, evaluation)}"
                )
            kind = both
        types[column.name] = kind
    return {**types, **_filled(config, pa.schema(list(types.items())))}


def _filled(config: PipelineConfig, schema: pa.Schema) -> dict[str, pa.DataType]:
    """Types of the columns without a single value, as the features that read them want them."""
    return {column.name: _wanted(config, column.name) for column in schema if pa.types.is_null(column.type)}


def _wanted(config: PipelineConfig, column: str) -> pa.DataType:
    for name, feature in config.features.items():
        pattern = feature.column is None and covers(name, column)
        if column not in feature.columns(name) and not pattern:
            continue
        if isinstance(feature, NumberFeature):
            return pa.float64()
        if isinstance(feature, (TagsFeature, SequenceFeature)) and feature.separator is None:
            return pa.list_(pa.string())
    return pa.string()


def _describe(schema: pa.Schema, tables: Mapping[Side, pa.Schema]) -> dict[str, ColumnInfo]:
    columns = {
        column.name: ColumnInfo(column.name, kind_of(column.type), "interactions") for column in schema
    }
    for side, table in tables.items():
        for column in table:
            columns.setdefault(column.name, ColumnInfo(column.name, kind_of(column.type), side))
    return columns
