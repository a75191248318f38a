"""A table in one or many files, with one schema, that can be read row group by row group in any order."""

from __future__ import annotations

import bisect
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from easyrec.config.data import READERS, ParquetReader, SourceConfig
from easyrec.data.column_types import DECLARED, DICTIONARY, cast, is_list, kind_of, unify
from easyrec.data.files import COMPRESSED, DataFile, find_files, format_of
from easyrec.data.readers.base import BATCH_ROWS, Faults, Reader, WidenError
from easyrec.data.readers.parquet import ParquetSource
from easyrec.data.store import Store, fingerprint
from easyrec.errors import ConfigError, DataError, SchemaError, nearest

_CONVERTED_GROUP_ROWS = 131_072


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one row group.

    Attributes:
        file: Index of the file.
        group: Index of the row group in the file.
        start: First row within the row group.
        rows: How many.
        first_row: Position of the first row in the whole table.
    """

    file: int
    group: int
    start: int
    rows: int
    first_row: int


class Source:
    """Rows of files of one format, with one schema.

    Attributes:
        schema: Columns and normal types, hive partition columns included.
        files: The files, in order.
        groups: All row groups, in order.
        num_rows: Rows in all files.
        faults: What could not be read and was left out.
        fingerprint: Changes when the files or the way they are read change.
    """

    def __init__(
        self,
        reader: Reader,
        files: Sequence[DataFile],
        schema: pa.Schema,
        names: Sequence[str],
        faults: Faults,
        key: str,
        store: Store | None = None,
    ) -> None:
        self._store = store  # a temporary store lives as long as what was read into it
        self.files = list(files)
        self.schema = schema
        self.faults = faults
        self.fingerprint = key
        self._reader = reader
        self._names = list(names)
        self.groups: list[Segment] = []
        self._first_rows: list[int] = []
        position = 0
        for index, file in enumerate(files):
            self._first_rows.append(position)
            for group, rows in enumerate(reader.row_groups(file)):
                if rows:
                    self.groups.append(Segment(index, group, 0, rows, position))
                position += rows
        self.num_rows = position

    def with_types(self, types: Mapping[str, pa.DataType]) -> Source:
        """The same rows with some columns read as other types; a value that does not fit is an error when it is read."""
        other = copy.copy(self)
        other.schema = pa.schema(
            [column.with_type(types.get(column.name, column.type)) for column in self.schema]
        )
        return other

    def segments(self, max_rows: int) -> list[Segment]:
        """All rows, in order, in segments of at most `max_rows` rows that do not cross row groups."""
        cut = []
        for group in self.groups:
            pieces = -(-group.rows // max_rows)
            bounds = [group.rows * piece // pieces for piece in range(pieces + 1)]
            cut += [
                replace(group, start=start, rows=stop - start, first_row=group.first_row + start)
                for start, stop in zip(bounds, bounds[1:], strict=False)
            ]
        return cut

    def read(
        self, segment: Segment, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
    ) -> Iterator[tuple[int, pa.Table]]:
        """The rows of a segment.

        Args:
            segment: Which rows.
            columns: Only these, in this order; all unless given.
            batch_rows: At most about so many rows a table.

        Yields:
            The position of the table's first row, and the table.

        Raises:
            DataError: The file is damaged.
        """
        file = self.files[segment.file]
        names = self.schema.names if columns is None else list(columns)
        partitions = dict(file.partitions)
        stored = [name for name in names if not (name in partitions and self._is_partition(name))]
        position, left = -segment.start, segment.rows
        for table in self._reader.read(file, self.schema, stored, segment.group, batch_rows):
            skip = max(0, min(-position, table.num_rows))
            position += table.num_rows
            table = table.slice(skip, left)
            if table.num_rows == 0 and (stored or left == 0):
                continue
            first_row = segment.first_row + segment.rows - left
            left -= table.num_rows
            yield first_row, self._with_partitions(table, partitions, names)
            if left <= 0:
                return

    def read_all(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole table in memory; for user and item tables."""
        tables = [table for group in self.groups for _, table in self.read(group, columns)]
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()

    @property
    def name(self) -> str:
        """The first file, for messages."""
        return (
            self._names[0] if len(self._names) == 1 else f"{self._names[0]} and {len(self._names) - 1} more"
        )

    def place(self, row: int) -> str:
        """Where a row is, in words: the file and the row within it, counted from 1."""
        index = max(0, bisect.bisect_right(self._first_rows, row) - 1)
        return f"{self._names[index]}, row {row - self._first_rows[index] + 1}"

    def _is_partition(self, name: str) -> bool:
        return (self.schema.field(name).metadata or {}).get(b"partition") == b"1"

    def _with_partitions(
        self, table: pa.Table, partitions: Mapping[str, str | None], names: Sequence[str]
    ) -> pa.Table:
        columns = {}
        for name in names:
            if name in partitions and self._is_partition(name):
                kind = self.schema.field(name).type
                value = cast(pa.array([partitions[name]], pa.string()), kind)
                columns[name] = value.take(pa.array([0] * table.num_rows, pa.int32()))
            else:
                columns[name] = table.column(name)
        return pa.table(columns)


