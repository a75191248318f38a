"""Predictions from files to a file, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from easyrec.config.data import SourceConfig
from easyrec.data.files import find_files, format_of
from easyrec.data.source import TableStream, open_stream, read_like
from easyrec.errors import DataError
from easyrec.export.bundle import Bundle
from easyrec.export.predict import Keep
from easyrec.export.runtime import BATCH_ROWS
from easyrec.export.writers import SUFFIXES, TableWriter, replace_file

Data = str | Path | Sequence[str] | SourceConfig
_TYPES = {"string": pa.string(), "int": pa.int64(), "float": pa.float32()}


@dataclass(frozen=True)
class PredictionReport:
    """What became of the rows.

    Attributes:
        output: The file written.
        rows: Rows predicted.
        skipped_rows: Rows that could not be read and were left out.
        skipped_files: Files that could not be read and were left out.
        examples: The first few of these, in words.
    """

    output: Path
    rows: int
    skipped_rows: int
    skipped_files: int
    examples: tuple[str, ...]


def predict_files(
    bundle: Bundle,
    data: Data,
    output: str | Path,
    *,
    keep: Keep | None = None,
    batch_size: int = BATCH_ROWS,
    on_error: Literal["fail", "skip"] = "fail",
    progress: Callable[[int], None] | None = None,
) -> PredictionReport:
    """Predicts the rows of files and writes a table; until it is complete, a file that was there stays.

    Columns of the item or user table that the data lack are taken from the bundle, if the data have the key.

    Args:
        bundle: The model.
        data: Files, globs, folders or URLs of any format that training reads, or how to read them. Text is read with
            the options of the training data.
        output: A .parquet, .csv or .tsv file, the last two also with .gz.
        keep: Columns to copy beside the predictions, a mapping gives them other names; those of the keys unless given.
        batch_size: Rows that are computed at once.
        on_error: A row or file that cannot be read ends the command, or is skipped and counted.
        progress: Called with the number of rows written so far.

    Returns:
        What became of the rows.

    Raises:
        DataError: A file, column or value cannot be used, or the output cannot be written.
    """
    output = Path(output)
    if not output.name.lower().endswith(SUFFIXES):
        raise DataError(f"the output {output} must end in one of {', '.join(SUFFIXES)}")
    source = _source(bundle, data)
    _refuse_to_replace_input(output, source)
    stream = open_stream(source, on_error=on_error, types=_types(bundle))
    names = stream.schema.names
    if keep is None:
        keep = [
            key for key in dict.fromkeys(bundle.manifest.keys.values()) if key is not None and key in names
        ]
    kept = bundle.predictor.kept(keep, names)
    needed = _needed(bundle, names) | dict.fromkeys(kept)
    rows = 0
    with replace_file(output) as writing, TableWriter(writing, output.name) as writer:
        for table in _tables(stream, list(needed)):
            try:
                predictions = bundle.predictor.predict(table, kept, batch_size)
            except DataError as error:
                raise type(error)(f"rows {rows} to {rows + len(table) - 1} of the data: {error}") from error
            writer.write(predictions)
            rows += len(table)
            if progress is not None:
                progress(rows)
    faults = stream.faults
    return PredictionReport(output, rows, faults.rows, faults.files, tuple(faults.examples))


def _source(bundle: Bundle, data: Data) -> SourceConfig:
    """The files, text read as that of the training data was."""
    if isinstance(data, SourceConfig):
        return data
    paths = (str(data),) if isinstance(data, (str, Path)) else tuple(map(str, data))
    if {format_of(path) for path in paths} <= {"parquet", "json"}:
        return SourceConfig(path=paths)
    # Types are not stated again: those of the model's inputs are known, and labels need not be there.
    return read_like(bundle.config.data.train, paths).model_copy(update={"columns": {}})


def _refuse_to_replace_input(output: Path, source: SourceConfig) -> None:
    if not output.exists():
        return
    for file in find_files(source.path, any_suffix=source.format is not None):
        local = file.local_path()
        if local is not None and os.path.samefile(local, output):
            raise DataError(
                f"the output {output} is one of the files to predict and would be lost; name another"
            )


def _types(bundle: Bundle) -> dict[str, pa.DataType]:
    """Types of the columns that the model reads and of the keys, for files that do not state them."""
    types = {
        entry.column: pa.list_(_TYPES[entry.kind]) if entry.list else _TYPES[entry.kind]
        for entry in bundle.manifest.inputs
        if entry.part == "values"
    }
    for known in bundle.predictor.known:
        types[known.key] = known.keys.type
    return types


def _needed(bundle: Bundle, names: Sequence[str]) -> dict[str, None]:
    """Columns of the data that predictions depend on."""
    wanted = [entry.column for entry in bundle.manifest.inputs] + [
        known.key for known in bundle.predictor.known
    ]
    return dict.fromkeys(name for name in wanted if name in names)


def _tables(stream: TableStream, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows; one table without rows if there are none, so that the output has its columns."""
    empty = True
    for table in stream.tables(columns):
        empty = False
        yield table
    if empty:
        yield pa.schema([stream.schema.field(name) for name in columns]).empty_table()
