"""Text files as Parquet, made once in the store: from then on they are read in any order, a few columns at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from easyrec.config.data import ParquetReader
from easyrec.data.column_types import is_list
from easyrec.data.files import DataFile, find_files
from easyrec.data.readers.base import Faults, Reader, WidenError
from easyrec.data.readers.parquet import ParquetSource
from easyrec.data.row_groups import Source, is_partition
from easyrec.data.store import Store
from easyrec.errors import DataError, SchemaError

_CONVERTED_GROUP_ROWS = 131_072


def converted(
    reader: Reader, files: Sequence[DataFile], schema: pa.Schema, store: Store, faults: Faults, key: str
) -> Source:
    """The files as Parquet in the store, one for one."""

    def convert(folder: Path) -> None:
        stored = pa.schema([column for column in schema if not is_partition(schema, column.name)])
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
        column if is_partition(schema, column.name) else final[column.name]
        for column in [*final.values(), *(column for column in schema if is_partition(schema, column.name))]
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