def open_source(
    config: SourceConfig,
    store: Store,
    storage_options: Mapping[str, Any] | None = None,
    on_error: Literal["fail", "skip"] = "fail",
) -> Source:
    """Opens a table for repeated reading in any order; text files are converted to Parquet first, in the store.

    Raises:
        DataError: A file is missing, empty or damaged, or a row cannot be read (unless `on_error` says to skip).
        SchemaError: The files do not fit each other.
        ConfigError: The format or its options are wrong.
    """
    faults = Faults(on_error)
    reader, files, format_name = _reader(config, storage_options, faults)
    schema, files = _unified(reader, files, config, faults)
    key = fingerprint(
        [
            format_name,
            config.options,
            config.columns,
            on_error,
            [(file.name, file.location, file.size, file.version) for file in files],
        ]
    )
    if reader.random_access:
        source = Source(reader, files, schema, [file.name for file in files], faults, key)
    else:
        source = _converted(reader, files, schema, store, faults, key)
    if source.num_rows == 0:
        raise DataError(f"{_named(files)} holds no rows{_skipped(faults)}")
    return source


@dataclass(frozen=True)
class TableStream:
    """A table read once, in order, without conversion.

    Attributes:
        schema: Its columns.
        faults: What is left out; complete when the tables have been read.
    """

    schema: pa.Schema
    faults: Faults
    _reader: Reader
    _files: tuple[DataFile, ...]

    def tables(
        self, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.Table]:
        """The rows in order, about `batch_rows` at a time.

        Raises:
            DataError: A file is damaged, or a value does not fit its column's type.
        """
        names = self.schema.names if columns is None else list(columns)
        for file in self._files:
            partitions = {key: value for key, value in file.partitions if _partition(self.schema, key)}
            stored = [name for name in names if name not in partitions]
            for table in self._reader.read(file, self.schema, stored, batch_rows=batch_rows):
                arrays = {
                    name: cast(
                        pa.array([partitions[name]] * table.num_rows, pa.string()),
                        self.schema.field(name).type,
                    )
                    if name in partitions
                    else table.column(name)
                    for name in names
                }
                yield pa.table(arrays)


def open_stream(
    config: SourceConfig,
    storage_options: Mapping[str, Any] | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    types: Mapping[str, pa.DataType] | None = None,
) -> TableStream:
    """Opens a table to be read once, in order, with bounded memory, whatever its format; for prediction.

    Args:
        config: The files.
        storage_options: Passed to fsspec.
        on_error: What happens with rows and files that cannot be read.
        types: Types that columns are known to have, where the files' own types are text or not stated.

    Raises:
        DataError: A file is missing, empty or damaged.
        SchemaError: The files do not fit each other.
    """
    faults = Faults(on_error)
    reader, files, _ = _reader(config, storage_options, faults, types)
    schema, files = _unified(reader, files, config, faults)
    return TableStream(schema, faults, reader, tuple(files))


