"""Every registered feature type keeps the rules of `conformance.py`, and the ids below never change."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from easyrec.config.features import FEATURES
from tests.easyrec.features.conformance import check_feature

INF, NAN = float("inf"), float("nan")
INTS = pa.list_(pa.int64())
TEXTS = pa.list_(pa.string())
FLOATS = pa.list_(pa.float64())
WEIGHTED = pa.map_(pa.string(), pa.float64())
ODD = ["a", None, "", "unseen", "ü", "日本", "a ", " a", "A", "x\ny", "\x1e", "\x1f", "0", "-1", "3.0", "a|b"]


class Case(NamedTuple):
    features: dict[str, Any]
    train: dict[str, Any]
    edge: dict[str, Any]


def ints(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64())


CASES: dict[str, dict[str, Case]] = {
    "id": {
        "text": Case(
            {"f": {"type": "id"}}, {"f": ["b", "a", "a", "ü", None, "日本"]}, {"f": ODD}
        ),
        "min_count and buckets": Case(
            {"f": {"type": "id", "vocabulary": {"min_count": 2, "max_size": 2, "oov_buckets": 3}}},
            {"f": ["b", "a", "a", "b", None, "c", "c", "d"]},
            {"f": ODD},
        ),
        "integers": Case(
            {"f": {"type": "id"}},
            {"f": ints(3, 3, 10, 9, 9, -1, None)},
            {"f": ints(3, None, 10, 9, -1, 99, 2**63 - 1, -(2**63) + 1, 0)},
        ),
        "floats": Case(
            {"f": {"type": "id"}}, {"f": [3.0, 4.0, NAN, 3.0, None]}, {"f": [3.0, NAN, None, 4.0, 5.0, -0.0]}
        ),
        "booleans": Case(
            {"f": {"type": "id"}}, {"f": [True, False, True, None]}, {"f": [True, False, None, True]}
        ),
        "list of values": Case(
            {"f": {"type": "id", "vocabulary": ["a", "日本", "0"]}}, {"f": ["b", "a", None, "c"]}, {"f": ODD}
        ),
        "list of integers": Case(
            {"f": {"type": "id", "vocabulary": [5, 3]}}, {"f": ints(5, 1, None, 3)}, {"f": ints(5, 3, None, 4)}
        ),
        "hash": Case(
            {"f": {"type": "id", "vocabulary": {"buckets": 7}}}, {"f": ["b", "a", None, "c"]}, {"f": ODD}
        ),
        "hash of integers": Case(
            {"f": {"type": "id", "vocabulary": {"buckets": 7}}},
            {"f": ints(1, 2, None, 3)},
            {"f": ints(1, -1, None, 2**62, 0)},
        ),
        "size": Case(
            {"f": {"type": "id", "vocabulary": {"size": 4}}},
            {"f": ints(1, 2, None, 3)},
            {"f": ints(0, 3, 4, -1, None, 2**63 - 1)},
        ),
        "size of text": Case(
            {"f": {"type": "id", "vocabulary": {"size": 4}}}, {"f": ["1", "2", None, "3"]}, {"f": [*ODD, "3", "4"]}
        ),
    },
    "tags": {
        "text": Case(
            {"f": {"type": "tags", "separator": "|", "max_length": 3}},
            {"f": ["a|b", "a", None, "c| d "]},
            {"f": ["a|b", None, "", "|", "a||b", " a | d", "a|b|c|d|a", "nope|a", "ü|日本", "a,b", "||||"]},
        ),
        "long separator": Case(
            {"f": {"type": "tags", "separator": ", "}},
            {"f": ["a, b", "a", None, "c, d"]},
            {"f": ["a, b", None, "", ", ", "a, , b", "a,b", "d,  a"]},
        ),
        "list of text": Case(
            {"f": {"type": "tags", "max_length": 2}},
            {"f": pa.array([["a", "b"], None, ["a"], []], TEXTS)},
            {"f": pa.array([["a"], None, [], [None], ["b", None, "a", "z"], [""], ["ü", "a", "b"]], TEXTS)},
        ),
        "list of integers": Case(
            {"f": {"type": "tags", "pooling": "sum"}},
            {"f": pa.array([[1, 2], None, [1], []], INTS)},
            {"f": pa.array([[1], None, [], [None], [2, None, 1, 99], [-1]], INTS)},
        ),
        "map": Case(
            {"f": {"type": "tags"}},
            {"f": pa.array([[("a", 1.0)], None, [("b", 1.0), ("a", 2.0)], []], WEIGHTED)},
            {
                "f": pa.array(
                    [[("a", 0.5)], None, [], [("z", 2.0), ("b", None)], [("a", NAN), ("b", INF), ("", 3.0)]], WEIGHTED
                )
            },
        ),
        "weighted text": Case(
            {"f": {"type": "tags", "separator": "|", "weight_separator": ":", "max_length": 2}},
            {"f": ["a:1|b:2", "c", None, "x:y:1"]},
            {
                "f": ["a:0.5|b:2", None, "", "a", "a:", ":2", "a:x|b:-1.5e2", "x:y:3", "x:y", "a : 2 |b", "a:1e999",
                      "a:nan", "a:inf", "a:1|b:2|c:3", "z:7", "a:1\n"]
            },
        ),
        "weights column": Case(
            {"f": {"type": "tags", "weights": "w", "max_length": 2}},
            {"f": pa.array([["a", "b"], ["a"], None], TEXTS), "w": pa.array([[1.0, 2.0], [1.0], None], FLOATS)},
            {
                "f": pa.array([["a", None, "b", "a"], [], None, ["z"], ["a", "b"]], TEXTS),
                "w": pa.array([[1.0, 5.0, None, 4.0], [], None, [NAN], [-1.0, 0.0]], FLOATS),
            },
        ),
        "integer weights": Case(
            {"f": {"type": "tags", "weights": "w"}},
            {"f": pa.array([[1, 2], [1], None], INTS), "w": pa.array([[1, 2], [1], None], INTS)},
            {"f": pa.array([[2, 1], None, [9], []], INTS), "w": pa.array([[7, None], None, [3], []], INTS)},
        ),
    },
    "number": {
        f"{name} of {kind}": Case({"f": {"type": "number", **options}}, train, edge)
        for name, options in {
            "zscore": {},
            "minmax": {"normalize": "minmax", "fill": -1},
            "log1p": {"normalize": "log1p"},
            "none": {"normalize": "none", "fill": 5},
            "embedding": {"embedding": True},
            "buckets": {"buckets": 3},
            "boundaries": {"boundaries": [-1, 0.1, 3]},
        }.items()
        for kind, train, edge in (
            ("floats", {"f": [1.0, 2.5, NAN, None, INF, 4.0, 4.0]},
             {"f": [1.0, NAN, None, INF, -INF, -3.5, 0.1, 3e38, 0.0, -0.0]}),
            ("integers", {"f": ints(1, 2, None, 7)}, {"f": ints(1, None, -5, 2**53, 0, 3)}),
        )
    },
    "sequence": {
        "of an id": Case(
            {"i": {"type": "id"}, "f": {"type": "sequence", "of": "i", "max_length": 2}},
            {"i": ints(1, 2, 3), "f": pa.array([[], [1], [1, 2]], INTS)},
            {
                "i": ints(1, 9, None, 2, 3, 3),
                "f": pa.array([[1, 2, 3], None, [], [None, 1], [9, None, 2, None], [3]], INTS),
            },
        ),
        "of its own": Case(
            {"f": {"type": "sequence", "separator": ",", "max_length": 3}},
            {"f": ["a,b", "a", None, "c"]},
            {"f": ["a,b", None, "", ",", "a,b,c,a,z", "z", "a"]},
        ),
        "list of text": Case(
            {"f": {"type": "sequence", "vocabulary": {"buckets": 5}}},
            {"f": pa.array([["a", "b"], None], TEXTS)},
            {"f": pa.array([["a", None, "b"], None, [], [""]], TEXTS)},
        ),
    },
    "cross": {
        "text and integer": Case(
            {"f": {"type": "cross", "of": ["a", "b"], "buckets": 50}},
            {"a": ["x", "y"], "b": ints(1, 2)},
            {"a": ["x", None, "", "ü", "x", "x\x1f1"], "b": ints(1, 2, 3, -4, None, 0)},
        ),
    },
}  # fmt: skip


def test_every_feature_type_has_cases() -> None:
    assert set(CASES) == set(FEATURES.names())


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, cases in CASES.items() for name in cases],
    ids=lambda value: value,
)
def test_feature_type_keeps_the_rules(kind: str, name: str, tmp_path: Path) -> None:
    case = CASES[kind][name]
    encoder, _ = check_feature(case.features, pa.table(case.train), pa.table(case.edge), tmp_path)
    assert encoder.transforms["f"].config.type == kind
