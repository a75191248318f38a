"""How embedding rows start: a function of the seed, the table's name and the row alone.

Growing a table, adding others or changing their order therefore leaves the first values of every row as they were.
Rows are drawn in blocks, each from a counter-based generator keyed by (seed, table, block), so that any part of a
table can be made without the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from easyrec.config.embedding import Initializer

BLOCK_ROWS = 4096

Rows = npt.NDArray[np.float32]


def initial_rows(initializer: Initializer, seed: int, table: str, rows: int, dim: int) -> Iterator[Rows]:
    """The first values of a table, block by block.

    Args:
        initializer: The distribution.
        seed: Seed of the run.
        table: Name of the table.
        rows: How many rows are wanted.
        dim: Values per row.

    Yields:
        Arrays [at most BLOCK_ROWS, dim] float32, in order of rows.
    """
    for start in range(0, rows, BLOCK_ROWS):
        yield initial_block(initializer, seed, table, start // BLOCK_ROWS, dim)[: rows - start]


def initial_block(initializer: Initializer, seed: int, table: str, block: int, dim: int) -> Rows:
    """The rows from `block * BLOCK_ROWS` on, [BLOCK_ROWS, dim]."""
    shape = (BLOCK_ROWS, dim)
    if initializer.type == "zeros" or initializer.scale == 0:
        return np.zeros(shape, np.float32)
    digest = hashlib.sha256(f"{seed}\n{block}\n{table}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    if initializer.type == "uniform":
        values = generator.random(shape, np.float32)
        values *= 2
        values -= 1
    else:
        values = generator.standard_normal(shape, np.float32)
        if initializer.type == "truncated_normal":
            _redraw(values, generator)
    values *= np.float32(initializer.scale)
    return values


def _redraw(values: Rows, generator: np.random.Generator) -> None:
    """Draws values beyond two standard deviations again, in place, as Keras's truncated normal does."""
    flat = values.reshape(-1)
    far = np.flatnonzero(np.abs(flat) > 2)
    while far.size:
        flat[far] = generator.standard_normal(far.size, np.float32)
        far = far[np.abs(flat[far]) > 2]