def _reader(
    config: SourceConfig,
    storage_options: Mapping[str, Any] | None,
    faults: Faults,
    types: Mapping[str, pa.DataType] | None = None,
) -> tuple[Reader, list[DataFile], str]:
    if config.format is not None and config.format not in READERS:
        raise ConfigError(f"unknown format {config.format!r}.{nearest(config.format, READERS.names())}")
    files = find_files(config.path, storage_options, any_suffix=config.format is not None)
    name = config.format or _common_format(files)
    part = READERS[name]
    options = dict(config.options)
    if name == "csv" and any(
        files[0].name.lower().removesuffix(end).endswith((".tsv", ".tab")) for end in ("", *COMPRESSED)
    ):
        options.setdefault("delimiter", "\t")
    try:
        reader_config = part.config.model_validate(options)
    except ValidationError as error:
        known = list(part.config.model_fields)
        lines = []
        for problem in error.errors():
            key = ".".join(str(item) for item in problem["loc"])
            hint = nearest(key, known) if problem["type"] == "extra_forbidden" else ""
            lines.append(f"options.{key}: {problem['msg']}, got {problem['input']!r}.{hint}")
        raise ConfigError(f"the options of the format {name!r} are wrong: {'; '.join(lines)}") from error
    declared = {**(types or {}), **{column: DECLARED[kind] for column, kind in config.columns.items()}}
    return part.load()(reader_config, declared, faults), files, name


def _common_format(files: Sequence[DataFile]) -> str:
    found: dict[str, DataFile] = {}
    for file in files:
        name = format_of(file.name)
        if name is None:
            raise DataError(
                f"{file.name}: the format cannot be told from the suffix; give `format:` with one of "
                f"{', '.join(READERS.names())}"
            )
        found.setdefault(name, file)
    if len(found) > 1:
        (one, first), (two, second) = list(found.items())[:2]
        raise DataError(
            f"files of different formats: {first.name} is {one}, {second.name} is {two}; "
            "give a glob that matches one kind"
        )
    return next(iter(found))


def _unified(
    reader: Reader, files: Sequence[DataFile], config: SourceConfig, faults: Faults
) -> tuple[pa.Schema, list[DataFile]]:
    """One schema for all files, and the files that could be read."""
    readable: list[DataFile] = []
    kinds: dict[str, pa.DataType] = {}
    seen_in: dict[str, DataFile] = {}
    partitioned: dict[str, list[str | None]] = {}
    for file in files:
        try:
            schema = reader.schema(file)
        except SchemaError:
            raise
        except DataError as error:
            faults.bad_file(error)
            continue
        _check_kinship(file, schema, readable, kinds)
        readable.append(file)
        for column in schema:
            before = kinds.get(column.name, pa.null())
            both = unify(before, column.type)
            if both is None and not reader.random_access and pa.string() in (before, column.type):
                both = pa.string()  # text files have no types of their own
            if both is None:
                raise SchemaError(
                    f"column {column.name!r} is {kind_of(before)} in {seen_in[column.name].name}, but "
                    f"{kind_of(column.type)} in {file.name}; state one type under `columns:`, such as "
                    f"`{column.name}: string`"
                )
            kinds[column.name] = both
            seen_in.setdefault(column.name, file)
        for key, value in file.partitions:
            partitioned.setdefault(key, []).append(value)
    if not readable:
        raise DataError(f"none of the files can be read{_skipped(faults)}")
    unknown = [name for name in config.columns if name not in kinds and name not in partitioned]
    if unknown:
        raise SchemaError(
            f"`columns:` states a type for {unknown[0]!r}, which {_named(files)} does not have."
            f"{nearest(unknown[0], kinds)}"
        )
    fields = [pa.field(name, kind) for name, kind in kinds.items()]
    for name, values in partitioned.items():
        if name not in kinds:
            kind = DECLARED[config.columns[name]] if name in config.columns else _partition_type(values)
            fields.append(pa.field(name, kind, metadata={"partition": "1"}))
    return pa.schema(fields), readable


def _check_kinship(
    file: DataFile, schema: pa.Schema, before: Sequence[DataFile], kinds: Mapping[str, pa.DataType]
) -> None:
    if before and len(set(schema.names) & set(kinds)) * 2 < min(len(schema.names), len(kinds)):
        raise SchemaError(
            f"{before[0].name} and {file.name} have hardly a column in common "
            f"({', '.join(list(kinds)[:4])} / {', '.join(schema.names[:4])}); they are not parts of one table. "
            "Give one of them, or a glob that matches one kind"
        )


