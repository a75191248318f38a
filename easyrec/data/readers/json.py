"""JSON lines: one object a line; keys may be missing, values may be lists or maps of numbers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.json as arrow_json

from easyrec.config.data import JsonReader
from easyrec.data.column_types import CastError, article, is_list, unify
from easyrec.data.files import DataFile
from easyrec.data.readers.base import BATCH_ROWS, Faults, Reader, WidenError
from easyrec.data.readers.text import DAMAGED, infer, open_text
from easyrec.data.readers.times import cast_with_times, time_hint
from easyrec.errors import DataError, SchemaError

_BLOCK = 4 << 20
_MAP = pa.map_(pa.string(), pa.float64())


@dataclass(frozen=True)
class _Block:
    """Whole lines of a file.

    Attributes:
        data: The bytes.
        first_line: Number of the first line, from 1.
    """

    data: bytes
    first_line: int


class JsonSource(Reader):
    """Reads JSON lines."""

    config: JsonReader

    def __init__(self, config: Any, declared: Mapping[str, pa.DataType], faults: Faults) -> None:
        super().__init__(config, declared, faults)
        self._ignored: set[str] = set()

    def schema(self, file: DataFile) -> pa.Schema:
        """Types from the keys and values of the first block; a column that is declared exists even without a value."""
        kinds: dict[str, pa.DataType | None] = {}
        block = next(self._blocks(file), None)
        rows = [] if block is None else list(self._objects(file, block, Faults("skip")))
        for line, row in rows:
            for name, value in row.items():
                if name not in self.declared:
                    kinds[name] = self._wider(file, line, name, value, kinds.get(name, pa.null()))
        for name in [name for name, kind in kinds.items() if kind == pa.string()]:
            kinds[name] = _text_kind([row.get(name) for _, row in rows], self.config.time_format)
        self._ignored |= {name for name, kind in kinds.items() if kind is None}
        known = {name: kind for name, kind in kinds.items() if kind is not None}
        order = {name: None for _, row in rows for name in row}
        types = {**known, **self.declared}
        names = dict.fromkeys([*order, *self.declared])
        return pa.schema([pa.field(name, types[name]) for name in names if name in types])

    def _wider(
        self, file: DataFile, line: int, name: str, value: Any, before: pa.DataType | None
    ) -> pa.DataType | None:
        """The type that holds one more value; None when no column can hold the values."""
        kind = _kind(value)
        wider = _widen(before, kind)
        if wider is None and before is not None and kind is not None:
            raise SchemaError(
                f"{file.name}, line {line}: {name!r} holds {value!r}, but is {article(before)} before; state its type "
                "under `columns:`"
            )
        return wider

    def read(
        self,
        file: DataFile,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        groups: Sequence[int] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.Table]:
        """The rows in order; a block that Arrow's parser does not take is read value by value."""
        wanted = [schema.field(name) for name in (schema.names if columns is None else columns)]
        for block in self._blocks(file):
            table = self._fast(block, schema, wanted, everything=columns is None)
            if table is None:
                table = self._exact(file, block, schema, wanted, everything=columns is None)
            for start in range(0, table.num_rows, batch_rows):
                yield table.slice(start, batch_rows)

    def _blocks(self, file: DataFile) -> Iterator[_Block]:
        line, rest = 1, b""
        try:
            with open_text(file) as handle:
                while data := handle.read(_BLOCK):
                    if line == 1 and not rest and data.lstrip()[:1] == b"[":
                        raise DataError(
                            f"{file.name} is one JSON array; what is read is JSON lines, one object a line "
                            "(`jq -c '.[]'` makes them)"
                        )
                    head, newline, tail = (rest + data).rpartition(b"\n")
                    rest = tail
                    if newline:
                        yield _Block(head + newline, line)
                        line += head.count(b"\n") + 1
        except DAMAGED as error:
            raise DataError(f"{file.name} is damaged or cut off: {error}") from error
        if rest.strip():
            yield _Block(rest, line)

    def _fast(
        self, block: _Block, schema: pa.Schema, wanted: Sequence[pa.Field], everything: bool
    ) -> pa.Table | None:
        """The block by Arrow's parser, or None when a value is not exactly of its column's type."""
        if any(pa.types.is_map(column.type) for column in wanted):
            return None
        stored = [
            pa.field(column.name, pa.string() if pa.types.is_timestamp(column.type) else column.type)
            for column in wanted
        ]
        try:
            block.data.decode()
            table = arrow_json.read_json(
                io.BytesIO(block.data),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=pa.schema(stored),
                    unexpected_field_behavior="infer" if everything else "ignore",
                ),
            )
            if everything and set(table.column_names) - set(schema.names) - self._ignored:
                return None
            form = self.config.time_format
            arrays = [cast_with_times(table.column(one.name), one.type, form) for one in wanted]
        except (pa.ArrowException, UnicodeDecodeError, CastError):
            return None
        return pa.table(arrays, schema=pa.schema(wanted))

    def _exact(
        self, file: DataFile, block: _Block, schema: pa.Schema, wanted: Sequence[pa.Field], everything: bool
    ) -> pa.Table:
        """The block line by line: finds what is wrong, and where."""
        lines, rows = [], []
        for line, row in self._objects(file, block, self.faults):
            lines.append(line)
            rows.append(row)
            if everything:
                self._check_new(file, line, row, schema)
        arrays = [
            self._column(file, column, [row.get(column.name) for row in rows], lines) for column in wanted
        ]
        return pa.table(arrays, schema=pa.schema(wanted))

    def _objects(self, file: DataFile, block: _Block, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
        for line, text in enumerate(block.data.split(b"\n"), start=block.first_line):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except UnicodeDecodeError as error:
                faults.bad_row(f"{file.name}, line {line}: not UTF-8 at byte {error.start + 1} of the line")
                continue
            except ValueError as error:
                faults.bad_row(f"{file.name}, line {line}: not JSON: {error}: {text[:80]!r}")
                continue
            if not isinstance(row, dict):
                faults.bad_row(f"{file.name}, line {line}: not an object but {text[:80]!r}")
                continue
            yield line, row

    def _check_new(self, file: DataFile, line: int, row: dict[str, Any], schema: pa.Schema) -> None:
        for name in row.keys() - set(schema.names) - self._ignored:
            kind = _kind(row[name])
            if kind is None:
                self._ignored.add(name)
                continue
            raise WidenError(f"{file.name}, line {line}: the new key {name!r}", name, kind)

    def _column(self, file: DataFile, column: pa.Field, values: list[Any], lines: list[int]) -> pa.Array:
        try:
            return _array(values, column.type, self.config.time_format)
        except CastError as error:
            place = f"{file.name}, line {lines[error.row]}"
            if column.name in self.declared:
                raise SchemaError(
                    f"{place}: {column.name!r} is declared as {column.type}, but holds {error.value!r}"
                    f"{time_hint(column.type, error.value)}"
                ) from error
            wider = _widen(column.type, _kind(error.value))
            if wider is None or wider == column.type:
                raise SchemaError(
                    f"{place}: {column.name!r} holds {error.value!r}, but is {article(column.type)} before; state its "
                    f"type under `columns:`"
                ) from error
            raise WidenError(f"{place}: {column.name!r} holds {error.value!r}", column.name, wider) from error


def _kind(value: Any) -> pa.DataType | None:
    """The type of one JSON value, or None for one that no column can hold."""
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -(2**63) <= value < 2**63 else pa.string()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, dict):
        numbers = all(isinstance(item, (int, float)) or item is None for item in value.values())
        return _MAP if numbers else None
    inner: pa.DataType | None = pa.null()
    for item in value:
        kind = _kind(item)
        inner = None if kind is None or is_list(kind) or kind == _MAP else _widen(inner, kind)
    return None if inner is None else pa.list_(inner)


