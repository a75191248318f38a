"""What items are alike by: their tags, categories and number ranges, weighted by rarity (TF-IDF, Salton 1988).

candidates/content_tokens.parquet      row t: `token`, such as "genres=comedy", and its weight `idf`
candidates/content_starts.npy          [N + 1] int64    where the tokens of item i start
candidates/content_items.npy           [T] int32        tokens of all items, one item after the other
candidates/content_weights.npy         [T] float32      their weights; the squares of an item's weights add up to 1
candidates/content_neighbors.npy       [N, K] int32     the items most alike, best first, -1 for none
candidates/content_scores.npy          [N, K] float32   cosines

How a column becomes tokens is kept in the metadata of the table of tokens, so that an item that is new to a service is
described as those of the bundle are. Imports no TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from easyrec.config.base import StrictModel
from easyrec.errors import BundleError

TOKENS = "content_tokens.parquet"
STARTS, ITEMS, WEIGHTS = "content_starts.npy", "content_items.npy", "content_weights.npy"
NEIGHBORS, SCORES = "content_neighbors.npy", "content_scores.npy"
K = 50
POSTINGS = 500
"""An item's neighbours by a token are looked for among so many of the most popular items that have it."""
BUCKETS = 10
_BLOCK_ITEMS = 1024
_METADATA = b"easyrec.columns"


class ContentColumn(StrictModel):
    """How a column of the item table becomes tokens."""

    name: str
    """The column."""
    separator: str | None = None
    """What stands between the values of a text, if it holds several."""
    edges: tuple[float, ...] | None = None
    """Between them lie the ranges of a number; None for a column of categories."""