def _partition_type(values: Sequence[str | None]) -> pa.DataType:
    whole = all(value is None or (value.isdecimal() and str(int(value)) == value) for value in values)
    return pa.int64() if whole and any(value is not None for value in values) else DICTIONARY


def _partition(schema: pa.Schema, name: str) -> bool:
    index = schema.get_field_index(name)
    return index >= 0 and (schema.field(index).metadata or {}).get(b"partition") == b"1"


def _converted(
    reader: Reader, files: Sequence[DataFile], schema: pa.Schema, store: Store, faults: Faults, key: str
) -> Source:
    """The files as Parquet in the store, one for one."""

    def convert(folder: Path) -> None:
        stored = pa.schema([column for column in schema if not _partition(schema, column.name)])
        while True:
            reader.faults = counted = Faults(faults.on_error)
            try:
                stored = _write_all(reader, files, stored, folder)
                break
            except WidenError as error:
                stored = _widened(stored, error)
        (folder / "faults.json").write_text(
            json.dumps({"rows": counted.rows, "files": counted.files, "examples": counted.examples})
        )

    folder = store.build("text", key, convert)
    counted = json.loads((folder / "faults.json").read_text())
    faults.add(Faults(rows=counted["rows"], files=counted["files"], examples=counted["examples"]))
    parts = find_files(sorted(str(part) for part in folder.glob("*.parquet")))
    parts = [replace(part, partitions=file.partitions) for part, file in zip(parts, files, strict=True)]
    parquet = ParquetSource(ParquetReader(), {}, faults)
    final = {column.name: column for part in parts for column in parquet.schema(part)}
    fields = [
        column if _partition(schema, column.name) else final[column.name]
        for column in [*final.values(), *(column for column in schema if _partition(schema, column.name))]
    ]
    return Source(parquet, parts, pa.schema(fields), [file.name for file in files], faults, key, store)


def _write_all(reader: Reader, files: Sequence[DataFile], schema: pa.Schema, folder: Path) -> pa.Schema:
    final = pa.schema([pa.field(column.name, _storable(column.type)) for column in schema])
    good = 0
    for index, file in enumerate(files):
        with pq.ParquetWriter(folder / f"part-{index:05d}.parquet", final, compression="lz4") as writer:
            pending: list[pa.Table] = []
            for table in _readable(reader, file, schema):
                good += table.num_rows
                pending.append(table.cast(final) if table.schema != final else table)
                if sum(part.num_rows for part in pending) >= _CONVERTED_GROUP_ROWS:
                    writer.write_table(pa.concat_tables(pending), row_group_size=_CONVERTED_GROUP_ROWS)
                    pending = []
            if pending:
                writer.write_table(pa.concat_tables(pending), row_group_size=_CONVERTED_GROUP_ROWS)
    if reader.faults.rows > good:
        raise DataError(
            f"{reader.faults.rows} rows cannot be read, only {good} can; the options of the format are probably wrong. "
            f"First: {reader.faults.examples[0]}"
        )
    return final


def _readable(reader: Reader, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """The tables of a file; what follows a damaged place is left out and counted when faults are skipped."""
    try:
        yield from reader.read(file, schema)
    except (SchemaError, WidenError):
        raise
    except DataError as error:
        reader.faults.bad_file(error)


def _widened(schema: pa.Schema, error: WidenError) -> pa.Schema:
    index = schema.get_field_index(error.column)
    if index < 0:
        return schema.append(pa.field(error.column, error.wider))
    if schema.field(index).type == error.wider:
        raise error
    return schema.set(index, pa.field(error.column, error.wider))


def _storable(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.string()) if is_list(kind) and pa.types.is_null(kind.value_type) else kind


def _named(files: Sequence[DataFile]) -> str:
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"


def _skipped(faults: Faults) -> str:
    if not faults.examples:
        return ""
    return f" ({faults.rows} rows and {faults.files} files were skipped; first: {faults.examples[0]})"
