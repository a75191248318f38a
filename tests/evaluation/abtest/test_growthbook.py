"""GrowthBook's public vectors, all 63 that are about hashing and ranges."""

import json

import pytest

from evaluation.abtest.compilation import compile_assigner
from evaluation.abtest.growthbook import (
    bucket_ranges,
    choose_variation,
    drawer_v2,
    equal_weights,
    growthbook_hash,
    in_namespace,
)
from evaluation.abtest.loading import parse_experiments


@pytest.fixture(scope="module")
def cases(public_data):
    return json.loads((public_data / "growthbook" / "cases.json").read_text(encoding="utf-8"))


def test_hashes(cases):
    for seed, value, version, expected in cases["hash"]:
        assert growthbook_hash(seed, value, version) == expected
        if version == 2:
            assert drawer_v2(seed)(value) == expected
    assert len(cases["hash"]) == 15


def test_ranges(cases):
    for name, (count, coverage, weights), expected in cases["getBucketRange"]:
        got = [[round(low, 8), round(high, 8)] for low, high in bucket_ranges(count, coverage, weights)]
        assert got == expected, name
    assert len(cases["getBucketRange"]) == 13


def test_choice_of_a_variation(cases):
    for name, number, ranges, expected in cases["chooseVariation"]:
        assert choose_variation(number, ranges) == expected, name
    assert len(cases["chooseVariation"]) == 13


def test_namespaces(cases):
    for name, value, namespace, expected in cases["inNamespace"]:
        assert in_namespace(value, tuple(namespace)) == expected, name
    assert len(cases["inNamespace"]) == 16


def test_equal_weights(cases):
    for count, expected in cases["getEqualWeights"]:
        assert equal_weights(count) == pytest.approx(expected, abs=1e-8)
    assert len(cases["getEqualWeights"]) == 6


def test_ids_are_hashed_as_utf_16():
    # Signs beyond the basic plane count as two units; SDKs that hash bytes or code points differ here.
    assert growthbook_hash("exp", "用户42", 2) == pytest.approx(0.0394)


def test_an_experiment_with_growthbooks_algorithm():
    text = """
    version: 1
    layers: {page: {owns: [model]}}
    experiments:
      foo:
        layer: page
        status: running
        algorithm: growthbook-v2
        percent: 50
        variants: {control: {}, b: {overrides: {model: b}}}
    """
    one = compile_assigner(parse_experiments(text))
    ranges = bucket_ranges(2, 0.5)
    for user in ("ab", "def", *map(str, range(200))):
        place = choose_variation(growthbook_hash("foo", user, 2), ranges)
        assert one.assign({"user_id": user}).assignments[0].variant == (None, "control", "b")[place + 1]
