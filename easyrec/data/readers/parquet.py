"""Apache Parquet: entered at any row group, only the columns wanted are decoded, a batch of rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from easyrec.config.data import ParquetReader
from easyrec.data.column_types import DICTIONARY, CastError, is_text, normal
from easyrec.data.files import DataFile, format_of
from easyrec.data.readers.base import BATCH_ROWS, Faults, Reader, UnreadableError
from easyrec.data.readers.times import cast_with_times, time_hint
from easyrec.errors import DataError, SchemaError

_SMALL_DICTIONARY = 64 * 1024
_INDEX_COLUMN = "__index_level_"
_READ_BUFFER = 64 * 1024


class ParquetSource(Reader):
    """Reads Parquet files. A string column whose stored dictionary is small is read as a dictionary."""

    random_access: ClassVar[bool] = True
    config: ParquetReader

    def __init__(self, config: Any, declared: Mapping[str, pa.DataType], faults: Faults) -> None:
        super().__init__(config, declared, faults)
        self._footers: dict[str, pq.FileMetaData] = {}

    def schema(self, file: DataFile) -> pa.Schema:
        """The columns that have a normal type, from the footer."""
        footer = self._footer(file)
        try:
            stored = footer.schema.to_arrow_schema()
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file.name}: the column types cannot be read: {error}") from error
        doubled = [name for name, count in Counter(stored.names).items() if count > 1]
        if doubled:
            raise SchemaError(f"{file.name} has several columns called {doubled[0]!r}; rename all but one")
        fields = []
        for column in stored:
            kind = normal(column.type)
            if kind is None:
                self.unread[column.name] = column.type
            if kind is None or column.name.startswith(_INDEX_COLUMN):
                continue
            if kind == pa.string() and column.name in self._small_dictionaries(file):
                kind = DICTIONARY
            fields.append(pa.field(column.name, self.declared.get(column.name, kind)))
        return pa.schema(fields)

    def row_groups(self, file: DataFile) -> list[int]:
        """Rows of each row group, from the footer."""
        footer = self._footer(file)
        return [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]

    def read(
        self,
        file: DataFile,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        groups: Sequence[int] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.Table]:
        """The rows in order, or those of some row groups."""
        wanted = [schema.field(name) for name in (schema.names if columns is None else columns)]
        stored = set(self._footer(file).schema.to_arrow_schema().names)
        present = [column.name for column in wanted if column.name in stored]
        encoded = [column.name for column in wanted if column.type == DICTIONARY and column.name in stored]
        try:
            with self._open(file, encoded) as parquet:
                chosen = list(range(parquet.num_row_groups) if groups is None else groups)
                for batch in parquet.iter_batches(batch_rows, row_groups=chosen, columns=present):
                    yield self._conform(file, batch, wanted)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise DataError(f"{file.name} is damaged: {_first_line(error)}") from error

    def _conform(self, file: DataFile, batch: pa.RecordBatch, wanted: Sequence[pa.Field]) -> pa.Table:
        arrays = []
        for column in wanted:
            index = batch.schema.get_field_index(column.name)
            if index < 0:
                arrays.append(pa.nulls(batch.num_rows, column.type))
                continue
            try:
                arrays.append(cast_with_times(batch.column(index), column.type, self.config.time_format))
            except CastError as error:
                advice = f". State the type it has under `columns:`, such as `{column.name}: string`"
                if isinstance(error.value, bytes):
                    advice = ", as it is no text in UTF-8; leave the column out, or write it as text"
                why = f"holds {error.value!r}, which is not read as {column.type}"
                hint = time_hint(column.type, error.value) or advice
                raise UnreadableError(
                    f"{file.name}: column {column.name!r} {why}{hint}", column.name, why
                ) from error
        return pa.table(arrays, schema=pa.schema(wanted))

    def _open(self, file: DataFile, encoded: Sequence[str] = ()) -> pq.ParquetFile:
        metadata = self._footers.get(file.location)
        path = file.local_path()
        return pq.ParquetFile(
            file.open() if path is None else path,
            metadata=metadata,
            read_dictionary=list(encoded) or None,
            pre_buffer=path is None,
            buffer_size=_READ_BUFFER,
        )

    def _footer(self, file: DataFile) -> pq.FileMetaData:
        if file.location not in self._footers:
            if file.size == 0:
                raise DataError(f"{file.name} is empty (0 bytes)")
            try:
                with self._open(file) as parquet:
                    self._footers[file.location] = parquet.metadata
            except (pa.ArrowException, OSError) as error:
                raise DataError(_not_parquet(file, error)) from error
        return self._footers[file.location]

    def _small_dictionaries(self, file: DataFile) -> set[str]:
        """String columns whose every row group stores a small dictionary: distinct values are few."""
        footer = self._footer(file)
        stored = {column.name for column in footer.schema.to_arrow_schema() if is_text(column.type)}
        small = set(stored)
        for index in range(footer.num_row_groups):
            group = footer.row_group(index)
            for position in range(group.num_columns):
                chunk = group.column(position)
                if chunk.path_in_schema in small and not _has_small_dictionary(chunk):
                    small.discard(chunk.path_in_schema)
        return small if footer.num_row_groups else set()


def _has_small_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    if not chunk.has_dictionary_page or chunk.dictionary_page_offset is None:
        return False
    return 0 < chunk.data_page_offset - chunk.dictionary_page_offset <= _SMALL_DICTIONARY


def _not_parquet(file: DataFile, error: Exception) -> str:
    try:
        with file.open() as handle:
            head = handle.read(64)
    except OSError:
        return f"{file.name} cannot be read: {_first_line(error)}"
    if head[:4] == b"PAR1":
        return (
            f"{file.name} is a damaged or truncated Parquet file of {file.size} bytes: {_first_line(error)}. "
            "Copy or write it again"
        )
    guess = format_of(file.name)
    advice = f"; the suffix says {guess!r}, give `format: {guess}`" if guess not in (None, "parquet") else ""
    return f"{file.name} is not a Parquet file: it begins with {head[:12]!r}{advice}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
