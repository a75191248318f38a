"""An index finds what exact search finds, items that are hidden or new included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from easyrec.errors import BundleError
from serving.models import search as search_module
from serving.models.search import ExactSearch, FaissSearch, make_search
from serving.models.served import load_served_model


@pytest.fixture(scope="module")
def vectors() -> Any:
    random = np.random.default_rng(0)
    centres = random.normal(size=(40, 16))
    return (centres[random.integers(0, 40, 5000)] + 0.3 * random.normal(size=(5000, 16))).astype(np.float32)


def test_exact_search_is_a_sorted_product(vectors: Any) -> None:
    query = vectors[7]
    allowed = np.ones(5000, bool)
    allowed[7] = False
    rows, scores = ExactSearch(vectors)(query, 10, allowed)
    expected = np.argsort(-np.where(allowed, vectors @ query, -np.inf), kind="stable")[:10]
    assert rows.tolist() == expected.tolist()
    np.testing.assert_allclose(scores, vectors[rows] @ query, rtol=1e-5)


def test_faiss_finds_nearly_all_and_nothing_hidden(vectors: Any) -> None:
    pytest.importorskip("faiss")
    index, exact = FaissSearch(vectors), ExactSearch(vectors)
    random = np.random.default_rng(1)
    allowed = random.random(5000) < 0.7
    hits = 0
    for query in vectors[:20]:
        rows, scores = index(query, 50, allowed)
        assert len(rows) == 50
        assert allowed[rows].all()
        np.testing.assert_allclose(scores, vectors[rows] @ query, rtol=1e-4)
        assert (np.diff(scores) <= 0).all()
        hits += len(set(rows.tolist()) & set(exact(query, 50, allowed)[0].tolist()))
    assert hits > 0.9 * 20 * 50


def test_few_allowed_items_are_found_exactly(vectors: Any) -> None:
    pytest.importorskip("faiss")
    allowed = np.zeros(5000, bool)
    allowed[[3, 4444]] = True
    rows, _ = FaissSearch(vectors)(vectors[0], 10, allowed)
    assert set(rows.tolist()) == {3, 4444}


def test_a_model_with_an_index_knows_new_items(towers: Any) -> None:
    pytest.importorskip("faiss")
    model = load_served_model(towers.folder, search="faiss")
    model.put_items({"new": {"genres": "g1"}, "m4": {}})
    model.remove_items(["m5"])
    vector = model.user_vector({"user_id": 103, "recent": ["m1"]})
    rows, scores = model.search(vector, 99)
    assert sorted(rows.tolist()) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    np.testing.assert_allclose(scores, model.catalogue.vectors_of(rows) @ vector, rtol=1e-4)
    assert model.search(vector, 2)[0].tolist() == rows[:2].tolist()


def test_what_is_missing_or_unknown_is_said(vectors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BundleError, match="search must be exact or faiss, got 'annoy'"):
        make_search("annoy", vectors)  # type: ignore[arg-type]
    monkeypatch.setattr(search_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BundleError, match=r"pip install easyrec\[faiss\]"):
        make_search("faiss", vectors)
