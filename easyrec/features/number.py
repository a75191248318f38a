"""`number`: a number as it is, normalised, cut into buckets, or embedded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from easyrec.config.features import NumberFeature
from easyrec.errors import DataError
from easyrec.features.base import Counter, Fitter, Transform
from easyrec.features.columns import present, read
from easyrec.features.inputs import InputSpec
from easyrec.features.outputs import IdsOutput, NumbersOutput
from easyrec.features.scope import Scope
from easyrec.features.statistics import Moments, QuantileSketch
from easyrec.features.tensors import Tensor, missing


class NumberTransform(Transform[NumberFeature]):
    """One number to one number, or to the id of its bucket.

    Missing numbers, NaN and infinities become `fill`, or bucket 0. Bucket 1 lies below the first boundary, bucket
    i + 1 begins with boundary i. Under `log1p` a negative number counts as 0. A column that is constant in the training
    data becomes 0 under `zscore` and `minmax`. `minmax` does not clip: numbers beyond the training range leave [0, 1].
    """

    def __init__(self, config: NumberFeature, scope: Scope) -> None:
        super().__init__(config, scope)
        self.input = scope.number(config.column or scope.name)
        self.normalize = config.normalize or "zscore"
        self.table = scope.table(config)
        self.offset = 0.0
        self.scale = 1.0
        self.boundaries: list[float] = list(config.boundaries or [])

    def inputs(self) -> tuple[InputSpec, ...]:
        """The column."""
        return (self.input,)

    def output(self) -> IdsOutput | NumbersOutput:
        """A bucket id, or a number."""
        table = self.table
        if self.config.bucketized:
            rows = len(self.boundaries) + 2
            return IdsOutput(self.name, table.name, rows, table.dim, self.side, initializer=table.initializer)
        return NumbersOutput(self.name, 1, self.side, table.dim if self.config.embedding else None)

    def fitter(self) -> Fitter | None:
        """Moments or quantiles, where they are needed."""
        if self.config.buckets is not None:
            return _NumberFitter(self, QuantileSketch())
        if not self.config.bucketized and self.normalize in ("zscore", "minmax"):
            return _NumberFitter(self, Moments())
        return None

    def fit(self, learned: Moments | QuantileSketch) -> None:
        """Takes over what the fitter learned."""
        if isinstance(learned, QuantileSketch):
            wanted = self.config.buckets or 2
            self.boundaries = learned.boundaries(wanted)
            if len(self.boundaries) < wanted - 1:
                self.warnings.append(
                    f"feature {self.name!r}: {len(self.boundaries) + 1} buckets instead of {wanted}, because "
                    "some numbers occur too often to be split"
                )
            return
        if learned.low == learned.high:
            self.offset, self.scale = learned.low, 0.0
            self.warnings.append(
                f"feature {self.name!r} is {learned.low:g} in every row of the training data"
            )
        elif self.normalize == "zscore":
            self.offset, self.scale = learned.mean, 1.0 / learned.deviation
        else:
            self.offset, self.scale = learned.low, 1.0 / (learned.high - learned.low)

    def state(self) -> dict[str, Any]:
        """Offset and scale, or boundaries."""
        if self.config.bucketized:
            return {"boundaries": self.boundaries}
        return {"offset": self.offset, "scale": self.scale}

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave."""
        self.boundaries = state.get("boundaries", [])
        self.offset, self.scale = state.get("offset", 0.0), state.get("scale", 1.0)

    def transform(self, columns: Mapping[str, Tensor], count: Counter) -> Tensor:
        """[B] float32 or int64 to [B, 1] float32, or to [B] int32 of buckets."""
        raw = columns[self.input.name]
        absent = missing(raw)
        count("missing", absent)
        if raw.dtype == tf.float32:
            count("infinite", tf.math.is_inf(raw))
        # Integers keep their exact value; float32 boundaries meet float32 numbers, so that 0.1 lies on 0.1.
        exact = raw if raw.dtype == tf.float32 else tf.cast(raw, tf.float64)
        if self.config.bucketized:
            boundaries = tf.constant(self.boundaries, exact.dtype)
            buckets = 1 + tf.searchsorted(boundaries, exact, side="right")
            return tf.where(absent, 0, buckets)
        number = self._normalized(exact, absent, count)
        return tf.where(absent, self.config.fill, number)[:, tf.newaxis]

    def _normalized(self, exact: Tensor, absent: Tensor, count: Counter) -> Tensor:
        if self.normalize == "none":
            return tf.cast(exact, tf.float32)
        if self.normalize == "log1p":
            count("negative", tf.logical_and(exact < 0, tf.logical_not(absent)))
            return tf.math.log1p(tf.cast(tf.maximum(exact, 0), tf.float32))
        centred = tf.cast(exact, tf.float64) - self.offset
        return tf.cast(centred * self.scale, tf.float32)


class _NumberFitter:
    """Feeds the numbers of a column to a statistic."""

    def __init__(self, owner: NumberTransform, statistic: Moments | QuantileSketch) -> None:
        self.owner = owner
        self.statistic = statistic

    def update(self, chunk: pa.Table) -> None:
        values = present(read(chunk, self.owner.input).values)
        self.statistic.update(np.asarray(values))

    def finish(self) -> None:
        if self.statistic.count == 0:
            raise DataError(
                f"feature {self.owner.name!r}: every value of the column {self.owner.input.column!r} is missing in "
                "the training data, so there is nothing to fit; drop the feature, or check its `column`"
            )
        self.owner.fit(self.statistic)
