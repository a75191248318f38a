from __future__ import annotations

import numpy as np
import pytest

from easyrec.config.embedding import Initializer
from easyrec.embedding.collection import EmbeddingCollection
from easyrec.embedding.initializers import BLOCK_ROWS, initial_rows
from easyrec.features.outputs import IdsOutput


def rows(
    initializer: Initializer, count: int, *, seed: int = 0, table: str = "t", dim: int = 3
) -> np.ndarray:
    return np.concatenate(list(initial_rows(initializer, seed, table, count, dim)))


@pytest.mark.parametrize("kind", ["uniform", "normal", "truncated_normal", "zeros"])
def test_growing_a_table_leaves_its_first_rows_as_they_were(kind):
    initializer = Initializer(type=kind)
    small, large = rows(initializer, BLOCK_ROWS + 10), rows(initializer, 2 * BLOCK_ROWS + 7)
    assert small.dtype == np.float32
    np.testing.assert_array_equal(small, large[: len(small)])


def test_rows_depend_on_the_seed_and_on_the_name_of_the_table():
    first = rows(Initializer(), 5)
    assert not np.array_equal(first, rows(Initializer(), 5, seed=1))
    assert not np.array_equal(first, rows(Initializer(), 5, table="u"))


def test_rows_are_pinned():
    # These values are in trained models: a change here changes what a configuration and its seed mean.
    np.testing.assert_allclose(
        rows(Initializer(), 2, seed=7, table="movie_id"),
        [[-0.06333026, 0.00783597, 0.0613023], [-0.02385313, 0.09026403, -0.0795648]],
        rtol=1e-4,
    )


def test_distributions_have_the_scale_they_say():
    uniform = rows(Initializer(type="uniform", scale=0.2), 20_000)
    assert uniform.min() < -0.199
    assert uniform.max() > 0.199
    assert np.abs(uniform).max() <= 0.2
    normal = rows(Initializer(type="normal", scale=0.2), 20_000)
    assert normal.std() == pytest.approx(0.2, rel=0.02)
    truncated = rows(Initializer(type="truncated_normal", scale=0.2), 20_000)
    assert np.abs(truncated).max() <= 0.4
    assert truncated.std() == pytest.approx(0.2 * 0.8796, rel=0.02)  # of a normal cut at two deviations
    assert not rows(Initializer(type="zeros"), 10).any()


def test_the_order_of_features_and_the_number_of_shards_change_no_row():
    outputs = [IdsOutput("a", "a", 9, 2, "user"), IdsOutput("b", "b", 5, 2, "item")]
    one = EmbeddingCollection(outputs, seed=4)
    other = EmbeddingCollection(outputs[::-1], seed=4, shards=3)
    np.testing.assert_array_equal(
        one.tables["embedding/2"].read(0, 9), other.tables["embedding/2"].read(5, 14)
    )
    np.testing.assert_array_equal(
        one.tables["embedding/2"].read(9, 14), other.tables["embedding/2"].read(0, 5)
    )
