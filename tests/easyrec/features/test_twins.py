"""Twins give what their transforms give, without TensorFlow: on rows that are hard to encode, and on random ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easyrec.config.features import FEATURES
from easyrec.errors import EasyRecError
from easyrec.export.inputs import to_tensors
from easyrec.export.stages import input_entries
from easyrec.features.batch import EncodedBatch
from easyrec.features.encoder import Encoder
from easyrec.features.inputs import MISSING_INT
from easyrec.features.twins import values as twin_values
from easyrec.features.twins.base import TWINS, Fitted
from easyrec.features.twins.encoder import TwinEncoder
from easyrec.features.twins.vocabulary import TableTwin, vocabulary_twin
from easyrec.features.vocabulary import TableVocabulary
from tests.easyrec.features.conformance import kinds_of, pipeline
from tests.easyrec.features.test_conformance import CASES

pytest.importorskip("farmhash", reason="text is hashed by the extra `litert`")


def twins_of(encoder: Encoder) -> TwinEncoder:
    """The twins of fitted transforms."""
    twins = {}
    for name, transform in encoder.transforms.items():
        vocabulary: Any = getattr(transform, "vocabulary", None)
        table = (
            TableTwin.of_values(vocabulary.oov, vocabulary.values)
            if isinstance(vocabulary, TableVocabulary)
            else None
        )
        twin = None if vocabulary is None else vocabulary_twin(vocabulary.config, table)
        fitted = Fitted(transform.inputs(), transform.state(), twin)
        twins[name] = TWINS.build(transform.config, fitted)
    return TwinEncoder(encoder.schema, twins)


def encode(encoder: Encoder, twins: TwinEncoder, table: pa.Table) -> EncodedBatch:
    entries = input_entries(encoder, ())
    arrays = to_tensors(table, entries)
    return twins.encode({entry.name: arrays[entry.tensor] for entry in entries}, len(table))


def check(encoder: Encoder, twins: TwinEncoder, table: pa.Table) -> None:
    expected = {name: array for name, array in encoder.encode_table(table).as_dict().items() if array.size}
    found = {name: array for name, array in encode(encoder, twins, table).as_dict().items() if array.size}
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == expected[name].dtype, name
        if array.dtype == np.float32:  # the last bit of a logarithm is the library's own
            np.testing.assert_allclose(array, expected[name], rtol=2e-7, atol=0, err_msg=name)
        else:
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_every_feature_type_has_a_twin() -> None:
    built_in = {part.name for part in FEATURES if part.config.__module__ == "easyrec.config.features"}
    assert built_in <= set(TWINS.names())


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in CASES for name in CASES[kind]])
def test_edge_rows(kind: str, name: str) -> None:
    case = CASES[kind][name]
    train, edge = pa.table(case.train), pa.table(case.edge)
    encoder = Encoder(pipeline(case.features), kinds_of(train)).fit([train])
    twins = twins_of(encoder)
    for table in (edge, edge.slice(1, 1), edge.slice(0, 0), train):
        check(encoder, twins, table)


@pytest.fixture(scope="module")
def everything() -> tuple[Encoder, TwinEncoder]:
    """One encoder with text features of each kind, traced once."""
    train = pa.table(
        {"id": ["a", "b", "b", "7"], "tags": ["a:1|b", "b:2", "", "c"], "many": [["a"], ["b"], [], ["c"]]}
    )
    features = {
        "id": {"type": "id", "vocabulary": {"oov_buckets": 5}},
        "hash": {"type": "id", "column": "id", "vocabulary": {"buckets": 1000}},
        "size": {"type": "id", "column": "id", "vocabulary": {"size": 50}},
        "tags": {"type": "tags", "separator": "|", "weight_separator": ":", "max_length": 4},
        "many": {"type": "sequence", "max_length": 3},
        "cross": {"type": "cross", "of": ["id", "tags"], "buckets": 997},
    }
    encoder = Encoder(pipeline(features), kinds_of(train)).fit([train])
    return encoder, twins_of(encoder)


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
WORDS = TEXT | st.integers(-(10**19), 10**19).map(str)
PAIRS = st.lists(
    TEXT | st.from_regex(r"[ab:|. \t\v-]{0,4}:[-+ ]?[0-9.]{1,5}(e-?[0-9]{1,3})?\s?", fullmatch=True),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | WORDS, PAIRS.map("|".join), st.lists(st.none() | WORDS, max_size=5)),
        min_size=1,
        max_size=5,
    )
)
def test_random_text(everything: tuple[Encoder, TwinEncoder], rows: list[tuple[Any, str, list[Any]]]) -> None:
    table = pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.string()),
            "tags": pa.array([row[1] for row in rows], pa.string()),
            "many": pa.array([row[2] for row in rows], pa.list_(pa.string())),
        }
    )
    check(*everything, table)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20),
    st.lists(st.floats(width=32), min_size=1, max_size=20),
)
def test_random_numbers(integers: list[int], floats: list[float]) -> None:
    encoder, twins = numbers()
    rows = min(len(integers), len(floats))
    table = pa.table(
        {
            "i": pa.array(integers[:rows], pa.int64()),
            "f": pa.array(floats[:rows], pa.float32()),
        }
    )
    check(encoder, twins, table)


def test_numbers_below_the_smallest_normal_one() -> None:
    floats = [8.2e-39, -8.2e-39, 1e-44, np.finfo(np.float32).tiny, 0.0]
    check(*numbers(), pa.table({"i": [0] * len(floats), "f": pa.array(floats, pa.float32())}))


_NUMBERS: list[tuple[Encoder, TwinEncoder]] = []


def numbers() -> tuple[Encoder, TwinEncoder]:
    """One encoder with number features of each kind, traced once."""
    if not _NUMBERS:
        train = pa.table({"i": [1, 5, 9, 100], "f": pa.array([0.5, -1.0, 3.0, 8.0], pa.float32())})
        features: dict[str, Any] = {}
        for column in ("i", "f"):
            for index, options in enumerate(
                (
                    {},
                    {"normalize": "minmax"},
                    {"normalize": "log1p"},
                    {"normalize": "none"},
                    {"boundaries": [-1, 0.1, 9]},
                )
            ):
                features[f"{column}{index}"] = {"type": "number", "column": column, **options}
        features["size"] = {"type": "id", "column": "i", "vocabulary": {"size": 50}}
        features["hash"] = {"type": "id", "column": "i", "vocabulary": {"buckets": 50}}
        encoder = Encoder(pipeline(features), kinds_of(train)).fit([train])
        _NUMBERS.append((encoder, twins_of(encoder)))
    return _NUMBERS[0]


def test_binary_that_is_no_text() -> None:
    train = pa.table({"f": ["a:1|b", "d:2", "c"], "i": pa.array([b"\xff", b"a", b"a"])})
    features = {"f": {"type": "tags", "separator": "|", "weight_separator": ":"}, "i": {"type": "id"}}
    encoder = Encoder(pipeline(features), kinds_of(train)).fit([train])
    edge = pa.table({"f": pa.array([b"\xff:2|a:3", b"\xff", None]), "i": pa.array([b"\xff", b"\xfe", b""])})
    check(encoder, twins_of(encoder), edge)


def test_integers_that_are_missing() -> None:
    twin = TableTwin.of_values(1, pa.array([3, 10, -1]))
    assert twin.lookup(np.array([10, MISSING_INT, 4, -1])).tolist() == [3, 0, 1, 4]
    assert twin.lookup(twin_values.texts([b"10", b"", b"010", b"-1"])).tolist() == [3, 0, 1, 4]


def test_without_the_hash_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin_values, "_fingerprint64", None)
    with pytest.raises(EasyRecError, match=r"pip install easyrec\[litert\]"):
        twin_values.fingerprint64()


def test_twins_import_no_tensorflow() -> None:
    names = sorted(
        path.stem for path in Path(twin_values.__file__).parent.glob("*.py") if path.stem != "__init__"
    )
    code = "\n".join(f"import easyrec.features.twins.{name}" for name in names)
    probe = f"{code}\nimport sys\nassert not {{'tensorflow', 'keras'}} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
