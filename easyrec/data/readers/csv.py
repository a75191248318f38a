"""Delimited text. Cells are read as text first, so that no inferred type can lose a character unnoticed."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from easyrec.config.data import CsvReader
from easyrec.data.column_types import CastError, article
from easyrec.data.files import DataFile
from easyrec.data.readers.base import BATCH_ROWS, Faults, Reader, WidenError
from easyrec.data.readers.text import (
    DAMAGED,
    fits,
    from_text,
    infer,
    line_of,
    open_text,
    undecodable,
    widen,
)
from easyrec.data.readers.times import time_hint
from easyrec.errors import DataError, SchemaError

_BLOCK = 8 << 20
_BEGINNING = 1 << 20
_LARGEST_BLOCK = 1 << 30
_SAMPLE_ROWS = 100_000
_DELIMITERS = (",", "\t", ";", "|", "::", "\x01")
_UNIT_SEPARATOR = "\x1f"


class CsvSource(Reader):
    """Reads delimited text."""

    config: CsvReader

    def __init__(self, config: Any, declared: Mapping[str, pa.DataType], faults: Faults) -> None:
        super().__init__(config, declared, faults)
        self._names: dict[str, list[str]] = {}
        self._delimiters: dict[str, str] = {}

    def schema(self, file: DataFile) -> pa.Schema:
        """Names from the header or the configuration, types from the first rows."""
        names = self.names(file)
        batch = next(self._batches(file, names, Faults("skip")), None)
        fields = []
        for index, name in enumerate(names):
            kind = self.declared.get(name)
            if kind is None:
                kind = pa.null() if batch is None else self._infer(batch.column(index).slice(0, _SAMPLE_ROWS))
            fields.append(pa.field(name, kind))
        return pa.schema(fields)

    def read(
        self,
        file: DataFile,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        groups: Sequence[int] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.Table]:
        """The rows in order; every cell is checked against its column's type."""
        wanted = [schema.field(name) for name in (schema.names if columns is None else columns)]
        names = self.names(file)
        first_row = 0
        for batch in self._batches(file, names, self.faults):
            arrays = [
                self._convert(file, batch.column(names.index(column.name)), column, first_row)
                if column.name in names
                else pa.nulls(batch.num_rows, column.type)
                for column in wanted
            ]
            first_row += batch.num_rows
            table = pa.table(arrays, schema=pa.schema(wanted))
            for start in range(0, table.num_rows, batch_rows):
                yield table.slice(start, batch_rows)

    def names(self, file: DataFile) -> list[str]:
        """The columns of a file, from its header or the configuration."""
        if file.location not in self._names:
            try:
                self._names[file.location] = self._read_names(file)
            except csv.Error as error:
                raise self._explain(file, error) from error
        return self._names[file.location]

    def delimiter(self, file: DataFile) -> str:
        """What stands between cells: as configured, or as the suffix or the first lines say."""
        if self.config.delimiter is not None:
            return "\t" if self.config.delimiter == "\\t" else self.config.delimiter
        if file.location not in self._delimiters:
            with self._text(file) as text:
                lines = [line for line in itertools.islice(text, 20) if line.strip()]
            try:
                self._delimiters[file.location] = find_delimiter(lines, self.config.quote)
            except csv.Error as error:
                raise self._explain(file, error) from error
        return self._delimiters[file.location]

    def _read_names(self, file: DataFile) -> list[str]:
        delimiter = self.delimiter(file)
        with self._text(file) as text:
            lines = (
                (line.replace(delimiter, _UNIT_SEPARATOR) for line in text) if len(delimiter) > 1 else text
            )
            rows = csv.reader(lines, **_dialect(delimiter, self.config.quote))
            first = next((row for row in rows if row), None)
        if first is None:
            raise DataError(f"{file.name} holds blank lines only")
        given = self.config.names
        if given is not None:
            if len(given) != len(first):
                raise SchemaError(
                    f"{file.name} has {len(first)} columns, but `names` gives {len(given)}; its first line is "
                    f"{delimiter.join(first)[:120]!r}"
                )
            return list(given)
        if not self.config.header:
            return [f"column_{number}" for number in range(1, len(first) + 1)]
        names = [name.strip() or f"column_{number}" for number, name in enumerate(first, start=1)]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise SchemaError(
                f"{file.name}: two columns are called {twice[0]!r}. A file without a header needs "
                "`options: {header: false}`; else rename one of them, or give `names`"
            )
        return names

    def _text(self, file: DataFile) -> io.TextIOWrapper:
        """The file as text, from after a byte order mark; bytes that cannot be decoded are replaced."""
        with open_text(file) as raw:
            head = raw.read(4)
        if head.startswith((b"\xff\xfe", b"\xfe\xff")) and "16" not in self.config.encoding:
            raise self._explain(file, ValueError("it begins with the byte order mark of UTF-16"))
        encoding = (
            "utf-8-sig" if self.config.encoding.lower().replace("_", "-") in ("utf-8", "utf8") else None
        )
        return io.TextIOWrapper(
            io.BufferedReader(_Bytes(open_text(file))),
            encoding or self.config.encoding,
            "replace",
            newline="",
        )

    def _batches(self, file: DataFile, names: Sequence[str], faults: Faults) -> Iterator[pa.RecordBatch]:
        """All rows with their cells as text (null where a cell means missing)."""
        block = _BLOCK
        while True:
            try:
                yield from self._parse(file, names, faults, block)
            except pa.ArrowInvalid as error:
                if "straddling" not in str(error) or block >= _LARGEST_BLOCK:
                    raise self._explain(file, error) from error
                block *= 8  # a record larger than a block; nothing of it was handed out
                continue
            except (*DAMAGED, UnicodeError) as error:
                raise self._explain(file, error) from error
            return

    def _parse(
        self, file: DataFile, names: Sequence[str], faults: Faults, block: int
    ) -> Iterator[pa.RecordBatch]:
        delimiter = self.delimiter(file)
        refused: list[DataError] = []

        def bad_row(row: arrow_csv.InvalidRow) -> str:
            line = line_of(file, row.text, self.config.encoding, row.number or 1)
            much = "many" if row.actual_columns > row.expected_columns else "few"
            try:
                faults.bad_row(
                    f"{file.name}, line {line}: too {much} cells, {row.actual_columns} instead of "
                    f"{row.expected_columns}: {row.text[:80]!r}"
                )
            except DataError as error:
                refused.append(error)
                return "error"
            return "skip"

        # In a row of too many cells, Arrow would print a stack trace for bytes that are no text.
        with open_text(file) as raw:
            codecs.getincrementaldecoder(self.config.encoding)().decode(raw.read(_BEGINNING))
        with open_text(file) as raw:
            stream: Any = raw if len(delimiter) == 1 else _Replaced(raw, delimiter)
            try:
                yield from self._open(file, stream, names, bad_row, block)
            except pa.ArrowInvalid:
                if refused:
                    raise refused[0] from None
                raise

    def _open(self, file: DataFile, stream: Any, names: Sequence[str], bad_row: Any, block: int) -> Any:
        dialect = _dialect(self.delimiter(file), self.config.quote)
        reader = arrow_csv.open_csv(
            pa.PythonFile(stream, "r"),
            read_options=arrow_csv.ReadOptions(
                use_threads=False,  # else bad rows are reported without their number
                block_size=block,
                column_names=list(names),
                skip_rows=1 if self.config.header else 0,
                encoding=self.config.encoding,
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=dialect["delimiter"],
                quote_char=self.config.quote or False,
                newlines_in_values=self.config.quote is not None,
                invalid_row_handler=bad_row,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=self.config.null_values,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in reader:
            yield self._stripped(batch) if self.config.strip else batch

    def _stripped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        missing = pa.array(self.config.null_values, pa.string())
        columns = []
        for column in batch.columns:
            text = pc.utf8_trim_whitespace(column)
            columns.append(pc.if_else(pc.is_in(text, missing), pa.scalar(None, pa.string()), text))
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _convert(self, file: DataFile, texts: pa.Array, column: pa.Field, first_row: int) -> pa.Array:
        if column.name in self.declared:
            try:
                return from_text(texts, column.type, self.config.time_format)
            except CastError as error:
                raise SchemaError(
                    f"{file.name}, row {first_row + error.row + 1}: column {column.name!r} is declared as "
                    f"{column.type}, but holds {error.value!r}{time_hint(column.type, error.value)}"
                ) from error
        converted = fits(texts, column.type, self.config.time_format)
        if converted is None:
            wider = widen(column.type, self._infer(texts))
            wider = pa.string() if wider == column.type else wider
            raise WidenError(
                f"{file.name}: column {column.name!r} looked like {article(column.type)} at first, but later holds "
                f"other values; state its type under `columns:`, such as `{column.name}: string`",
                column.name,
                wider,
            )
        return converted

    def _infer(self, texts: pa.Array) -> pa.DataType:
        return infer(texts, self.config.time_format)

    def _explain(self, file: DataFile, error: Exception) -> DataError:
        wrong = (
            undecodable(file, self.config.encoding) if not isinstance(error, (EOFError, OSError)) else None
        )
        if wrong is not None:
            return wrong
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        return DataError(f"{file.name} is damaged or cut off: {message}")


def find_delimiter(lines: Sequence[str], quote: str | None) -> str:
    """The delimiter that cuts all lines into the same, largest number of cells; a comma when none does."""
    best, best_score = ",", (0.0, 0)
    for candidate in _DELIMITERS:
        cut = [line.replace(candidate, _UNIT_SEPARATOR) if len(candidate) > 1 else line for line in lines]
        widths = Counter(len(row) for row in csv.reader(cut, **_dialect(candidate, quote)) if row)
        if not widths:
            continue
        width, count = max(widths.items(), key=lambda item: (item[1], item[0]))
        score = (count / sum(widths.values()), width)
        if width > 1 and score > best_score:
            best, best_score = candidate, score
    return best


def _dialect(delimiter: str, quote: str | None) -> dict[str, Any]:
    return {
        "delimiter": delimiter if len(delimiter) == 1 else _UNIT_SEPARATOR,
        "quotechar": quote,
        "quoting": csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
    }


class _Bytes(io.RawIOBase):
    """Any readable object as a raw stream, so that the standard library can buffer and decode it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Replaced(io.RawIOBase):
    """A byte stream in which a delimiter of several characters is replaced by one that text does not hold."""

    def __init__(self, stream: IO[bytes], delimiter: str) -> None:
        self._stream = stream
        self._delimiter = delimiter.encode()
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes; a delimiter that two reads share is kept for the second."""
        while True:
            data = self._stream.read(size if size and size > 0 else 1 << 20)
            text = self._rest + data
            self._rest = b""
            if data:
                keep = next(
                    (
                        length
                        for length in range(len(self._delimiter) - 1, 0, -1)
                        if text.endswith(self._delimiter[:length])
                    ),
                    0,
                )
                if keep:
                    text, self._rest = text[:-keep], text[-keep:]
            if text or not data:
                return text.replace(self._delimiter, _UNIT_SEPARATOR.encode())
