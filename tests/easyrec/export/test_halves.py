"""A network in two halves gives what it gives in one piece, and what depends on one side alone is its half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from easyrec.config.models import MODELS
from easyrec.export.halves.nodes import ITEM, USER, compute, frontier, leaf
from easyrec.export.halves.split import Halves, activation_shapes, dense_predictions, halves_of
from easyrec.export.halves.values import Columns
from easyrec.export.signatures import PRECOMPUTED_BYTES, ModelFunctions

SMALL: dict[str, dict[str, Any]] = {
    "deepfm": {"hidden_units": [8, 4], "batch_norm": True},
    "wide_and_deep": {"hidden_units": [8]},
    "dcn_v2": {"hidden_units": [8], "cross_layers": 2, "low_rank": 3},
    "dlrm": {"hidden_units": [8], "bottom_units": [4]},
    "din": {"hidden_units": [8], "attention_units": [4], "softmax": True},
    "mmoe": {"hidden_units": [8], "tower_units": [4], "experts": 2},
    "two_tower": {"hidden_units": [8], "output_dim": 3},
}
SEVERAL = {"liked": {"type": "binary"}, "stars": {"type": "multiclass", "classes": 3}}
ROWS = 7


def pairs_of(
    network: Any, random: np.random.Generator
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Inputs of one user, of items, and of the pairs; what one side must not look at is not a number."""
    user, item, both = {}, {}, {}
    for name, shape in activation_shapes(network).items():
        mine = random.normal(scale=0.3, size=(1, *shape)).astype(np.float32)
        theirs = random.normal(scale=0.3, size=(ROWS, *shape)).astype(np.float32)
        owners = np.broadcast_to(np.array(network.owners(name), bool), shape[:1])
        pair = theirs.copy()
        pair[:, owners] = mine[:, owners]
        mine[:, ~owners], theirs[:, owners] = np.nan, np.nan
        user[name], item[name], both[name] = map(tf.constant, (mine, theirs, pair))
    return user, item, both


@pytest.mark.parametrize("name", sorted(part.name for part in MODELS))
def test_halves_give_what_the_whole_gives(name: str, train: Callable[..., Any]) -> None:
    several = name in ("mmoe", "deepfm", "dcn_v2")
    trained = train({"type": name, **SMALL.get(name, {})}, SEVERAL if several else None, every=False)
    network = trained.network
    user, item, both = pairs_of(network, np.random.default_rng(0))
    halves = halves_of(network)
    mine = tf.function(halves.user_half, autograph=False)(user)
    theirs = tf.function(halves.item_half, autograph=False)(item)
    found = tf.function(halves.pairs, autograph=False)(mine, theirs, ROWS)
    if name == "two_tower":
        vectors = (network.tower(*_split(side), which) for side, which in ((user, "user"), (item, "item")))
        whole = network.score(
            *({f"{which}_vector": one} for which, one in zip(("user", "item"), vectors, strict=True))
        )
    else:
        whole = dense_predictions(network, both)
    assert found.keys() == whole.keys()
    for task in whole:
        np.testing.assert_allclose(found[task], whole[task], rtol=1e-4, atol=1e-6)
    assert [half.shape[1:] for half in mine] == [shape[1:] for shape in halves.user]
    assert [half.shape[1:] for half in theirs] == [shape[1:] for shape in halves.item]


