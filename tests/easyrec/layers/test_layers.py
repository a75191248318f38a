"""What every layer must do, and each equation against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from easyrec.errors import ConfigError
from easyrec.layers import (
    MLP,
    CrossNetwork,
    Dice,
    DotInteraction,
    FMInteraction,
    MultiGateMixtureOfExperts,
    NumberEmbedding,
    SequencePooling,
    TargetAttention,
    activation_layer,
)

MASK = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], np.float32)


def _random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


FLAT, FIELDS, SEQUENCE = _random(4, 5), _random(4, 3, 2), _random(4, 3, 2, seed=1)
TARGET = _random(4, 2, seed=2)

CASES = {
    "mlp": (lambda: MLP([6, 3], activation="gelu", dropout=0.2, l2=0.1), [FLAT]),
    "mlp_norm": (lambda: MLP([6, 3], activation="prelu", batch_norm=True), [FLAT]),
    "mlp_rank_3": (lambda: MLP([6], activation="prelu", batch_norm=True), [FIELDS]),
    "mlp_empty": (lambda: MLP([]), [FLAT]),
    "fm": (FMInteraction, [FIELDS]),
    "fm_units": (lambda: FMInteraction(units=2), [FIELDS]),
    "cross": (lambda: CrossNetwork(2), [FLAT]),
    "cross_low_rank": (lambda: CrossNetwork(2, low_rank=2), [FLAT]),
    "dot": (DotInteraction, [FIELDS]),
    "dot_self": (lambda: DotInteraction(self_interaction=True), [FIELDS]),
    "attention": (lambda: TargetAttention([4]), [TARGET, SEQUENCE, MASK]),
    "attention_softmax": (lambda: TargetAttention([4], "relu", softmax=True), [TARGET, SEQUENCE, MASK]),
    "dice": (Dice, [FLAT]),
    "experts": (lambda: MultiGateMixtureOfExperts(2, 3, [4], "tanh", batch_norm=True), [FLAT]),
    "pooling": (lambda: SequencePooling("sqrtn"), [SEQUENCE, MASK]),
    "number": (lambda: NumberEmbedding(2), [FLAT]),
}

layers = pytest.mark.parametrize(("make", "inputs"), CASES.values(), ids=CASES)


def _numpy(outputs):
    return [np.asarray(output) for output in (outputs if isinstance(outputs, list) else [outputs])]


def _assert_equal(left, right, rtol=1e-5):
    for a, b in zip(_numpy(left), _numpy(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)


def _spread(layer, inputs):
    layer(*inputs)
    for index, weight in enumerate(layer.trainable_weights):
        weight.assign(_random(*weight.shape, seed=index))
    return layer


@layers
def test_a_layer_is_made_again_from_its_configuration_and_weights(make, inputs):
    layer = _spread(make(), inputs)
    config = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(config)
    again(*inputs)
    again.set_weights(layer.get_weights())
    assert again.get_config() == layer.get_config()
    _assert_equal(again(*inputs), layer(*inputs))


@layers
def test_a_layer_traced_and_compiled_agrees_with_eager_at_any_batch_size(make, inputs):
    layer = _spread(make(), inputs)
    signature = [tf.TensorSpec([None, *value.shape[1:]], tf.float32) for value in inputs]
    traced = tf.function(layer, input_signature=signature, autograph=False)
    compiled = tf.function(layer, input_signature=signature, autograph=False, jit_compile=True)
    whole = _numpy(layer(*inputs))
    for rows in (4, 1):
        part = [tf.constant(value[:rows]) for value in inputs]
        expected = [value[:rows] for value in whole]
        _assert_equal(traced(*part), expected)
        if rows == 4:
            _assert_equal(compiled(*part), expected)


@layers
def test_gradients_are_finite_and_reach_every_weight_in_training(make, inputs):
    layer = _spread(make(), inputs)
    with tf.GradientTape() as tape:
        outputs = layer(*inputs, training=True)
        loss = tf.add_n([tf.reduce_sum(tf.square(output + 1)) for output in _tensors(outputs)])
    for weight, gradient in zip(
        layer.trainable_weights, tape.gradient(loss, [w.value for w in layer.trainable_weights]), strict=True
    ):
        assert gradient is not None, weight.path
        assert np.all(np.isfinite(gradient)), weight.path
        assert np.any(gradient != 0), weight.path


def _tensors(outputs):
    return outputs if isinstance(outputs, list) else [outputs]


def test_mlp_equation():
    layer = _spread(MLP([6, 3]), [FLAT])
    w1, b1, w2, b2 = layer.get_weights()
    hidden = np.maximum(FLAT @ w1 + b1, 0)
    _assert_equal(layer(FLAT), np.maximum(hidden @ w2 + b2, 0))


def test_mlp_normalises_before_the_activation_with_batch_statistics_in_training():
    layer = MLP([3], activation="tanh", batch_norm=True)
    layer(FLAT)
    (kernel, *_) = layer.get_weights()
    product = FLAT @ kernel
    normal = (product - product.mean(0)) / np.sqrt(product.var(0) + 1e-3)
    _assert_equal(layer(FLAT, training=True), np.tanh(normal), rtol=1e-3)


def test_mlp_l2_and_dropout():
    layer = MLP([4, 4], l2=0.5, dropout=0.5)
    layer(FLAT)
    kernels = [w.numpy() for w in layer.weights if w.path.endswith("kernel")]
    np.testing.assert_allclose(sum(layer.losses), 0.5 * sum((k**2).sum() for k in kernels), rtol=1e-5)
    many = np.ones([2000, 5], np.float32)
    assert np.mean(np.asarray(MLP([8], "linear", dropout=0.25)(many, training=True)) == 0) == pytest.approx(
        0.25, abs=0.03
    )


def test_fm_is_the_sum_of_all_pairs():
    pairs = [(FIELDS[:, i] * FIELDS[:, j]) for i in range(3) for j in range(i)]
    _assert_equal(FMInteraction()(FIELDS), sum(pairs).sum(1, keepdims=True))
    _assert_equal(FMInteraction(units=2)(FIELDS), np.repeat(sum(pairs).sum(1, keepdims=True), 2, axis=1))
    weighted = _spread(FMInteraction(units=2), [FIELDS])
    _assert_equal(weighted(FIELDS), sum(pairs) @ weighted.get_weights()[0])


def test_fm_of_one_field_is_zero():
    np.testing.assert_allclose(FMInteraction()(FIELDS[:, :1]), 0, atol=1e-6)


def test_cross_equation():
    layer = _spread(CrossNetwork(2), [FLAT])
    w1, b1, w2, b2 = layer.get_weights()
    one = FLAT * (FLAT @ w1 + b1) + FLAT
    _assert_equal(layer(FLAT), FLAT * (one @ w2 + b2) + one)


def test_low_rank_cross_equation():
    layer = _spread(CrossNetwork(1, low_rank=2), [FLAT])
    weights = {w.path.split("/", 1)[1]: w.numpy() for w in layer.weights}
    projected = FLAT @ weights["down_0/kernel"] @ weights["cross_0/kernel"] + weights["cross_0/bias"]
    assert weights["down_0/kernel"].shape == (5, 2)
    _assert_equal(layer(FLAT), FLAT * projected + FLAT)


def test_dot_is_the_lower_triangle_row_by_row():
    products = np.einsum("bid,bjd->bij", FIELDS, FIELDS)
    below, with_diagonal = np.tril_indices(3, -1), np.tril_indices(3)
    _assert_equal(DotInteraction()(FIELDS), products[:, below[0], below[1]])
    _assert_equal(
        DotInteraction(self_interaction=True)(FIELDS), products[:, with_diagonal[0], with_diagonal[1]]
    )
    assert DotInteraction()(FIELDS[:, :1]).shape == (4, 0)


@pytest.mark.parametrize("softmax", [False, True])
def test_attention_equation(softmax):
    layer = _spread(TargetAttention([4], "relu", softmax=softmax), [TARGET, SEQUENCE, MASK])
    w1, b1, w2, *b2 = layer.get_weights()
    expected = np.zeros_like(TARGET)
    for row in range(4):
        kept = SEQUENCE[row][MASK[row] > 0]
        query = np.broadcast_to(TARGET[row], kept.shape)
        pairs = np.concatenate([query, kept, query - kept, query * kept], axis=1)
        scores = (np.maximum(pairs @ w1 + b1, 0) @ w2)[:, 0] + (0 if softmax else b2[0])
        if softmax and len(kept):
            powers = np.exp(scores / np.sqrt(2))
            scores = powers / powers.sum()
        expected[row] = (scores[:, None] * kept).sum(0)
    _assert_equal(layer(TARGET, SEQUENCE, MASK), expected)


def test_attention_does_not_see_masked_positions():
    for softmax in (False, True):
        layer = _spread(TargetAttention([4], "dice", softmax=softmax), [TARGET, SEQUENCE, MASK])
        noisy = np.where(MASK[..., None] > 0, SEQUENCE, 100.0)
        for training in (False, True):
            left = layer(TARGET, SEQUENCE, MASK, training=training)
            _assert_equal(layer(TARGET, noisy, MASK, training=training), left, rtol=1e-4)


def test_attention_refuses_widths_that_differ():
    with pytest.raises(ValueError, match="equal width, got 3 and 2"):
        TargetAttention()(np.ones([4, 3]), SEQUENCE, MASK)


def test_dice_equation():
    layer = Dice()
    layer(FLAT)
    layer.alpha.assign([0.1, 0.2, 0.3, 0.4, 0.5])
    share = 1 / (1 + np.exp(-(FLAT - FLAT.mean(0)) / FLAT.std(0)))
    expected = share * FLAT + (1 - share) * np.array([0.1, 0.2, 0.3, 0.4, 0.5]) * FLAT
    _assert_equal(layer(FLAT, training=True), expected, rtol=1e-3)


def test_experts_equation():
    layer = _spread(MultiGateMixtureOfExperts(2, 3, [4]), [FLAT])
    weights = {w.path.split("/", 1)[1]: w.numpy() for w in layer.weights}
    experts = [
        np.maximum(FLAT @ weights[f"expert_{e}/dense_0/kernel"] + weights[f"expert_{e}/dense_0/bias"], 0)
        for e in range(3)
    ]
    for task, mixture in enumerate(layer(FLAT)):
        powers = np.exp(FLAT @ weights[f"gate_{task}/kernel"])
        gate = powers / powers.sum(1, keepdims=True)
        _assert_equal(mixture, sum(gate[:, e : e + 1] * experts[e] for e in range(3)))


@pytest.mark.parametrize(
    ("mode", "reduce"),
    [
        ("sum", lambda kept: kept.sum(0)),
        ("mean", lambda kept: kept.mean(0)),
        ("max", lambda kept: kept.max(0)),
        ("sqrtn", lambda kept: kept.sum(0) / np.sqrt(len(kept))),
    ],
)
def test_pooling_equation(mode, reduce):
    expected = [reduce(SEQUENCE[row][MASK[row] > 0]) if MASK[row].any() else np.zeros(2) for row in range(4)]
    _assert_equal(SequencePooling(mode)(SEQUENCE, MASK), np.stack(expected))


def test_number_embedding_equation():
    layer = NumberEmbedding(2)
    output = layer(FLAT)
    _assert_equal(output, FLAT[:, :, None] * layer.get_weights()[0])


@pytest.mark.parametrize(
    "name", ["relu", "gelu", "silu", "tanh", "leaky_relu", "elu", "prelu", "dice", "linear"]
)
def test_activations_keep_the_shape(name):
    for value in (FLAT, FIELDS):
        assert activation_layer(name, rank=value.ndim)(value).shape == value.shape


def test_an_unknown_activation_names_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown activation 'rleu'\. Did you mean 'relu'"):
        activation_layer("rleu")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FMInteraction(0), "units must be positive, got 0"),
        (lambda: CrossNetwork(0), "layers must be positive, got 0"),
        (lambda: CrossNetwork(1, low_rank=0), "low_rank must be positive or None, got 0"),
        (lambda: MultiGateMixtureOfExperts(0, 1, [2]), "must be positive, got 0 and 1"),
        (lambda: NumberEmbedding(0), "dim must be positive, got 0"),
        (lambda: SequencePooling("median"), "mode must be one of sum, mean, max, sqrtn, got 'median'"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
