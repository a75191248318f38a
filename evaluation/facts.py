"""Works out what metrics beyond accuracy need to know of a catalogue."""

import numpy as np

from evaluation.arrays import FloatArray, IntArray, SparseRows
from evaluation.baselines import unit_rows
from evaluation.errors import DataError
from evaluation.interactions import Interactions, ItemAttributes
from evaluation.metrics.catalogue import CatalogueFacts
from evaluation.metrics.statistic import ratio
from evaluation.protocol import rank_full_catalogue


def catalogue_facts(
    n_items: int,
    interactions: Interactions | None = None,
    attributes: ItemAttributes | None = None,
    seen: SparseRows | None = None,
    k: int = 20,
    *,
    users: IntArray | None = None,
) -> CatalogueFacts:
    """Popularity, expected lists and attributes of a catalogue.

    Args:
        n_items: Number of items.
        interactions: What users took in training.
        attributes: Attributes of the items.
        seen: CSR [users, items] of what is never recommended.
        k: Length of the expected lists.
        users: The judged users; all by default.

    Returns:
        The facts.

    Raises:
        DataError: Numbers of items that differ.
    """
    for name, known in (("interactions", interactions), ("attributes", attributes)):
        if known is not None and known.n_items != n_items:
            raise DataError(f"{name} are of {known.n_items:,} items but {n_items:,} items are ranked.")
    vectors = None if attributes is None else unit_rows(attributes.tokens)
    if interactions is None:
        return CatalogueFacts(n_items, vectors=vectors)
    taken = interactions.matrix(binary=True)
    popularity: FloatArray = np.bincount(taken.indices, minlength=n_items).astype(np.float64)
    per_user = np.diff(taken.indptr).astype(np.float64)
    expected = rank_full_catalogue(
        lambda block: np.tile(popularity, (len(block), 1)),
        interactions.n_users,
        n_items,
        seen,
        k,
        users=users,
    )
    return CatalogueFacts(
        n_items,
        n_users=int((per_user > 0).sum()),
        popularity=popularity,
        own_popularity=ratio(taken @ popularity, per_user),
        expected=expected,
        vectors=vectors,
    )
