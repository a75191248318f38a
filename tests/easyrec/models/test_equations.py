"""Each model's logits computed again in NumPy from its weights, row by row as in the paper."""

import numpy as np
import pytest
from scipy.special import expit, softmax

from tests.easyrec.models import conformance as suite

ROWS = 9
BINARY = {"liked": {"type": "binary"}}
SINGLE = {output.feature: column for column, output in enumerate(suite.SCHEMA.single_ids)}


class Oracle:
    """The weights of a network and what the batch says of each feature, in NumPy."""

    def __init__(self, model, tasks=BINARY):
        self.net = suite.spread(suite.network(model, tasks))
        self.data = suite.batch(ROWS, seed=3)
        self.logits = {
            name: np.asarray(logits)
            for name, logits in self.net.forward(suite.tensors(self.data)).items()
            if not self.net.heads[name].towers
        }
        self.weights = {name: variable.numpy() for name, variable in self.net.named_variables().items()}
        widths = [output.width for output in suite.SCHEMA.numbers]
        columns = np.split(self.data["numbers"], np.cumsum(widths)[:-1], axis=1)
        self.numbers = {output.feature: x for output, x in zip(suite.SCHEMA.numbers, columns, strict=True)}

    def rows_of(self, kind, output):
        for where, table, key in self.net.embeddings.places():
            if where == kind and table.name == output.table:
                return self.net.embeddings.tables[key].read(table.offset, table.offset + table.rows)
        raise AssertionError(f"no {kind} table of {output.feature}")

    def lists(self, output):
        """Ids and weights of each row."""
        ends = np.cumsum(self.data[f"{output.feature}/row_lengths"])[:-1]
        ids = np.split(self.data[f"{output.feature}/values"], ends)
        weights = self.data.get(f"{output.feature}/weights")
        return ids, [np.ones(len(i)) for i in ids] if weights is None else np.split(weights, ends)

    def vector(self, output, kind="embedding", linear=False):
        """[B, D] of one id feature, pooled as configured; linear weights add up where embeddings take the maximum."""
        table = self.rows_of(kind, output)
        if output.single:
            return table[self.data["ids"][:, SINGLE[output.feature]]]
        pooled = np.zeros([ROWS, table.shape[1]])
        for row, (ids, weights) in enumerate(zip(*self.lists(output), strict=True)):
            if len(ids) and output.pooling == "max":
                pooled[row] = table[ids].sum(0) if linear else table[ids].max(0)
            elif len(ids):
                pooled[row] = weights @ table[ids] / weights.sum()
        return pooled

    def fields(self, keep=lambda output: True):
        """[B, F, D]: single ids, then lists, then embedded numbers."""
        outputs = [o for o in (*suite.SCHEMA.single_ids, *suite.SCHEMA.multi_ids) if keep(o)]
        vectors = [self.vector(output) for output in outputs]
        if keep(next(o for o in suite.SCHEMA.numbers if o.feature == "rating")):
            vectors.append(self.numbers["rating"] * self.weights["inputs/numbers/vectors"])
        return np.stack(vectors, axis=1)

    def plain(self, keep=lambda output: True):
        """[B, K] numbers without an embedding."""
        return np.concatenate(
            [self.numbers[o.feature] for o in suite.SCHEMA.numbers if o.embedding_dim is None and keep(o)],
            axis=1,
        )

    def flat(self, keep=lambda output: True):
        return np.concatenate([self.fields(keep).reshape(ROWS, -1), self.plain(keep)], axis=1)

    def linear(self, kind="linear", keep=lambda output: True):
        total = np.tile(self.weights["inputs/bias"], [ROWS, 1])
        for output in suite.SCHEMA.ids:
            if output.feature != "recent" and keep(output):  # it borrows the table of movie_id
                total = total + self.vector(output, kind, linear=True)
        start = 0
        for output in suite.SCHEMA.numbers:
            if keep(output):
                total = (
                    total
                    + self.numbers[output.feature]
                    @ self.weights["inputs/linear"][start : start + output.width]
                )
            start += output.width
        return total

    def dense(self, name, x):
        bias = self.weights.get(f"{name}/bias", 0)
        return x @ self.weights[f"{name}/kernel"] + bias

    def mlp(self, name, x, layers=2):
        for layer in range(layers):
            x = np.maximum(self.dense(f"{name}/dense" + (f"_{layer}" if layer else ""), x), 0)
        return x


def _pairs(fields):
    count = fields.shape[1]
    return sum((fields[:, i] * fields[:, j]).sum(1, keepdims=True) for i in range(count) for j in range(i))


def _close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-4)


def test_logistic_regression():
    oracle = Oracle("logistic_regression")
    _close(oracle.logits["liked"], oracle.linear("embedding"))


def test_factorization_machine():
    oracle = Oracle("fm")
    _close(oracle.logits["liked"], oracle.linear() + _pairs(oracle.fields()))


def test_wide_and_deep():
    oracle = Oracle("wide_and_deep")
    deep = oracle.dense("wide_and_deep/deep_logits", oracle.mlp("wide_and_deep/deep", oracle.flat()))
    _close(oracle.logits["liked"], oracle.linear() + deep)


