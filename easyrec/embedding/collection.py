"""All embedding tables of a model: ids in, dense activations out, gradients back to rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from easyrec.embedding.initializers import initial_rows
from easyrec.embedding.layout import Group, Table, build_groups
from easyrec.embedding.lookup import Lookup, coded_lookup, flat_ids, graph_lookup, host_lookup, take
from easyrec.embedding.optimizers import RowOptimizer, clip_rows
from easyrec.embedding.pooling import pad, pool, row_ids
from easyrec.embedding.table import ShardedTable
from easyrec.features.coded_ids import CodedIds
from easyrec.features.outputs import IdsOutput

Activations = dict[str, tf.Tensor]
Rows = dict[str, tf.Tensor]

EMBEDDING = "embedding"
LINEAR = "linear"


class EmbeddingCollection(tf.Module):
    """Embedding tables fused by width, each with a table of linear weights beside it if the model has linear terms.

    A training step is `lookup` -> `gather` -> `expand` -> the dense part -> gradients of the rows ->
    `apply_gradients`. `expand` is differentiable in the gathered rows, so that no gradient ever has the size of a
    table. A call on a batch goes from ids to activations directly, for prediction.

    Activations, for B rows and each group `<g>` of width D:

        embedding/<g>            [B, F, D]  single-valued features of the group, in order
        pooled/<feature>         [B, D]     multi-valued features
        sequence/<feature>       [B, L, D]  sequences, zeros where they have ended
        mask/<feature>           [B, L]     1.0 where a sequence has a value
        linear/<g>               [B, F, U]  linear weights, if there are any
        linear_pooled/<feature>  [B, U]     of multi-valued features and sequences

    Args:
        outputs: The id outputs to embed, in order.
        linear_units: U, or 0 for no linear weights.
        seed: Seed of the rows' first values.
        l2: Factor of the penalty on the squared norm of the rows that a batch uses.
        batch_outputs: All id outputs of a batch, if `outputs` is a selection of them.
        shards: How many variables hold each table.
        storage: Type that rows are stored as.
    """

    def __init__(
        self,
        outputs: Sequence[IdsOutput],
        *,
        linear_units: int = 0,
        seed: int = 0,
        l2: float = 0.0,
        batch_outputs: Sequence[IdsOutput] | None = None,
        shards: int = 1,
        storage: str = "float32",
    ) -> None:
        super().__init__(name="embeddings")
        self.outputs = tuple(outputs)
        self.groups: tuple[Group, ...] = build_groups(outputs, batch_outputs)
        self.linear_units = linear_units
        self.seed = seed
        self.l2 = l2
        self.tables: dict[str, ShardedTable] = {}
        for group in self.groups:
            for kind, dim in self.kinds(group):
                key = f"{kind}/{group.name}"
                self.tables[key] = ShardedTable(key, group.rows, dim, shards=shards, storage=storage)
        self.reset()

    def kinds(self, group: Group) -> Iterator[tuple[str, int]]:
        """Kind and width of each fused table of a group."""
        yield EMBEDDING, group.dim
        if self.linear_units:
            yield LINEAR, self.linear_units

    def reset(self) -> None:
        """Gives all embedding rows their first values again, and linear weights zeros."""
        for group in self.groups:
            for table in group.tables:
                row = table.offset
                fused = self.tables[f"{EMBEDDING}/{group.name}"]
                for block in initial_rows(table.initializer, self.seed, table.name, table.rows, table.dim):
                    fused.write(row, block)
                    row += len(block)
            if self.linear_units:
                linear = self.tables[f"{LINEAR}/{group.name}"]
                linear.fill(0.0)

    # The training step.

    def lookup(self, batch: Mapping[str, tf.Tensor], coded: CodedIds | None = None) -> Lookup:
        """The distinct ids of a batch, in a graph; taken from its numbered ids where there are any."""
        return graph_lookup(self.groups, batch) if coded is None else coded_lookup(self.groups, batch, coded)

    def host_lookup(self, batch: Mapping[str, npt.NDArray[np.generic]]) -> Lookup:
        """The distinct ids of a batch of NumPy arrays."""
        return host_lookup(self.groups, batch)

    def gather(self, lookup: Lookup) -> Rows:
        """The rows of the distinct ids, by table key: [U, D] and [U, linear_units]."""
        return {
            f"{kind}/{group.name}": self.tables[f"{kind}/{group.name}"].gather(lookup[f"unique/{group.name}"])
            for group in self.groups
            for kind, _ in self.kinds(group)
        }

    def expand(self, rows: Rows, lookup: Lookup) -> Activations:
        """The activations of a batch from the rows of its distinct ids; differentiable in `rows`."""
        flat = {
            f"{kind}/{group.name}": take(rows[f"{kind}/{group.name}"], lookup, group)
            for group in self.groups
            for kind, _ in self.kinds(group)
        }
        return self._activations(flat, lookup)

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> Activations:
        """The activations of a batch straight from the tables, for prediction."""
        flat = {}
        for group in self.groups:
            ids = flat_ids(group, batch)
            for kind, _ in self.kinds(group):
                flat[f"{kind}/{group.name}"] = self.tables[f"{kind}/{group.name}"].gather(ids)
        return self._activations(flat, batch)

    def penalty(self, rows: Rows) -> tf.Tensor:
        """l2 × the squared norm of the rows that a batch uses, scalar."""
        return self.l2 * tf.add_n([tf.reduce_sum(tf.square(values)) for values in rows.values()])

    def apply_gradients(
        self,
        optimizer: RowOptimizer,
        lookup: Lookup,
        rows: Rows,
        gradients: Mapping[str, tf.Tensor],
        learning_rate: tf.Tensor,
        *,
        clip_norm: float | None = None,
    ) -> None:
        """Updates the rows that a batch used.

        Args:
            optimizer: Built on `self.tables`.
            lookup: The batch's distinct ids.
            rows: Their rows as gathered for this step.
            gradients: Gradient of the loss, the l2 penalty left out, in each of `rows`.
            learning_rate: Scalar, the schedule's factor included.
            clip_norm: Largest norm of a row's gradient.
        """
        for key, gradient in self.final_gradients(rows, gradients, clip_norm).items():
            ids = self.ids_of(key, lookup)
            optimizer.apply(key, self.tables[key], ids, rows[key], gradient, learning_rate)
        optimizer.finish_step()

    def final_gradients(
        self, rows: Rows, gradients: Mapping[str, tf.Tensor], clip_norm: float | None
    ) -> dict[str, tf.Tensor]:
        """Gradients of rows with that of the l2 penalty, each of the norm that is allowed at most."""
        final = {}
        for key in self.tables:
            gradient = gradients[key]
            if self.l2:
                gradient += 2 * self.l2 * rows[key]
            final[key] = gradient if clip_norm is None else clip_rows(gradient, clip_norm)
        return final

    @staticmethod
    def ids_of(key: str, lookup: Lookup) -> tf.Tensor:
        """The distinct ids of a batch in the fused table of a key, [U]."""
        return lookup[f"unique/{key.split('/', 1)[1]}"]

    def _activations(self, flat: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> Activations:
        activations: Activations = {}
        for group in self.groups:
            values = {kind: flat[f"{kind}/{group.name}"] for kind, _ in self.kinds(group)}
            sizes = [tf.reduce_sum(batch[f"{output.feature}/row_lengths"]) for output in group.multis]
            fields = len(group.singles)
            start = tf.size(values[EMBEDDING]) // group.dim - sum(sizes)
            if fields:
                for kind, dim in self.kinds(group):
                    own = values[kind][:start] if group.multis else values[kind]
                    activations[f"{kind}/{group.name}"] = tf.reshape(own, [-1, fields, dim])
            for output, size in zip(group.multis, sizes, strict=True):
                parts = {kind: value[start : start + size] for kind, value in values.items()}
                self._pool(output, parts, batch, activations)
                start += size
        return activations

    def _pool(
        self,
        output: IdsOutput,
        values: Mapping[str, tf.Tensor],
        batch: Mapping[str, tf.Tensor],
        activations: Activations,
    ) -> None:
        feature = output.feature
        lengths = batch[f"{feature}/row_lengths"]
        rows = row_ids(lengths)
        weights = batch[f"{feature}/weights"] if output.weighted else None
        pooling = output.pooling or "mean"
        if output.sequence:
            padded, mask = pad(values[EMBEDDING], lengths, rows, output.max_length or 0)
            activations[f"sequence/{feature}"] = padded
            activations[f"mask/{feature}"] = mask
        else:
            activations[f"pooled/{feature}"] = pool(values[EMBEDDING], lengths, rows, pooling, weights)
        if self.linear_units:
            # Linear weights of several values add up; a maximum of weights would not be a linear model.
            linear_pooling = "sum" if pooling == "max" else pooling
            activations[f"linear_pooled/{feature}"] = pool(
                values[LINEAR], lengths, rows, linear_pooling, weights
            )

    # Where each table's rows are.

    def places(self) -> Iterator[tuple[str, Table, str]]:
        """Each table twice if there are linear weights: (kind, table, key of the fused table)."""
        for group in self.groups:
            for kind, _ in self.kinds(group):
                for table in group.tables:
                    yield kind, table, f"{kind}/{group.name}"
