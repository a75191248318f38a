"""How alike candidates are: by their contents, by a two-tower model's vectors, or by the categories of a column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse

from easyrec.errors import ConfigError
from serving.funnel.candidates import Rows
from serving.funnel.filters import categories
from serving.funnel.query import Query
from serving.funnel.stages import Resources

CONTENT, VECTORS = "content", "vectors"


def similarity(
    query: Query, rows: Rows, by: str, separator: str | None, resources: Resources
) -> npt.NDArray[np.float32]:
    """[M, M] cosines between items, 1 on the diagonal.

    Args:
        query: The request.
        rows: [M] rows of the catalogue.
        by: `content`, `vectors`, or a column of the item table.
        separator: What stands between the values of that column, if it is a text that holds several.
        resources: Where contents are.

    Raises:
        ConfigError: There is nothing to compare by.
    """
    if by == CONTENT:
        vectors = _contents(query, rows, resources)
    elif by == VECTORS:
        vectors = _vectors(query, rows)
    else:
        owner, values = categories(query.catalogue.column(by, rows), separator)
        codes = values.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
        kept = codes >= 0
        shape = (len(rows), int(codes.max(initial=-1)) + 1)
        vectors = np.zeros(shape, np.float32)
        vectors[owner[kept], codes[kept]] = 1
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    alike = np.asarray(vectors @ vectors.T, np.float32)
    np.fill_diagonal(alike, 1)
    return alike


def _contents(query: Query, rows: Rows, resources: Resources) -> npt.NDArray[np.float32]:
    tables = resources.tables.of(query.model)
    if tables.content is None:
        raise ConfigError(
            "the bundle describes no items: its model has no item features with values in common"
        )
    inside = rows < tables.size
    parts = [tables.content.rows(rows[inside])]
    if not inside.all():
        parts.append(tables.content.vectors(query.catalogue.table(rows[~inside])))
    stacked = sparse.csr_array(sparse.vstack(parts)).tocoo()
    used, column = np.unique(stacked.col, return_inverse=True)
    order = np.concatenate([np.flatnonzero(inside), np.flatnonzero(~inside)])
    vectors = np.zeros((len(rows), len(used)), np.float32)
    vectors[order[stacked.row], column] = stacked.data
    return vectors


def _vectors(query: Query, rows: Rows) -> npt.NDArray[np.float32]:
    for model in (query.model, *query.models.values()):
        if model.two_tower:
            places = rows if model is query.model else model.catalogue.rows(query.catalogue.ids.take(rows))
            vectors = model.catalogue.vectors_of(np.maximum(places, 0))
            return np.where((places >= 0)[:, None], vectors, 0).astype(np.float32)
    raise ConfigError("`by: vectors` needs a two_tower model, and none is loaded; use `by: content`")
