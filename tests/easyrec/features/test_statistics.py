"""One-pass statistics against NumPy, counts against collections.Counter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easyrec.errors import DataError
from easyrec.features.counting import ValueCounter, by_frequency, canonical_integers
from easyrec.features.statistics import Moments, QuantileSketch

FLOATS = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=60, deadline=None)
@given(chunks=st.lists(st.lists(FLOATS, max_size=6), max_size=5))
def test_moments_equal_those_of_all_values_at_once(chunks: list[list[float]]) -> None:
    moments = Moments()
    for chunk in chunks:
        moments.update(np.array(chunk, np.float32))
    everything = np.array([value for chunk in chunks for value in chunk], np.float64)
    assert moments.count == len(everything)
    if len(everything):
        scale = np.abs(everything).max() + 1e-30
        assert moments.mean == pytest.approx(everything.mean(), abs=1e-12 * scale)
        assert moments.deviation == pytest.approx(everything.std(), abs=1e-7 * scale)
        assert (moments.low, moments.high) == (everything.min(), everything.max())


def test_the_deviation_survives_a_large_mean() -> None:
    values = 1e9 + np.tile([0.0, 1.0], 5000)
    moments = Moments()
    for chunk in np.split(values, 100):
        moments.update(chunk)
    assert moments.deviation == pytest.approx(0.5, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.integers(-20, 20), min_size=1, max_size=60),
    buckets=st.integers(2, 7),
    at=st.integers(0, 60),
)
def test_few_values_are_cut_at_exact_quantiles(values: list[int], buckets: int, at: int) -> None:
    sketch = QuantileSketch()
    sketch.update(np.array(values[:at], np.float32))
    sketch.update(np.array(values[at:], np.float32))
    ordered = sorted(values)
    expected = {ordered[len(ordered) * part // buckets] for part in range(1, buckets)} - {ordered[0]}
    assert sketch.boundaries(buckets) == sorted(expected)


def test_many_values_are_cut_close_to_their_quantiles_in_any_order() -> None:
    generator = np.random.default_rng(3)
    values = generator.lognormal(0, 2, 200_000)
    for stream in (values, np.sort(values), np.sort(values)[::-1]):
        sketch = QuantileSketch(size=2048)
        for chunk in np.array_split(stream, 40):
            sketch.update(chunk)
        assert sum(len(part) for part in sketch._values) <= 5 * 2048
        boundaries = np.array(sketch.boundaries(20))
        ranks = np.searchsorted(np.sort(values), boundaries) / len(values)
        np.testing.assert_allclose(ranks, np.arange(1, 20) / 20, atol=2e-3)
        assert sketch.count == len(values)


def test_a_frequent_value_keeps_its_weight_among_many_rare_ones() -> None:
    generator = np.random.default_rng(4)
    values = np.where(generator.random(100_000) < 0.5, 7.0, generator.normal(0, 1, 100_000))
    sketch = QuantileSketch(size=512)
    for chunk in np.array_split(values, 30):
        sketch.update(chunk)
    assert sketch.boundaries(10)[-1] == 7.0


def test_nothing_seen_gives_no_boundaries() -> None:
    assert QuantileSketch().boundaries(5) == []


TEXTS = st.text(st.sampled_from("ab9-0é"), max_size=2)


@settings(max_examples=60, deadline=None)
@given(chunks=st.lists(st.lists(st.none() | TEXTS, max_size=8), max_size=4), pending=st.integers(1, 6))
def test_counts_equal_those_of_a_counter(chunks: list[list[str | None]], pending: int) -> None:
    counter = ValueCounter("f", pending=pending)
    for position, chunk in enumerate(chunks):
        array = pa.array(chunk, pa.string())
        counter.update(array.dictionary_encode() if position % 2 else array)
    flat = [value for chunk in chunks for value in chunk]
    expected = Counter(value for value in flat if value)
    values, counts = by_frequency(*counter.result())
    assert counter.missing == len(flat) - expected.total()
    assert counter.empty == (not expected)
    ordered = sorted(expected.items(), key=lambda item: (-item[1], item[0].encode()))
    assert list(zip(values.to_pylist(), counts.to_pylist(), strict=True)) == ordered


def test_integers_in_one_file_and_text_in_another_are_counted_together() -> None:
    counter = ValueCounter("f")
    counter.update(pa.array([3, 10]))
    counter.update(pa.array(["3", "x"]))
    values, counts = by_frequency(*counter.result())
    assert dict(zip(values.to_pylist(), counts.to_pylist(), strict=True)) == {"3": 2, "10": 1, "x": 1}


def test_bytes_and_text_are_counted_together() -> None:
    counter = ValueCounter("f")
    counter.update(pa.array(["a", "b"]))
    counter.update(pa.array([b"a", b"\xff"]))
    values, counts = by_frequency(*counter.result())
    assert values.to_pylist() == [b"a", b"b", b"\xff"]
    assert counts.to_pylist() == [2, 1, 1]


def test_too_many_distinct_values_are_refused_with_a_way_out() -> None:
    counter = ValueCounter("user_id", max_distinct=10, pending=5)
    with pytest.raises(DataError, match=r"'user_id' has more than 10 distinct values.*buckets"):
        counter.update(pa.array(range(20)))


@pytest.mark.parametrize(
    ("values", "canonical"),
    [
        (["0", "-1", "9223372036854775807"], [0, -1, 2**63 - 1]),
        (["03"], None),
        (["-0"], None),
        (["1", "x"], None),
        (["9223372036854775808"], None),
        ([], []),
    ],
)
def test_text_counts_as_integers_only_in_decimal_form(values: list[str], canonical: list[int] | None) -> None:
    found = canonical_integers(pa.array(values, pa.large_string()))
    assert (None if found is None else found.to_pylist()) == canonical
