"""In which order rows are read: as they lie in the files, or mixed from several places at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from easyrec.data.readers.base import BATCH_ROWS
from easyrec.data.row_groups import Segment, Source

SEGMENT_ROWS = 262_144
"""Larger row groups are cut into segments of at most this size, smaller ones are joined."""
SMALLEST_SEGMENT = 8_192
_MANY_COLUMNS = 16

Piece = tuple[NDArray[np.int64], pa.Table]


def pieces(source: Source, columns: Sequence[str], seed: int | None) -> Iterator[Piece]:
    """All rows of a source once, in tables of about `BATCH_ROWS` rows.

    With a seed the rows are divided into a few stretches of equal length, one beside the other, which are read side by
    side: each piece holds rows of all of them, so that a file sorted by label, user or time gives pieces that resemble
    the whole. Each stretch is read in segments of random order.

    Args:
        source: The table.
        columns: The columns to read.
        seed: None for the order of the files.

    Yields:
        Positions of the rows in the whole table, and the rows.
    """
    if seed is None:
        yield from _coalesced(_batches(source, source.groups, columns, BATCH_ROWS))
    else:
        yield from _coalesced(_interleaved(source, columns, np.random.default_rng(seed)))


def _batches(
    source: Source, segments: Sequence[Segment], columns: Sequence[str], rows: int
) -> Iterator[tuple[int, pa.Table]]:
    for segment in segments:
        yield from source.read(segment, columns, rows)


def _interleaved(
    source: Source, columns: Sequence[str], random: np.random.Generator
) -> Iterator[tuple[int, pa.Table]]:
    # An open Parquet reader holds a few decompressed pages of each column, some 2 MB a column.
    wanted = 4 if len(columns) > _MANY_COLUMNS else 8
    largest = max(min(SEGMENT_ROWS, -(-source.num_rows // wanted)), min(SMALLEST_SEGMENT, SEGMENT_ROWS))
    segments = source.segments(largest)
    ends = np.cumsum([segment.rows for segment in segments])
    stretch = np.minimum((ends - 1) * wanted // source.num_rows, wanted - 1)
    readers = []
    for number in range(wanted):
        mine = np.flatnonzero(stretch == number)
        chosen = [segments[index] for index in random.permutation(mine)]
        rows = BATCH_ROWS // wanted
        readers.append(_equal(_batches(source, chosen, columns, rows), rows))
    while readers:
        for reader in list(readers):
            batches = next(reader, None)
            if batches is None:
                readers.remove(reader)
            else:
                yield from batches


def _equal(batches: Iterator[tuple[int, pa.Table]], rows: int) -> Iterator[list[tuple[int, pa.Table]]]:
    """Groups of tables that have exactly `rows` rows together; the last group may have fewer."""
    group: list[tuple[int, pa.Table]] = []
    missing = rows
    for position, table in batches:
        first_row, rest = position, table
        while rest.num_rows >= missing:
            yield [*group, (first_row, rest.slice(0, missing))]
            first_row, rest = first_row + missing, rest.slice(missing)
            group, missing = [], rows
        if rest.num_rows:
            group.append((first_row, rest))
            missing -= rest.num_rows
    if group:
        yield group


def _coalesced(batches: Iterator[tuple[int, pa.Table]]) -> Iterator[Piece]:
    """Joins small tables until they have `BATCH_ROWS` rows."""
    pending: list[tuple[int, pa.Table]] = []
    rows = 0
    for first_row, table in batches:
        pending.append((first_row, table))
        rows += table.num_rows
        if rows >= BATCH_ROWS:
            yield _joined(pending)
            pending, rows = [], 0
    if pending:
        yield _joined(pending)


def _joined(pending: Sequence[tuple[int, pa.Table]]) -> Piece:
    positions = np.concatenate([np.arange(first, first + table.num_rows) for first, table in pending])
    tables = [table for _, table in pending]
    joined = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
    return positions, joined
