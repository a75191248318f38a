"""Exact search agrees with sorting everything."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from easyrec.export import search as search_module
from easyrec.export.search import search, top_k

FEW = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 1.0, np.nan])


@given(hnp.arrays(np.float32, st.integers(0, 30), elements=FEW), st.integers(0, 35))
def test_top_k_is_a_stable_sort(scores: npt.NDArray[np.float32], k: int) -> None:
    usable = [position for position, score in enumerate(scores) if score > -np.inf]
    expected = sorted(usable, key=lambda position: (-scores[position], position))[:k]
    assert top_k(scores, k).tolist() == expected


@pytest.mark.parametrize("block", [1, 50, 1 << 23])
def test_search_agrees_with_the_full_product(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(search_module, "_BLOCK_SCORES", block)
    random = np.random.default_rng(0)
    queries = random.normal(size=(7, 4)).astype(np.float32)
    vectors = random.normal(size=(20, 4)).astype(np.float32)
    excluded = [random.choice(20, size, replace=False) for size in range(7)]
    for query, found in enumerate(search(queries, vectors, 18, excluded)):
        scores = vectors.astype(np.float64) @ queries[query]
        allowed = [item for item in np.argsort(-scores) if item not in excluded[query]]
        assert found[0].tolist() == allowed[:18]
        np.testing.assert_allclose(found[1], scores[found[0]], rtol=1e-5)