def _widen(left: pa.DataType | None, right: pa.DataType | None) -> pa.DataType | None:
    if left is None or right is None:
        return None
    both = unify(left, right)
    if both is not None:
        return both
    whole = {left, right} == {pa.int64(), pa.string()}
    timed = pa.types.is_timestamp(left) and right == pa.string()
    return pa.string() if whole or timed else None


def _text_kind(values: list[Any], form: str | None) -> pa.DataType:
    """Strings that are all times, in ISO 8601 or the form stated, are timestamps; others stay strings, "12" too."""
    if not all(value is None or isinstance(value, str) for value in values):
        return pa.string()
    kind = infer(pa.array(values, pa.string()), form)
    return kind if pa.types.is_timestamp(kind) else pa.string()


def _array(values: list[Any], kind: pa.DataType, form: str | None) -> pa.Array:
    if pa.types.is_map(kind):
        pairs = [list(value.items()) if isinstance(value, dict) else value for value in values]
        return _checked(pairs, kind)
    if pa.types.is_timestamp(kind):
        numbers = any(isinstance(value, (int, float)) for value in values)
        return cast_with_times(_checked(values, pa.int64() if numbers else pa.string()), kind, form)
    if kind == pa.string():
        return _checked([str(value) if _is_whole(value) else value for value in values], kind)
    if is_list(kind) and kind.value_type == pa.string():
        return _checked([_texts(value) for value in values], kind)
    return _checked(values, kind)


def _texts(value: Any) -> Any:
    return [str(item) if _is_whole(item) else item for item in value] if isinstance(value, list) else value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of values that are exactly of the type.

    Raises:
        CastError: For the first that is not: Arrow itself would cut 2.5 to 2 and take true for 1.
    """
    for row, value in enumerate(values):
        if not _is_of(value, kind):
            raise CastError(value, row, kind)
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError):
        for row, value in enumerate(values):
            try:
                pa.array([value], kind)
            except (pa.ArrowException, OverflowError, TypeError) as error:
                raise CastError(value, row, kind) from error
        raise


def _is_of(value: Any, kind: pa.DataType) -> bool:
    if value is None:
        return True
    if is_list(kind):
        return isinstance(value, list) and all(_is_of(item, kind.value_type) for item in value)
    if pa.types.is_map(kind):
        return isinstance(value, list) and all(_is_of(item, pa.float64()) for _, item in value)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_integer(kind):
        return _is_whole(value)
    if pa.types.is_floating(kind):
        return isinstance(value, float) or _is_whole(value)
    return isinstance(value, str) if pa.types.is_string(kind) else False
