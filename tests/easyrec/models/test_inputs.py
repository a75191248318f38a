import numpy as np
import pytest
import tensorflow as tf

from easyrec.errors import ConfigError
from easyrec.features.outputs import FeatureSchema, IdsOutput, NumbersOutput
from easyrec.models.assembler import InputAssembler
from easyrec.models.inputs import Block, matching_features
from easyrec.models.sides import number_columns
from tests.easyrec.models import conformance as suite

SCHEMA = FeatureSchema(
    (
        IdsOutput("a", "a", 5, 2, "user"),
        IdsOutput("b", "b", 5, 2, "item"),
        NumbersOutput("x", 1, "user"),
        IdsOutput("c", "c", 5, 2, "user"),
        NumbersOutput("y", 2, "item"),
    )
)
RNG = np.random.default_rng(0)
EMBEDDING, LINEAR, NUMBERS = RNG.normal(size=(3, 3, 2)), RNG.normal(size=(3, 3, 1)), RNG.normal(size=(3, 3))


def _inputs(schema=SCHEMA, groups=None, linear_units=1, **activations):
    groups = groups or {"2": ["a", "b", "c"]}
    assembler = InputAssembler(schema, number_columns(schema), groups, linear_units)
    if linear_units:
        bias, kernel = assembler.trainable_weights
        bias.assign([10.0])
        kernel.assign([[1.0], [2.0], [3.0]])
    given = {"embedding/2": EMBEDDING, "linear/2": LINEAR, **activations}
    tensors = {key: tf.constant(value, tf.float32) for key, value in given.items()}
    return assembler.assemble(tensors, tf.constant(NUMBERS, tf.float32)), tensors


def _close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_one_group_of_single_ids_is_the_activation_itself():
    inputs, tensors = _inputs()
    assert inputs.fields is tensors["embedding/2"]


def test_flat_is_embeddings_then_numbers():
    inputs, _ = _inputs()
    _close(inputs.flat, np.concatenate([EMBEDDING.reshape(3, 6), NUMBERS], axis=1))
    _close(inputs.numbers, NUMBERS)


def test_linear_is_bias_plus_weights_of_ids_plus_weighted_numbers():
    inputs, _ = _inputs()
    _close(inputs.linear, 10 + LINEAR.sum(1) + NUMBERS @ np.array([[1], [2], [3]]))


def test_a_selection_has_only_what_is_selected():
    inputs, _ = _inputs()
    chosen = inputs.select(["a", "c", "y"])
    assert chosen.features == {"a", "c", "y"}
    _close(chosen.fields, EMBEDDING[:, [0, 2]])
    _close(chosen.numbers, NUMBERS[:, 1:])
    _close(chosen.linear, 10 + LINEAR[:, [0, 2]].sum(1) + NUMBERS[:, 1:] @ np.array([[2], [3]]))
    _close(inputs.drop(["b", "x"]).flat, chosen.flat)


def test_sides():
    inputs, _ = _inputs()
    _close(inputs.side("item").flat, np.concatenate([EMBEDDING[:, 1], NUMBERS[:, 1:]], axis=1))
    assert inputs.side("user", "item").features == inputs.features


def test_embedding_of_one_feature():
    inputs, _ = _inputs()
    _close(inputs.embedding("b"), EMBEDDING[:, 1])
    with pytest.raises(ConfigError, match=r"no embedding of a feature 'bb'\. Did you mean 'b'"):
        inputs.embedding("bb")
    with pytest.raises(ConfigError, match="no embedding of a feature 'x'"):
        inputs.embedding("x")


def test_widths_that_differ_are_refused_as_fields_and_fine_as_flat():
    schema = FeatureSchema((*SCHEMA.outputs, IdsOutput("wide", "wide", 5, 3, "user")))
    wide = RNG.normal(size=(3, 1, 3))
    groups = {"2": ["a", "b", "c"], "3": ["wide"]}
    inputs, _ = _inputs(schema, groups, **{"embedding/3": wide, "linear/3": LINEAR[:, :1]})
    assert inputs.flat.shape == (3, 12)
    with pytest.raises(ConfigError, match="this one is 3 wide, that of 'a' 2") as caught:
        _ = inputs.fields
    assert [problem.path for problem in caught.value.problems] == ["features.wide.embedding_dim"]


def test_embedded_numbers_join_the_fields_and_leave_the_numbers():
    schema = FeatureSchema(
        (SCHEMA.outputs[0], NumbersOutput("x", 1, "user"), NumbersOutput("y", 2, "item", 2))
    )
    one = {"embedding/2": EMBEDDING[:, :1], "linear/2": LINEAR[:, :1]}
    inputs, _ = _inputs(schema, {"2": ["a"]}, **one)
    _close(inputs.numbers, NUMBERS[:, :1])
    _close(inputs.fields[:, :1], EMBEDDING[:, :1])
    vectors = inputs.fields[:, 1:] / NUMBERS[:, 1:, None]  # [B, 2, D]: the same in every row
    np.testing.assert_allclose(vectors - vectors[:1], 0, atol=1e-4)
    assert np.all(vectors != 0)
    _close(inputs.embedding("y"), np.reshape(inputs.fields[:, 1:], [3, 4]))
    _close(inputs.linear, 10 + LINEAR[:, 0] + NUMBERS @ np.array([[1], [2], [3]]))


def test_models_that_need_something_say_so_when_there_is_nothing():
    inputs, _ = _inputs(linear_units=0)
    with pytest.raises(ConfigError, match="uses_linear = True"):
        _ = inputs.linear
    with pytest.raises(ConfigError, match="no feature has one"):
        _ = inputs.select(["x"]).fields
    with pytest.raises(ConfigError, match="the model has no features"):
        _ = inputs.select([]).flat


def test_a_block_selects_neighbours_and_gaps():
    values = tf.reshape(tf.range(10), [2, 5])
    block = Block(("a", "b", "b", "c", "d"), values)
    np.testing.assert_array_equal(block.select({"a", "b", "d"}).values, values.numpy()[:, [0, 1, 2, 4]])
    assert block.select({"a", "b", "c", "d", "e"}) is block
    assert block.select({"e"}) is None


def test_patterns_match_names_and_must_match_something():
    assert matching_features(suite.SCHEMA, ["r*", "age"], "p") == {"recent", "rating", "age"}
    assert matching_features(suite.SCHEMA, None, "p") == {output.feature for output in suite.SCHEMA.outputs}
    with pytest.raises(
        ConfigError, match=r"model\.features  no feature is called or matches 'aeg'\. Did you mean 'age'"
    ):
        matching_features(suite.SCHEMA, ["aeg", "r*"], "model.features")
