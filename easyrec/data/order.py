"""In which order rows are read: as they lie in the files, or mixed from several places at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from easyrec.data.readers.base import BATCH_ROWS
from easyrec.data.row_groups import Segment, Source

INTERLEAVED = 8
"""Segments that are read side by side when rows are shuffled."""
SEGMENT_ROWS = 262_144
"""Larger row groups are cut into segments of about this size, so that a few large ones are mixed well too."""

Piece = tuple[NDArray[np.int64], pa.Table]


def pieces(source: Source, columns: Sequence[str], seed: int | None) -> Iterator[Piece]:
    """All rows of a source once, in tables of about `BATCH_ROWS` rows.

    Args:
        source: The table.
        columns: The columns to read.
        seed: None for the order of the files; else segments come in random order, several side by side.

    Yields:
        Positions of the rows in the whole table, and the rows.
    """
    if seed is None:
        yield from _coalesced(_batches(source, source.groups, columns, BATCH_ROWS))
        return
    segments = source.segments(SEGMENT_ROWS)
    order = np.random.default_rng(seed).permutation(len(segments))
    mixed = _interleaved(source, [segments[index] for index in order], columns)
    yield from _coalesced(mixed)


def _batches(
    source: Source, segments: Sequence[Segment], columns: Sequence[str], rows: int
) -> Iterator[tuple[int, pa.Table]]:
    for segment in segments:
        yield from source.read(segment, columns, rows)


def _interleaved(
    source: Source, segments: Sequence[Segment], columns: Sequence[str]
) -> Iterator[tuple[int, pa.Table]]:
    waiting = iter(segments)
    rows = BATCH_ROWS // INTERLEAVED
    running: list[Iterator[tuple[int, pa.Table]]] = []
    while True:
        while len(running) < INTERLEAVED and (segment := next(waiting, None)) is not None:
            running.append(source.read(segment, columns, rows))
        if not running:
            return
        for reader in list(running):
            batch = next(reader, None)
            if batch is None:
                running.remove(reader)
            else:
                yield batch


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
