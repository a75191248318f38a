"""Whatever a file holds, loading it gives a configuration or a `ConfigError`."""

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from easyrec.config.columns import ColumnInfo
from easyrec.config.loader import load_config, parse_config
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.resolve import resolve
from easyrec.errors import ConfigError

KEYS = ["data", "features", "model", "tasks", "training", "include", "defaults", "plugins", "type", "train", "path",
        "of", "keys", "user", "split", "where", "label", "loss", "metrics", "optimizer", "schedule", "vocabulary",
        "history", "column", "table", "evaluation", "k", "options", "columns", "format", "name", "export"]  # fmt: skip
WORDS = ["id", "tags", "number", "sequence", "cross", "deepfm", "din", "two_tower", "binary", "retrieval", "a", "I*",
         "{a,b}", "{", "rating >= 4", "a >", "", "${X}", "${X:-1}", "${", "huber", "cosine", "best", "<<"]  # fmt: skip
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 10), st.floats(), st.sampled_from(WORDS), st.text(max_size=4)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS + WORDS), inner, max_size=4)
    ),
    max_leaves=12,
)
GOOD = {
    "data": {"train": "x.parquet", "keys": {"user": "u", "item": "i", "time": "t"}},
    "features": {
        "u": {"type": "id"},
        "i": {"type": "id", "embedding_dim": 8},
        "g": {"type": "tags", "separator": "|"},
        "r": {"type": "sequence", "of": "i"},
        "n": {"type": "number", "boundaries": [1, 2]},
        "x": {"type": "cross", "of": ["u", "i"], "buckets": 10},
    },
    "model": {"type": "din", "hidden_units": [8], "features": ["*"]},
    "tasks": {"y": {"type": "binary", "label": "y > 1", "loss": {"type": "focal"}}},
    "training": {"optimizer": {"schedule": {"type": "step", "boundaries": [1], "factors": [0.5]}}},
    "evaluation": {"k": [5]},
}
COLUMNS = {
    "u": ColumnInfo("u", "int"),
    "i": ColumnInfo("i", "string"),
    "g": ColumnInfo("g", "string", "item"),
    "n": ColumnInfo("n", "float"),
    "t": ColumnInfo("t", "timestamp"),
    "y": ColumnInfo("y", "bool"),
    "l": ColumnInfo("l", "list<float>", "user"),
}


def outcome(load):
    """A configuration, or the problems found."""
    try:
        return load()
    except ConfigError as error:
        return error.problems


def attempt(load):
    config = outcome(load)
    if not isinstance(config, PipelineConfig):
        assert config
        return
    resolved = outcome(lambda: resolve(config, COLUMNS))
    assert isinstance(resolved, PipelineConfig) or resolved


@st.composite
def mutated(draw):
    """The good configuration with something replaced, added or removed at a random place."""
    root = yaml.safe_load(yaml.safe_dump(GOOD))
    for _ in range(draw(st.integers(1, 3))):
        node = root
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = draw(st.sampled_from(keys)) if keys else None
            if key is not None and isinstance(node[key], (dict, list)) and draw(st.booleans()):
                node = node[key]
                continue
            break
        if isinstance(node, dict) and draw(st.integers(0, 2)) == 0:
            node[draw(st.sampled_from(KEYS + WORDS))] = draw(values)
        elif key is not None and draw(st.booleans()):
            node[key] = draw(values)
        elif key is not None:
            del node[key]
    return root


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated() | st.dictionaries(st.sampled_from(KEYS), values, max_size=5))
def test_any_mapping(config):
    attempt(lambda: parse_config(config))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def attempt_file(folder, data, overrides=()):
    path = folder / "pipeline.yaml"
    path.write_bytes(data)
    attempt(lambda: load_config(path, overrides, {"X": "1"}))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=mutated(), style=st.sampled_from([True, False, None]))
def test_any_yaml(folder, config, style):
    attempt_file(folder, yaml.safe_dump(config, default_flow_style=style, allow_unicode=True).encode())


@settings(max_examples=150, deadline=None)
@given(
    st.text(alphabet=st.sampled_from("ab:-{}[],&*!|>'\"%@`#?\n\t \\<~0.é\x00\ue000"), max_size=40).map(
        str.encode
    )
)
def test_any_text(folder, data):
    attempt_file(folder, data)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_file_cut_or_garbled_anywhere(folder, data):
    text = bytearray(yaml.safe_dump(GOOD).encode())
    position = data.draw(st.integers(0, len(text) - 1))
    if data.draw(st.booleans()):
        text = text[:position]
    else:
        text[position] = data.draw(st.integers(0, 255))
    attempt_file(folder, bytes(text))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([*KEYS, *WORDS, "0", "u", "y"]), min_size=1, max_size=4).map(".".join),
            st.sampled_from(["=", "", "==", " = ", "[0]="]),
            st.sampled_from([*WORDS, "[1", "{a: 1}", "&a [*a]", "!x y"]) | st.text(max_size=4),
        ).map("".join),
        max_size=2,
    )
)
def test_any_override(overrides):
    attempt(lambda: parse_config(GOOD, overrides))
