"""A table in one or many files, with one schema, that can be read row group by row group in any order."""

from __future__ import annotations

import bisect
import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from easyrec.data.column_types import cast
from easyrec.data.files import DataFile
from easyrec.data.readers.base import BATCH_ROWS, Faults, Reader
from easyrec.data.store import Store
from easyrec.errors import DataError, SchemaError


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one file: a row group, a part of one, or several small ones.

    Attributes:
        file: Index of the file.
        groups: Indices of the row groups in the file.
        start: First row within these row groups.
        rows: How many.
        first_row: Position of the first row in the whole table.
    """

    file: int
    groups: tuple[int, ...]
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
        strict_fingerprint: What it is where nothing may be left out.
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
        self.fingerprint = self.strict_fingerprint = key
        self._reader = reader
        self._names = list(names)
        self._cut = False
        self.groups: list[Segment] = []
        self._first_rows: list[int] = []
        position = 0
        for index, file in enumerate(files):
            self._first_rows.append(position)
            for group, rows in enumerate(reader.row_groups(file)):
                if rows:
                    self.groups.append(Segment(index, (group,), 0, rows, position))
                position += rows
        self.num_rows = position

    @property
    def unread(self) -> Mapping[str, pa.DataType]:
        """Columns whose types are not read."""
        return self._reader.unread

    def with_types(self, types: Mapping[str, pa.DataType]) -> Source:
        """The same rows with some columns read as other types; a value that does not fit is an error then."""
        other = copy.copy(self)
        other.schema = pa.schema(
            [column.with_type(types.get(column.name, column.type)) for column in self.schema]
        )
        return other

    def segments(self, max_rows: int) -> list[Segment]:
        """All rows, in order, in segments of at most `max_rows` rows.

        Larger row groups are cut, neighbours in a file that fit together are joined; those of a part stay as they are.
        """
        if self._cut:
            return list(self.groups)
        cut: list[Segment] = []
        for group in self.groups:
            last = cut[-1] if cut else None
            if (
                last is not None
                and last.file == group.file
                and last.rows + group.rows <= max_rows
                and last.start == 0
            ):
                cut[-1] = replace(last, groups=(*last.groups, *group.groups), rows=last.rows + group.rows)
                continue
            pieces = -(-group.rows // max_rows)
            bounds = [group.rows * piece // pieces for piece in range(pieces + 1)]
            cut += [
                replace(group, start=start, rows=stop - start, first_row=group.first_row + start)
                for start, stop in itertools.pairwise(bounds)
            ]
        return cut

    def part(self, segments: Sequence[Segment]) -> Source:
        """Some of the rows, as segments of `segments`; positions and places stay those of the whole."""
        other = copy.copy(self)
        other._cut = True
        other.groups = list(segments)
        other.num_rows = sum(segment.rows for segment in segments)
        return other

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
        stored = [name for name in names if not (name in partitions and is_partition(self.schema, name))]
        position, left = -segment.start, segment.rows
        for table in self._tables(file, stored, segment, batch_rows):
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

    def _tables(
        self, file: DataFile, columns: Sequence[str], segment: Segment, batch_rows: int
    ) -> Iterator[pa.Table]:
        """The tables of a segment's row groups; what follows a damaged place is left out when faults are skipped."""
        try:
            yield from self._reader.read(file, self.schema, columns, segment.groups, batch_rows)
        except SchemaError:
            raise
        except DataError as error:
            self.faults.bad_file(error)

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

    def _with_partitions(
        self, table: pa.Table, partitions: Mapping[str, str | None], names: Sequence[str]
    ) -> pa.Table:
        columns = {}
        for name in names:
            if name in partitions and is_partition(self.schema, name):
                kind = self.schema.field(name).type
                value = cast(pa.array([partitions[name]], pa.string()), kind)
                columns[name] = value.take(pa.array([0] * table.num_rows, pa.int32()))
            else:
                columns[name] = table.column(name)
        return pa.table(columns)


def is_partition(schema: pa.Schema, name: str) -> bool:
    """Whether a column is a hive partition: its values are in the paths, not in the files."""
    index = schema.get_field_index(name)
    return index >= 0 and (schema.field(index).metadata or {}).get(b"partition") == b"1"
