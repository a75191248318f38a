"""Files of predictions: Parquet or text, in place only once they are complete."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from easyrec.errors import DataError, SchemaError

SUFFIXES = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz")


@contextmanager
def replace_file(output: Path) -> Iterator[Path]:
    """Yields a file beside `output` that takes its place when the block ends without an error."""
    writing = output.with_name(f".{output.name}.writing-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield writing
            descriptor = os.open(writing, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(writing, output)
        finally:
            writing.unlink(missing_ok=True)
    except OSError as error:
        kept = " What was there before is unchanged." if output.exists() else ""
        raise DataError(f"cannot write {output}: {error.strerror or error}.{kept}") from error


class TableWriter:
    """Writes tables of equal columns to a Parquet or text file, opened when the first one comes.

    Args:
        path: Where to write.
        name: Name whose suffix says how.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name.lower()
        self._schema: pa.Schema | None = None
        self._writer: Any = None
        self._stream: Any = None

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *raised: object) -> None:
        for part in (self._writer, self._stream):
            if part is not None:
                part.close()

    def write(self, table: pa.Table) -> None:
        """Appends rows; the first table decides on the types."""
        if self._schema is None:
            self._schema = pa.schema([pa.field(one.name, _plain(one.type)) for one in table.schema])
            self._open(self._schema)
        self._writer.write_table(table.cast(self._schema))

    def _open(self, schema: pa.Schema) -> None:
        if self._name.endswith(".parquet"):
            self._writer = pq.ParquetWriter(self._path, schema, compression="zstd")
            return
        for field in schema:
            if pa.types.is_nested(field.type):
                raise SchemaError(
                    f"keep: {field.name!r} holds {field.type}, which text cannot; write .parquet"
                )
        path = str(self._path)
        self._stream = (
            pa.CompressedOutputStream(path, "gzip") if self._name.endswith(".gz") else pa.OSFile(path, "wb")
        )
        tab = self._name.removesuffix(".gz").endswith(".tsv")
        options = arrow_csv.WriteOptions(delimiter="\t" if tab else ",")
        self._writer = arrow_csv.CSVWriter(self._stream, schema, write_options=options)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