@dataclass(frozen=True)
class Content:
    """Items as weighted tokens.

    Attributes:
        columns: What the tokens are made of.
        tokens: [V] texts.
        idf: [V] weight of each, log(1 + N / items that have it).
        starts: [N + 1] where the tokens of each item start; may be memory-mapped, as the arrays below.
        items: [T] tokens of all items.
        weights: [T] their weights.
        neighbors: [N, K] rows of the items most alike, best first, -1 for none.
        scores: [N, K] their cosines.
    """

    columns: tuple[ContentColumn, ...]
    tokens: pa.Array
    idf: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    items: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    neighbors: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]

    @property
    def matrix(self) -> sparse.csr_array:
        """[N, V] sparse, each row of length 1, or 0 for an item without tokens; reads all of the arrays."""
        return self.rows(np.arange(len(self.starts) - 1))

    def rows(self, rows: npt.NDArray[np.int64]) -> sparse.csr_array:
        """[M, V] some rows of `matrix`."""
        lengths = self.starts[rows + 1] - self.starts[rows]
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
            self.starts[rows] - (ends - lengths), lengths
        )
        starts = np.concatenate([[0], ends])
        shape = (len(rows), len(self.tokens))
        return sparse.csr_array((self.weights[places], self.items[places], starts), shape=shape)

    @cached_property
    def _token_rows(self) -> dict[str, int]:
        return {token: row for row, token in enumerate(self.tokens.to_pylist())}

    @cached_property
    def _postings(self) -> sparse.csr_array:
        return sparse.csr_array(self.matrix.T)

    def vectors(self, table: pa.Table) -> sparse.csr_array:
        """[B, V] sparse: items described as those of the bundle are; tokens that the bundle lacks are passed over.

        Args:
            table: Has the columns of the item table.
        """
        rows, tokens = [], []
        for row, token in _tokens(table, self.columns):
            rows.append(row)
            tokens.append(token)
        texts = pa.concat_arrays(tokens).to_pylist() if tokens else []
        found = np.array([self._token_rows.get(text, -1) for text in texts], np.int64)
        row = np.concatenate(rows) if rows else np.empty(0, np.int64)
        return _matrix(row[found >= 0], found[found >= 0], self.idf, len(table))

    def similar(
        self, vector: sparse.csr_array, n: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Rows and cosines of the items most alike to one vector [1, V], best first."""
        scores = (vector @ self._postings).tocoo()
        order = np.lexsort((scores.col, -scores.data))[:n]
        return scores.col[order].astype(np.int64), scores.data[order].astype(np.float32)

    def write(self, folder: Path) -> None:
        """Writes the files listed at the top of this module."""
        metadata = json.dumps([column.model_dump() for column in self.columns])
        schema = pa.schema([("token", pa.string()), ("idf", pa.float32())], {_METADATA: metadata.encode()})
        pq.write_table(
            pa.table([self.tokens, pa.array(self.idf)], schema=schema), folder / TOKENS, compression="zstd"
        )
        np.save(folder / STARTS, self.starts)
        np.save(folder / ITEMS, self.items)
        np.save(folder / WEIGHTS, self.weights)
        np.save(folder / NEIGHBORS, self.neighbors)
        np.save(folder / SCORES, self.scores)

    @classmethod
    def read(cls, folder: Path, items: int) -> Content | None:
        """Reads what `write` has written, arrays memory-mapped; None where there is nothing.

        Args:
            folder: The folder of candidates.
            items: N.

        Raises:
            BundleError: A file cannot be read, or does not fit the catalogue.
        """
        if not (folder / TOKENS).exists():
            return None
        try:
            table = pq.read_table(folder / TOKENS)
            columns = [
                ContentColumn.model_validate(one) for one in json.loads(table.schema.metadata[_METADATA])
            ]
            starts, ids, weights, neighbors, scores = (
                np.load(folder / name, mmap_mode="r", allow_pickle=False)
                for name in (STARTS, ITEMS, WEIGHTS, NEIGHBORS, SCORES)
            )
        except (OSError, ValueError, EOFError, KeyError, TypeError, pa.ArrowException) as error:
            raise BundleError(f"the item contents in {folder} cannot be read: {error}") from error
        if not len(starts) - 1 == len(neighbors) == len(scores) == items:
            raise BundleError(f"the item contents in {folder} have {len(starts) - 1} rows, expected {items}")
        if not starts[-1] == len(ids) == len(weights):
            raise BundleError(f"the item contents in {folder} have {len(ids)} tokens, expected {starts[-1]}")
        tokens = table["token"].combine_chunks()
        return cls(tuple(columns), tokens, table["idf"].to_numpy(), starts, ids, weights, neighbors, scores)


def describe_items(
    table: pa.Table, columns: Mapping[str, str | None], popularity: npt.NDArray[np.float64]
) -> Content | None:
    """Items as weighted tokens, and which are alike.

    Args:
        table: [N] the item table.
        columns: Columns to describe items by, each with the separator of its texts or None.
        popularity: [N] of items equally alike, the more popular ones are neighbours.

    Returns:
        The contents, or None when no two items have a token in common.
    """
    known = {name: separator for name, separator in columns.items() if name in table.column_names}
    described = tuple(_describe(table[name], name, separator) for name, separator in known.items())
    parts = list(_tokens(table, described))
    if not parts:
        return None
    row = np.concatenate([rows for rows, _ in parts])
    encoded = pa.concat_arrays([tokens for _, tokens in parts]).dictionary_encode()
    token, tokens = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)
    pairs = np.stack(np.divmod(np.unique(row * tokens + token), tokens))  # each token of an item once
    counts = np.bincount(pairs[1], minlength=tokens)
    shared = counts > 1
    if not shared.any():
        return None
    renumbered = np.cumsum(shared) - 1
    pairs = pairs[:, shared[pairs[1]]]
    idf = np.log1p(len(table) / counts[shared]).astype(np.float32)
    matrix = _matrix(pairs[0], renumbered[pairs[1]], idf, len(table))
    neighbors, scores = _neighbors(matrix, popularity)
    tokens = encoded.dictionary.filter(pa.array(shared))
    starts, ids = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    return Content(described, tokens, idf, starts, ids, matrix.data.astype(np.float32), neighbors, scores)


def _describe(column: pa.ChunkedArray, name: str, separator: str | None) -> ContentColumn:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return ContentColumn(name=name, separator=separator)
    values = column.drop_null().cast(pa.float64(), safe=False).to_numpy()
    values = values[np.isfinite(values)]
    if len(np.unique(values)) <= BUCKETS:
        return ContentColumn(name=name)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, BUCKETS + 1)[1:-1]))
    return ContentColumn(name=name, edges=tuple(float(edge) for edge in edges))


def _tokens(
    table: pa.Table, columns: Iterable[ContentColumn]
) -> Iterator[tuple[npt.NDArray[np.int64], pa.Array]]:
    """For each column, rows and tokens; a row has none where a value is missing."""
    for column in columns:
        values = table[column.name].combine_chunks()
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if column.edges is not None:
            values = _ranges(values, column.edges)
        elif column.separator is not None and pa.types.is_string(values.type):
            values = pc.split_pattern(values, column.separator)
        rows = np.arange(len(values))
        if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
            rows, values = np.repeat(rows, lengths), pc.list_flatten(values)
        try:
            texts = pc.utf8_trim_whitespace(values.cast(pa.string()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # nested values describe nothing
            continue
        kept = pc.fill_null(pc.greater(pc.binary_length(texts), 0), False)
        tokens = pc.binary_join_element_wise(f"{column.name}=", texts.filter(kept), "")
        yield rows[np.asarray(kept)], tokens


def _ranges(values: pa.Array, edges: Sequence[float]) -> pa.Array:
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # of 2^53 and beyond, too
    places = np.searchsorted(np.asarray(edges), numbers, side="right")
    return pa.array(places.astype(str), pa.string(), mask=~np.isfinite(numbers))


def _matrix(rows: npt.NDArray[Any], tokens: npt.NDArray[Any], idf: Any, size: int) -> sparse.csr_array:
    """[size, V] idf weights in rows of length 1."""
    entries = sparse.coo_array((idf[tokens].astype(np.float32), (rows, tokens)), shape=(size, len(idf)))
    matrix: sparse.csr_array = sparse.csr_array(entries)
    matrix.data = idf[matrix.indices]  # a token that an item has twice counts once
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix.data /= np.repeat(np.where(lengths > 0, lengths, 1), np.diff(matrix.indptr)).astype(np.float32)
    return matrix


def _neighbors(
    matrix: sparse.csr_array, popularity: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    size = matrix.shape[0]
    width = min(K, max(size - 1, 0))
    neighbors, scores = np.full((size, width), -1, np.int32), np.zeros((size, width), np.float32)
    place = np.empty(size, np.int64)
    place[np.lexsort((np.arange(size), -popularity))] = np.arange(size)
    postings = _shortened(matrix, place)
    for start in range(0, size, _BLOCK_ITEMS):
        alike = sparse.csr_array(matrix[start : start + _BLOCK_ITEMS] @ postings)
        rows, others, values = _best(alike, start, width, place)
        first = np.searchsorted(rows, np.arange(alike.shape[0]))
        rank = np.arange(len(rows)) - first[rows]
        kept = rank < width
        places = start + rows[kept], rank[kept]
        neighbors[places], scores[places] = others[kept], values[kept]
    return neighbors, scores


def _best(
    alike: sparse.csr_array, start: int, width: int, place: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Row, other item and cosine of at least the `width` best of each row, best first, the item itself left out.

    An item is alike to thousands, so only those that reach its last place are put in order.
    """
    ends, data = alike.indptr, alike.data
    least = np.zeros(alike.shape[0], np.float32)
    for row in range(alike.shape[0]):
        span = data[ends[row] : ends[row + 1]]
        last = len(span) - width - 1  # one more, because the item may be among them
        if last > 0:
            least[row] = np.partition(span, last)[last]
    lengths = np.diff(ends)
    reached = np.flatnonzero(data >= np.repeat(least, lengths))
    rows = np.searchsorted(ends, reached, side="right") - 1
    others, values = alike.indices[reached], data[reached]
    order = np.lexsort((place[others], -values, rows))
    order = order[others[order] != start + rows[order]]
    return rows[order], others[order], values[order]


def _shortened(matrix: sparse.csr_array, place: npt.NDArray[np.int64]) -> sparse.csr_array:
    """[V, N] which items have each token, at most `POSTINGS` of the most popular ones."""
    columns = matrix.tocoo()
    order = np.lexsort((place[columns.row], columns.col))
    token = columns.col[order]
    first = np.searchsorted(token, np.arange(matrix.shape[1]))
    kept = order[np.arange(len(order)) - first[token] < POSTINGS]
    return sparse.csr_array(
        (columns.data[kept], (columns.col[kept], columns.row[kept])), shape=matrix.shape[::-1]
    )
