import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easyrec.config.base import FAMILY_KEY
from easyrec.config.features import FEATURES
from easyrec.config.loader import load_config, load_stored_config, parse_config
from easyrec.config.models import MODELS
from easyrec.config.schema import json_schema, resolved_yaml, schema_text
from easyrec.config.tasks import LOSSES, TASKS
from easyrec.config.yaml_reader import read_yaml

# A small validator for the part of JSON Schema (draft 2020-12) that the published schema uses.

_TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: (
        isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
    ),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
}
_ANNOTATIONS = {"$schema", "$defs", "title", "description", "default"}


def violations(schema: Any, value: Any, root: dict, path: str = "$") -> Iterator[str]:
    """What a value violates; raises KeyError for a keyword this validator does not know."""
    if schema is True:
        return
    for keyword, rule in schema.items():
        if keyword not in _ANNOTATIONS:
            yield from _KEYWORDS[keyword](rule, value, schema, root, path)


def _ref(rule, value, schema, root, path):
    prefix, _, name = rule.rpartition("/")
    assert prefix == "#/$defs"
    yield from violations(root["$defs"][name], value, root, path)


def _any_of(rule, value, schema, root, path):
    found = [list(violations(branch, value, root, path)) for branch in rule]
    if all(found):
        yield f"{path}: no branch fits: {min(found, key=len)}"


def _properties(rule, value, schema, root, path):
    if isinstance(value, dict):
        for name, below in rule.items():
            if name in value:
                yield from violations(below, value[name], root, f"{path}.{name}")


def _additional(rule, value, schema, root, path):
    if isinstance(value, dict):
        for name in value.keys() - schema.get("properties", {}).keys():
            if rule is False:
                yield f"{path}: unknown {name!r}"
            else:
                yield from violations(rule, value[name], root, f"{path}.{name}")


def _items(rule, value, schema, root, path):
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from violations(rule, item, root, f"{path}[{index}]")


def _simple(test, applies):
    def check(rule, value, schema, root, path):
        if applies(value) and not test(rule, value):
            yield f"{path}: {value!r} violates {rule!r}"

    return check


_number, _string, _list, _object = (_TYPES[name] for name in ("number", "string", "array", "object"))
_KEYWORDS = {
    "$ref": _ref,
    "anyOf": _any_of,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "type": _simple(lambda rule, value: _TYPES[rule](value), lambda value: True),
    "enum": _simple(lambda rule, value: value in rule, lambda value: True),
    "const": _simple(lambda rule, value: value == rule, lambda value: True),
    "required": _simple(lambda rule, value: set(rule) <= value.keys(), _object),
    "minimum": _simple(lambda rule, value: value >= rule, _number),
    "maximum": _simple(lambda rule, value: value <= rule, _number),
    "exclusiveMinimum": _simple(lambda rule, value: value > rule, _number),
    "exclusiveMaximum": _simple(lambda rule, value: value < rule, _number),
    "minLength": _simple(lambda rule, value: len(value) >= rule, _string),
    "maxLength": _simple(lambda rule, value: len(value) <= rule, _string),
    "pattern": _simple(lambda rule, value: re.search(rule, value) is not None, _string),
    "minItems": _simple(lambda rule, value: len(value) >= rule, _list),
}


ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "feature_configs").glob("*.yaml"))
SCHEMA = json_schema()


def violated(text):
    return list(violations(SCHEMA, read_yaml(text, "f").value, SCHEMA))


def test_the_copy_for_editors_is_current():
    copy = ROOT / "feature_configs" / "schema" / "pipeline.schema.json"
    assert copy.read_text(encoding="utf-8") == schema_text(), (
        "write it again with: easyrec schema -o feature_configs/schema/pipeline.schema.json"
    )


def test_it_is_the_same_in_any_order_of_registration():
    assert json.loads(schema_text()) == SCHEMA