def test_wide_features_select_the_linear_part():
    options = {"type": "wide_and_deep", "hidden_units": [8, 4], "wide_features": ["movie_id", "r*"]}
    oracle = Oracle(options)
    deep = oracle.dense("wide_and_deep/deep_logits", oracle.mlp("wide_and_deep/deep", oracle.flat()))
    wide = oracle.linear(keep=lambda output: output.feature in ("movie_id", "rating", "recent"))
    _close(oracle.logits["liked"], wide + deep)


def test_deepfm():
    oracle = Oracle("deepfm")
    deep = oracle.dense("deepfm/deep_logits", oracle.mlp("deepfm/deep", oracle.flat()))
    _close(oracle.logits["liked"], oracle.linear() + _pairs(oracle.fields()) + deep)


def _crossed(oracle, x):
    crossed = x
    for layer in ("cross", "cross_1"):
        crossed = x * oracle.dense(f"dcn_v2/cross/{layer}", crossed) + crossed
    return crossed


@pytest.mark.parametrize("structure", ["parallel", "stacked"])
def test_dcn_v2(structure):
    oracle = Oracle({"type": "dcn_v2", "hidden_units": [8, 4], "cross_layers": 2, "structure": structure})
    crossed = _crossed(oracle, oracle.flat())
    if structure == "stacked":
        hidden = oracle.mlp("dcn_v2/deep", crossed)
    else:
        hidden = np.concatenate([crossed, oracle.mlp("dcn_v2/deep", oracle.flat())], axis=1)
    _close(oracle.logits["liked"] / 100, oracle.dense("dcn_v2/logits", hidden) / 100)


def test_dlrm():
    oracle = Oracle("dlrm")
    encoded = oracle.mlp("dlrm/bottom", oracle.plain())
    vectors = np.concatenate([encoded[:, None], oracle.fields()], axis=1)
    below = np.tril_indices(vectors.shape[1], -1)
    pairs = np.einsum("bid,bjd->bij", vectors, vectors)[:, below[0], below[1]]
    hidden = oracle.mlp("dlrm/deep", np.concatenate([encoded, pairs], axis=1))
    _close(oracle.logits["liked"], oracle.dense("dlrm/logits", hidden))


@pytest.mark.parametrize("normalised", [False, True])
def test_din(normalised):
    options = {"attention_units": [4], "attention_activation": "relu", "softmax": normalised}
    oracle = Oracle({"type": "din", "hidden_units": [8, 4], **options})
    outputs = {output.feature: output for output in suite.SCHEMA.ids}
    table, items = oracle.rows_of("embedding", outputs["movie_id"]), oracle.vector(outputs["movie_id"])
    interests = np.zeros([ROWS, suite.DIM])
    for row, ids in enumerate(oracle.lists(outputs["recent"])[0]):
        if not len(ids):
            continue
        keys, query = table[ids], np.broadcast_to(items[row], (len(ids), suite.DIM))
        pairs = np.concatenate([query, keys, query - keys, query * keys], axis=1)
        hidden = oracle.mlp("din/attention/scorer", pairs, layers=1)
        scores = oracle.dense("din/attention/score", hidden)[:, 0]
        if normalised:
            scores = softmax(scores / np.sqrt(suite.DIM))
        interests[row] = scores @ keys
    rest = oracle.flat(keep=lambda output: output.feature != "recent")
    hidden = oracle.mlp("din/deep", np.concatenate([interests, rest], axis=1))
    _close(oracle.logits["liked"], oracle.dense("din/logits", hidden))


def test_mmoe():
    tasks = {"liked": {"type": "binary"}, "kind": {"type": "multiclass", "classes": 3}}
    oracle = Oracle("mmoe", tasks)
    x = oracle.flat()
    experts = [oracle.mlp(f"mmoe/mixture/{name}", x) for name in ("expert", "expert_1")]
    for task, suffix in (("liked", ""), ("kind", "_1")):
        gate = softmax(oracle.dense(f"mmoe/mixture/gate{suffix}", x), axis=1)
        mixture = sum(gate[:, index : index + 1] * expert for index, expert in enumerate(experts))
        hidden = oracle.mlp(f"mmoe/tower{suffix}", mixture, layers=1)
        _close(oracle.logits[task], oracle.dense(f"mmoe/logits{suffix}", hidden))


def _tower(oracle, name, sides):
    hidden = oracle.mlp(f"two_tower/{name}_tower", _side(oracle, sides))
    vector = oracle.dense(f"two_tower/{name}_projection", hidden)
    return vector / np.linalg.norm(vector, axis=1, keepdims=True)


def _side(oracle, sides):
    return oracle.flat(keep=lambda output: output.side in sides)


def test_two_tower():
    oracle = Oracle("two_tower", {"liked": {"type": "binary"}, "taken": {"type": "retrieval"}})
    user, item = _tower(oracle, "user", ("user", "context")), _tower(oracle, "item", ("item",))
    dots = (user * item).sum(1)
    logits = dots[:, None] / 0.1 + oracle.weights["two_tower/bias"]
    _close(oracle.logits["liked"], logits)
    predictions = oracle.net.predict(suite.tensors(oracle.data))
    _close(predictions["taken"], dots)
    _close(predictions["liked"], expit(logits[:, 0]))
    data = suite.tensors(oracle.data)
    _close(oracle.net.encode_side(data, "user")["user_vector"], user)
    _close(oracle.net.encode_side(data, "item")["item_vector"], item)
