"""What every feature type has to keep, checked on rows that are likely to break one.

A package that adds a feature type calls `check_feature` with a table of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from easyrec.config.pipeline import PipelineConfig
from easyrec.features.batch import EncodedBatch
from easyrec.features.columns import read
from easyrec.features.encoder import Encoder
from easyrec.features.inputs import MISSING_INT, InputSpec
from easyrec.features.tensors import column_tensor

PADDING: dict[str, Any] = {"string": "", "int": MISSING_INT, "float": float("nan")}


def pipeline(features: Mapping[str, Any], **data: Any) -> PipelineConfig:
    """A pipeline with the given features and defaults for everything else."""
    return PipelineConfig.model_validate(
        {
            "data": {"train": "train.parquet", **data},
            "model": "deepfm",
            "tasks": {"y": "binary"},
            "features": features,
        }
    )


def kinds_of(table: pa.Table) -> dict[str, str]:
    """The kind of each column, as schema inference names them."""
    return {field.name: _kind(field.type) for field in table.schema}


def _kind(type_: pa.DataType) -> str:
    if pa.types.is_dictionary(type_):
        return _kind(type_.value_type)
    if pa.types.is_map(type_):
        return "map"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return f"list<{_kind(type_.value_type)}>"
    if pa.types.is_boolean(type_):
        return "bool"
    if pa.types.is_integer(type_):
        return "int"
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "float"
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        return "timestamp"
    return "string"


def padded(table: pa.Table, spec: InputSpec) -> tf.Tensor:
    """One input as the exported signatures take it: of the declared type, lists padded with missing values."""
    tensor = column_tensor(read(table, spec))
    padding = tf.constant(
        PADDING[spec.kind], {"string": tf.string, "int": tf.int64, "float": tf.float32}[spec.kind]
    )
    if isinstance(tensor, tf.RaggedTensor):
        flat = tensor.flat_values
        tensor = tensor.with_flat_values(_as(flat, spec.kind)).to_tensor(padding)
        # A client may pad further than the longest row.
        return tf.concat([tensor, tf.fill([tf.shape(tensor)[0], 2], padding)], axis=1)
    return _as(tensor, spec.kind)


def _as(tensor: tf.Tensor, kind: str) -> tf.Tensor:
    if kind == "string":
        return tensor
    if kind == "float" and tensor.dtype != tf.float32:
        return tf.where(tensor == MISSING_INT, np.nan, tf.cast(tensor, tf.float32))
    return tensor


def same(left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
    """Fails unless two encoded batches hold the same arrays."""
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(np.asarray(left[name]), np.asarray(right[name]), err_msg=name)


def check_feature(
    features: Mapping[str, Any], train: pa.Table, edge: pa.Table, directory: Path
) -> tuple[Encoder, EncodedBatch]:
    """Runs every rule on the rows of `edge`, for features fitted on `train`.

    Returns:
        The encoder and the encoded edge rows, for golden comparisons.
    """
    config = pipeline(features)
    encoder = Encoder(config, kinds_of(train)).fit([train])
    batch = encoder.encode_table(edge, count=True)
    _check_ranges(encoder, batch)
    _check_batches_of_any_size(encoder, edge, batch)
    _check_exported_form(encoder, edge, batch)
    _check_arrow_forms(encoder, edge, batch)
    _check_fit_does_not_depend_on_chunks(encoder, config, train)
    _check_saved(encoder, config, edge, batch, directory)
    _check_counters(encoder, edge)
    return encoder, batch


def _check_ranges(encoder: Encoder, batch: EncodedBatch) -> None:
    schema, arrays = encoder.schema, batch.as_dict()
    assert arrays["ids"].shape == (batch.num_rows, len(schema.single_ids))
    assert arrays["ids"].dtype == np.int32
    assert arrays["numbers"].dtype == np.float32
    assert arrays["numbers"].shape == (batch.num_rows, sum(output.width for output in schema.numbers))
    assert np.isfinite(arrays["numbers"]).all()
    for position, output in enumerate(schema.single_ids):
        assert ((arrays["ids"][:, position] >= 0) & (arrays["ids"][:, position] < output.rows)).all()
    for output in schema.multi_ids:
        values, lengths = arrays[f"{output.feature}/values"], arrays[f"{output.feature}/row_lengths"]
        assert values.dtype == lengths.dtype == np.int32
        assert lengths.sum() == len(values)
        assert ((values > 0) & (values < output.rows)).all(), "missing values are dropped from lists"
        assert output.max_length is None or (lengths <= output.max_length).all()
        assert (f"{output.feature}/weights" in arrays) == output.weighted
        if output.weighted:
            weights = arrays[f"{output.feature}/weights"]
            assert weights.dtype == np.float32
            assert len(weights) == len(values)
            assert np.isfinite(weights).all()


def _check_batches_of_any_size(encoder: Encoder, edge: pa.Table, batch: EncodedBatch) -> None:
    rows = [encoder.encode_table(edge.slice(row, 1)) for row in range(edge.num_rows)]
    same(EncodedBatch.concat(rows).as_dict(), batch.as_dict())
    nothing = encoder.encode_table(edge.slice(0, 0))
    assert nothing.num_rows == 0
    same(EncodedBatch.concat([nothing, batch]).as_dict(), batch.as_dict())


def _check_exported_form(encoder: Encoder, edge: pa.Table, batch: EncodedBatch) -> None:
    signature = {
        name: tf.TensorSpec(
            [None, None] if spec.list else [None],
            {"string": tf.string, "int": tf.int64, "float": tf.float32}[spec.kind],
        )
        for name, spec in encoder.inputs.items()
    }
    function = tf.function(lambda raw: encoder.encode(raw), autograph=False)
    exported = function.get_concrete_function(signature)
    for rows in (edge, edge.slice(1, 1), edge.slice(0, 0)):
        raw = {name: padded(rows, spec) for name, spec in encoder.inputs.items()}
        same(exported(raw), encoder.encode_table(rows).as_dict())
    same(exported({name: padded(edge, spec) for name, spec in encoder.inputs.items()}), batch.as_dict())


def _check_arrow_forms(encoder: Encoder, edge: pa.Table, batch: EncodedBatch) -> None:
    for other in (chunked(edge), sliced(edge), dictionary(edge), text_of_integers(edge), large(edge)):
        same(encoder.encode_table(other).as_dict(), batch.as_dict())


def _check_fit_does_not_depend_on_chunks(encoder: Encoder, config: PipelineConfig, train: pa.Table) -> None:
    pieces = [train.slice(row, 1) for row in range(train.num_rows)]
    for chunks in (
        pieces,
        [train.slice(0, 0), chunked(train)],
        [dictionary(train)],
        [text_of_integers(train)],
    ):
        again = Encoder(config, kinds_of(train)).fit(chunks)
        assert again.schema == encoder.schema
        for vocabulary, other in zip(encoder.vocabularies, again.vocabularies, strict=True):
            if hasattr(vocabulary, "values"):
                ours, theirs = vocabulary.values.to_pylist(), other.values.to_pylist()
                assert list(map(str, ours)) == list(map(str, theirs))


def _check_saved(
    encoder: Encoder, config: PipelineConfig, edge: pa.Table, batch: EncodedBatch, directory: Path
) -> None:
    encoder.save(directory)
    loaded = Encoder.load(config, directory)
    assert loaded.fingerprint == encoder.fingerprint
    assert loaded.schema == encoder.schema
    assert loaded.inputs == encoder.inputs
    assert loaded.warnings == encoder.warnings
    same(loaded.encode_table(edge).as_dict(), batch.as_dict())


def _check_counters(encoder: Encoder, edge: pa.Table) -> None:
    encoder.reset_coverage()
    for row in range(edge.num_rows):
        encoder.encode_table(edge.slice(row, 1), count=True)
    by_row = encoder.coverage()
    for whole in (edge, dictionary(edge), chunked(edge)):
        encoder.reset_coverage()
        encoder.encode_table(whole, count=True)
        assert encoder.coverage() == by_row
    assert by_row.keys() == encoder.transforms.keys(), "every feature counts at least what is missing"
    for entry in by_row.values():
        assert entry["rows"] == edge.num_rows
        assert 0 <= entry["missing"] <= edge.num_rows


def chunked(table: pa.Table) -> pa.Table:
    """The same rows in several chunks, one of them empty."""
    return pa.concat_tables([table.slice(0, 1), table.slice(0, 0), table.slice(1, 2), table.slice(3)])


def sliced(table: pa.Table) -> pa.Table:
    """The same rows as a slice of more rows, with offsets that are not 0."""
    around = pa.concat_tables([table, table, table]).combine_chunks()
    return around.slice(table.num_rows, table.num_rows)


def dictionary(table: pa.Table) -> pa.Table:
    """Text columns as dictionaries."""
    return _map(table, lambda column: column.dictionary_encode() if _is_text(column.type) else column)


def large(table: pa.Table) -> pa.Table:
    """Text and lists with 64-bit offsets, lists with nulls that span values."""
    return _map(table, _large)


def _large(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if _is_text(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_list(column.type):
        return column.cast(pa.large_list(column.type.value_type))
    return column


def text_of_integers(table: pa.Table) -> pa.Table:
    """Integers as decimal text, as in a CSV file."""
    return _map(table, _integers_to_text)


def _integers_to_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if pa.types.is_list(column.type) and pa.types.is_integer(column.type.value_type):
        return column.cast(pa.list_(pa.string()))
    return column


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_)


def _map(table: pa.Table, change: Any) -> pa.Table:
    return pa.table({name: change(table.column(name)) for name in table.column_names})