def test_every_part_is_defined_once_and_nothing_is_left_open():
    defined = SCHEMA["$defs"].keys()
    for registry in (FEATURES, MODELS, TASKS, LOSSES):
        assert {f"{registry.kind.replace(' ', '_')}.{name}" for name in registry.names()} <= defined
    text = schema_text()
    assert FAMILY_KEY not in text
    used = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert used <= defined
    assert all(definition for definition in SCHEMA["$defs"].values())


def test_options_are_described():
    missing = [
        f"{name}.{option}"
        for name, definition in SCHEMA["$defs"].items()
        for option, schema in definition.get("properties", {}).items()
        if "description" not in schema and option != "type"
    ]
    assert not missing


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configurations_follow_it(path):
    assert violated(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_resolved_configurations_follow_it(path):
    assert violated(resolved_yaml(load_config(path))) == []


HEAD = "data: {train: x}\nmodel: deepfm\ntasks: {y: binary}\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD
        + "features: {a: id, b: {type: id, vocabulary: [x, 1]}, c: {type: id, vocabulary: {buckets: 9}}, d: null}\n",
        HEAD
        + "features: {a: id}\ntraining: {batch_size: '${SIZE}', optimizer: {dense: sgd, schedule: cosine}}\n",
        HEAD + "features: {a: id}\ndefaults: {features: {embedding_dim: 8}, tasks: {weight: 2}}\n",
        "include: base.yaml\ntraining: {epochs: 3}\n",
        "include: [a.yaml, b.yaml]\n",
    ],
)
def test_short_forms_are_part_of_it(text):
    assert violated(text) == []


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        "include: []\nepoch: 5\n",
        HEAD + "features: {a: idd}\n",
        HEAD + "features: {a: {type: id, separator: ','}}\n",
        HEAD + "features: {a: {column: x}}\n",
        HEAD + "features: {a: cross}\n",
        HEAD + "features: {a: id}\ntraining: {epochs: 0}\n",
        HEAD + "features: {a: id}\ntraining: {optimizer: {dense: adm}}\n",
        HEAD + "features: {a: id}\ndefaults: {features: {embeding_dim: 8}}\n",
        HEAD.replace("deepfm", "{type: deepfm, hidden_units: 64}") + "features: {a: id}\n",
    ],
)
def test_what_the_loader_refuses_it_refuses(text):
    assert violated(text)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_resolved_configuration_loads_to_an_equal_one(path, tmp_path):
    config = load_config(path)
    saved = tmp_path / "config.yaml"
    saved.write_text(resolved_yaml(config), encoding="utf-8")
    again = load_config(saved, environment={})
    assert again == config
    assert load_stored_config(saved) == config
    assert resolved_yaml(again) == resolved_yaml(config)


TRICKY = [
    *("no", "1e-3", "007", "0x1F", "null", "~", "", " x ", "a: b", "# c", "${HOME}", "$${A}", "2024-01-01"),
    *("'", '"', "*a", "&a", "!a", "|", "- a", "<<", "é\n\tü", "\u2028", "\x85", "\r", "\ufeff", "\ue000"),
]


@settings(max_examples=60, deadline=None)
@given(
    text=st.sampled_from(TRICKY) | st.text(max_size=12),
    value=st.sampled_from(TRICKY) | st.text(min_size=1, max_size=12),
    number=st.floats(allow_nan=False, allow_infinity=False),
    rate=st.floats(min_value=1e-300, max_value=1e300),
)
def test_any_text_and_number_survive_the_round_trip(tmp_path_factory, text, value, number, rate):
    config = parse_config(
        {
            "data": {
                "train": {"path": [value], "options": {}, "columns": {text: "string"}},
                "storage_options": {text: text},
            },
            "features": {"a": {"type": "id", "column": text}, "n": {"type": "number", "fill": number}},
            "model": "wide_and_deep",
            "tasks": {"y": "binary"},
            "output": text,
            "training": {"optimizer": {"dense": {"learning_rate": rate}}},
        }
    )
    saved = tmp_path_factory.mktemp("round") / "config.yaml"
    saved.write_text(resolved_yaml(config), encoding="utf-8", newline="")
    assert load_config(saved, environment={}) == config
    assert load_stored_config(saved) == config
