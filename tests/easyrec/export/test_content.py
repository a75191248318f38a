"""Items as weighted tokens: against a plain formula, and the same for items that are new to a service."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easyrec.errors import BundleError
from easyrec.export import content as content_module
from easyrec.export.content import Content, describe_items

GENRES = ["comedy", "drama", "horror", "western", "noir"]


def films(size: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "id": list(range(size)),
            "genres": ["|".join(random.choice(GENRES, random.integers(0, 4))) or None for _ in range(size)],
            "keywords": [
                list(random.choice(["a", "b", "c", "d"], random.integers(0, 3))) for _ in range(size)
            ],
            "year": pa.array(random.integers(1950, 2020, size), pa.int64()),
            "stars": pa.array(random.integers(1, 4, size), pa.int64()),
        }
    )


COLUMNS = {"genres": "|", "keywords": None, "year": None, "stars": None, "absent": None}


def tokens_of(row: dict, edges: tuple[float, ...]) -> set[str]:
    found = {f"genres={one}" for one in (row["genres"] or "").split("|") if one}
    found |= {f"keywords={one}" for one in row["keywords"]}
    found |= {f"year={np.searchsorted(edges, row['year'], side='right')}", f"stars={row['stars']}"}
    return found


def by_hand(table: pa.Table, content: Content) -> list[dict[str, float]]:
    """TF-IDF vectors of length 1."""
    (edges,) = (column.edges for column in content.columns if column.name == "year")
    rows = [tokens_of(row, edges) for row in table.to_pylist()]
    counts = Counter(token for row in rows for token in row)
    vectors = []
    for row in rows:
        weights = {token: math.log1p(len(rows) / counts[token]) for token in row if counts[token] > 1}
        length = math.sqrt(sum(weight**2 for weight in weights.values())) or 1.0
        vectors.append({token: weight / length for token, weight in weights.items()})
    return vectors


def cosine(one: dict[str, float], other: dict[str, float]) -> float:
    return sum(weight * other.get(token, 0.0) for token, weight in one.items())


def test_weights_and_neighbours_agree_with_counting_by_hand(monkeypatch):
    monkeypatch.setattr(content_module, "_BLOCK_ITEMS", 13)
    table = films(60)
    content = describe_items(table, COLUMNS, np.arange(60.0))
    vectors = by_hand(table, content)
    tokens = content.tokens.to_pylist()
    for row, vector in enumerate(vectors):
        found = content.matrix[[row]].tocoo()
        assert {
            tokens[at]: pytest.approx(weight, rel=1e-5)
            for at, weight in zip(found.col, found.data, strict=True)
        } == vector
    for item in range(60):
        expected = {other: cosine(vectors[item], vectors[other]) for other in range(60) if other != item}
        count = np.count_nonzero(content.neighbors[item] >= 0)
        assert count == min(50, sum(value > 0 for value in expected.values()))
        scores = content.scores[item, :count]
        np.testing.assert_allclose(
            scores, [expected[other] for other in content.neighbors[item, :count]], rtol=1e-5
        )
        np.testing.assert_allclose(scores, sorted(expected.values(), reverse=True)[:count], rtol=1e-5)


def test_only_the_most_popular_items_with_a_token_are_neighbours_by_it(monkeypatch):
    monkeypatch.setattr(content_module, "POSTINGS", 3)
    table = pa.table({"id": list(range(20)), "genres": ["comedy"] * 20})
    content = describe_items(table, {"genres": None}, np.arange(20.0))
    assert {item for item in content.neighbors[0].tolist() if item >= 0} == {17, 18, 19}


def test_it_is_written_and_read_and_describes_new_items_as_the_others(tmp_path):
    table = films(40)
    written = describe_items(table, COLUMNS, np.arange(40.0))
    written.write(tmp_path)
    read = Content.read(tmp_path, 40)
    assert read.columns == written.columns
    assert read.tokens.equals(written.tokens)
    np.testing.assert_array_equal(read.matrix.toarray(), written.matrix.toarray())
    np.testing.assert_array_equal(read.neighbors, written.neighbors)
    again = read.vectors(table)
    np.testing.assert_allclose(again.toarray(), written.matrix.toarray(), rtol=1e-6)
    rows, scores = read.similar(again[[3]], 5)
    assert rows[0] == 3 or scores[0] == pytest.approx(1.0)
    assert (np.diff(scores) <= 0).all()
    new = pa.table(
        {
            "genres": ["never seen", None],
            "keywords": [[], None],
            "year": pa.nulls(2, pa.int64()),
            "stars": [None, 99],
        }
    )
    assert read.vectors(new).nnz == 0


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"id": [1, 2]}),
        pa.table({"id": [1, 2], "genres": ["a", "b"]}),
        pa.table({"id": [1, 2], "genres": pa.nulls(2, pa.string())}),
        pa.table({"id": pa.array([], pa.int64()), "genres": pa.array([], pa.string())}),
        pa.table({"id": [1, 2], "genres": [{"a": 1}, {"a": 1}]}),
    ],
    ids=["no column", "nothing in common", "missing", "no items", "nested"],
)
def test_items_with_nothing_in_common_are_not_described(table):
    assert describe_items(table, {"genres": "|"}, np.zeros(len(table))) is None


def test_a_bundle_without_contents_has_none_and_a_damaged_one_is_named(tmp_path):
    assert Content.read(tmp_path, 3) is None
    describe_items(films(30), COLUMNS, np.zeros(30)).write(tmp_path)
    with pytest.raises(BundleError, match="have 30 rows, expected 31"):
        Content.read(tmp_path, 31)
    (tmp_path / "content_weights.npy").write_bytes(b"torn")
    with pytest.raises(BundleError, match="cannot be read"):
        Content.read(tmp_path, 30)
    pq.write_table(pa.table({"token": ["a"], "idf": [1.0]}), tmp_path / "content_tokens.parquet")
    with pytest.raises(BundleError, match="cannot be read"):
        Content.read(tmp_path, 30)


def test_an_export_describes_its_items_but_not_by_their_key(films_bundle: Path):
    content = Content.read(films_bundle / "candidates", 9)
    assert {column.name for column in content.columns} == {"genres", "keywords", "year"}


@pytest.fixture(scope="module")
def films_bundle(films) -> Path:
    return films.folder / "bundle"


def test_of_many_alike_the_best_are_neighbours_and_of_equal_ones_the_more_popular(monkeypatch):
    monkeypatch.setattr(content_module, "_BLOCK_ITEMS", 17)
    monkeypatch.setattr(content_module, "K", 4)
    table = films(90, seed=3)
    popularity = np.random.default_rng(1).integers(0, 5, 90).astype(np.float64)
    content = describe_items(table, COLUMNS, popularity)
    cosines = (content.matrix @ content.matrix.T).toarray()
    np.fill_diagonal(cosines, -1.0)
    for item in range(90):
        order = np.lexsort((np.arange(90), -popularity, -cosines[item]))[:4]
        np.testing.assert_allclose(content.scores[item], np.maximum(cosines[item][order], 0), rtol=1e-5)
        clear = cosines[item][order] - np.sort(cosines[item])[-5] > 1e-5  # not decided by the last digit
        assert set(order[clear]) <= set(content.neighbors[item])
        ties = np.flatnonzero(np.diff(content.scores[item]) == 0)
        ties = [place for place in ties if content.scores[item][place] > 0]
        for place in ties:
            first, second = content.neighbors[item][place : place + 2]
            assert (-popularity[first], first) < (-popularity[second], second)