def _split(inputs: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    return {name: tensor for name, tensor in inputs.items() if name != "numbers"}, inputs["numbers"]


def test_a_first_layer_is_multiplied_once_for_each_side():
    weights = tf.Variable(np.arange(15, dtype=np.float32).reshape(5, 3))
    bias = tf.Variable(np.ones(3, np.float32))

    def function(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        joined = tf.concat([inputs["a"], inputs["b"]], axis=1)
        return {"y": tf.nn.relu(tf.matmul(joined, weights) + bias)}

    halves = Halves(function, {"a": (3,), "b": (2,)}, {"a": [True, False, True], "b": False})
    assert (halves.user, halves.item) == ([(None, 3)], [(None, 3)])
    user, item = (
        {"a": tf.constant([[1.0, np.nan, 3.0]])},
        {
            "a": tf.constant([[np.nan, 5.0, np.nan], [np.nan, -6.0, np.nan]]),
            "b": tf.constant([[1.0, 2.0], [3.0, -4.0]]),
        },
    )
    (mine,), (theirs,) = halves.user_half(user), halves.item_half(item)
    kernel = weights.numpy()
    np.testing.assert_allclose(mine, [kernel[0] + 3 * kernel[2] + 1])
    np.testing.assert_allclose(theirs[1], -6 * kernel[1] + 3 * kernel[3] - 4 * kernel[4])
    found = halves.pairs([mine], [theirs], tf.constant(2))["y"]
    np.testing.assert_allclose(found, np.maximum(mine.numpy() + theirs.numpy(), 0))
    weights.assign(weights * 2)
    np.testing.assert_allclose(
        halves.item_half(item)[0], theirs.numpy() * 2, err_msg="weights are read each time"
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.cumsum(x, axis=0),  # not of each row by itself, so that nothing may be said of it
        lambda x: tf.reverse(x, axis=[1]) * tf.reduce_mean(x, axis=1, keepdims=True),
        lambda x: tf.reshape(tf.transpose(x), [-1, 4])[: tf.shape(x)[0]],
        lambda x: tf.where(x > 0, x, -x)[:, ::2] - tf.nn.softmax(x)[:, 1:3],
        lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], axis=1) / (1.0 + tf.square(x)),
        lambda x: tf.reduce_max(tf.reshape(x, [-1, 2, 2]), axis=2) + tf.concat([x[:, 3:], x[:, :1]], axis=1),
        lambda x: 2.0 - x[:, 1:] + tf.constant([1.0, 2.0, 3.0]) * x[:, :-1],
    ],
)
def test_operations_without_a_rule_see_what_they_would_see_otherwise(function):
    random = np.random.default_rng(0)
    user, item = random.normal(size=(1, 2)).astype("f"), random.normal(size=(4, 2)).astype("f")
    halves = Halves(
        lambda inputs: {"y": function(inputs["x"])}, {"x": (4,)}, {"x": [True, False, False, True]}
    )
    blank = np.zeros((4, 1), np.float32)
    mine = halves.user_half(
        {"x": tf.constant(np.concatenate([user[:, :1], blank[:1], blank[:1], user[:, 1:]], 1))}
    )
    theirs = halves.item_half({"x": tf.constant(np.concatenate([blank, item, blank], 1))})
    whole = np.concatenate([np.repeat(user[:, :1], 4, 0), item, np.repeat(user[:, 1:], 4, 0)], 1)
    found = halves.pairs(mine, theirs, tf.constant(4))["y"]
    np.testing.assert_allclose(found, function(tf.constant(whole)), rtol=1e-5, atol=1e-6)


def test_only_what_pairs_are_made_from_is_computed():
    item = leaf(ITEM, tf.constant([[1.0]]))
    user = leaf(USER, tf.constant([[2.0]]))
    columns = Columns((item, user))
    assert columns.between(1, 2).parts == (user,)
    assert frontier([item], ITEM) == [item]
    assert frontier([item], USER) == []
    assert compute([user], {user: tf.constant(5.0)})[0].numpy() == 5.0


def test_halves_of_items_are_kept_only_where_they_are_small(train: Callable[..., Any]) -> None:
    trained = train({"type": "deepfm", "hidden_units": [8]}, every=False)
    columns = ["movie_id", "genres", "keywords", "keyword_weights", "year"]
    few = ModelFunctions(trained.encoder, trained.network, columns, items=10)
    assert few.precomputed
    assert {entry.key for entry in few.encoded if entry.side == "item"} == {"half/0", "half/1", "half/2"}
    many = ModelFunctions(trained.encoder, trained.network, columns, items=PRECOMPUTED_BYTES)
    assert not many.precomputed
    assert {"ids"} < {entry.key for entry in many.encoded if entry.side == "item"}
    assert not ModelFunctions(trained.encoder, trained.network, columns).precomputed, "weights are not final"
