"""How to add a feature type: read this page, then `cross.py`, which is the shortest one.

A feature type is a configuration class and a transform. The configuration class holds the options of the YAML:

    class RoundedConfig(FeatureConfig):
        \"\"\"A number as a category, rounded.\"\"\"

        type: Literal["rounded"] = "rounded"
        step: float = Field(1.0, gt=0)
        \"\"\"Width of a category.\"\"\"

The transform says which columns it reads, what it learns from the training data, what it hands to the model, and how
it computes that with TensorFlow operations:

    class RoundedTransform(Transform[RoundedConfig]):
        \"\"\"Ids of rounded numbers.\"\"\"

        def __init__(self, config, scope):
            super().__init__(config, scope)
            self.number = scope.number(config.column or scope.name)

        def inputs(self):
            return (self.number,)

        def output(self):
            return IdsOutput(self.name, table=self.name, rows=101, dim=8, side=self.side)

        def transform(self, columns, count):
            value = tf.cast(columns[self.number.name], tf.float32)
            absent = missing(columns[self.number.name])
            count("missing", absent)
            step = tf.clip_by_value(tf.round(value / self.config.step), 0, 99)
            return tf.where(absent, 0, 1 + tf.cast(step, tf.int32))

    FEATURES.register("rounded", RoundedConfig, RoundedTransform)

That is all: fitting, saving, the training input, the exported graph, the coverage report and the conformance suite
(`tests/easyrec/features/conformance.py`) work for it from then on. The rules it has to keep:

- `transform` works on any number of rows, 0 included, and on whole chunks; it is traced, so no Python over rows.
- Categories arrive as text or int64 whatever the training data had (`as_text` unifies them), numbers as int64 or
  float32. Missing values look as `inputs.py` says. Lists arrive ragged in training and padded in the exported
  graph: begin with `as_ragged`, drop missing values with `keep`.
- Id 0 means missing. What it cannot use it replaces by something defined, and says so with `count`.
- What is learned goes through `fitter` (one pass over Arrow chunks with bounded memory), `state` and `load_state`
  (JSON). Values with ids come from `scope.vocabulary`, which fits, stores and shares them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import tensorflow as tf

from easyrec.config.features import FeatureConfig, Side
from easyrec.features.inputs import InputSpec
from easyrec.features.outputs import Output
from easyrec.features.scope import Scope
from easyrec.features.tensors import Tensor

ConfigT = TypeVar("ConfigT", bound=FeatureConfig)


class Fitter(Protocol):
    """Learns from the training data, chunk by chunk, in bounded memory."""

    def update(self, chunk: pa.Table) -> None:
        """Takes one chunk into account."""

    def finish(self) -> None:
        """Hands what was learned to the transform; raises a DataError when there is nothing to learn from."""


class Counter:
    """Counts what a transform met, inside the graph; does nothing unless asked to count.

    Args:
        enabled: Whether counting is wanted.
        repeats: When a transform runs on distinct values: how many rows each stands for, [D] int64.
    """

    def __init__(self, enabled: bool = False, repeats: Tensor | None = None) -> None:
        self.enabled = enabled
        self.repeats = repeats
        self.totals: dict[str, Tensor] = {}

    def __call__(self, name: str, mask: Tensor) -> None:
        """Adds the number of true entries of `mask` ([B] bool, or ragged [B, None] bool) to the counter `name`."""
        if not self.enabled:
            return
        ragged = isinstance(mask, tf.RaggedTensor)
        flat = mask.flat_values if ragged else mask
        if self.repeats is None:
            total = tf.math.count_nonzero(flat, dtype=tf.int64)
        else:
            times = tf.gather(self.repeats, mask.value_rowids()) if ragged else self.repeats
            total = tf.reduce_sum(tf.where(flat, times, 0))
        self.totals[name] = self.totals[name] + total if name in self.totals else total

    def every(self, name: str, values: Tensor) -> None:
        """Adds the number of values of a tensor [B] or a ragged tensor."""
        if self.enabled:
            self(name, tf.ones_like(values, dtype=tf.bool))


class Transform(ABC, Generic[ConfigT]):
    """One feature: raw columns to ids or numbers.

    Args:
        config: Its options.
        scope: Its name, its side, the columns of the data and the vocabularies.
    """

    def __init__(self, config: ConfigT, scope: Scope) -> None:
        self.config = config
        self.scope = scope
        self.warnings: list[str] = []

    @property
    def name(self) -> str:
        """Name of the feature."""
        return self.scope.name

    @property
    def side(self) -> Side:
        """Whom the feature describes."""
        return self.scope.side

    @abstractmethod
    def inputs(self) -> tuple[InputSpec, ...]:
        """The raw inputs it reads."""

    @abstractmethod
    def output(self) -> Output:
        """What it hands to the model; complete once fitted or loaded."""

    @abstractmethod
    def transform(self, columns: Mapping[str, Tensor], count: Counter) -> Tensor:
        """Raw tensors to encoded ones, in graph operations only.

        Args:
            columns: The inputs, by `InputSpec.name`.
            count: Takes masks of what is worth reporting.

        Returns:
            int32 [B] for one id a row, a RaggedTensor int32 [B, None] for several, `WeightedIds` for weighted ones,
            float32 [B, width] for numbers, as `output` says.
        """

    def fitter(self) -> Fitter | None:
        """What learns from the training data, or None when there is nothing to learn."""
        return None

    def state(self) -> dict[str, Any]:
        """What was learned, as JSON; vocabularies are kept apart."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave."""
        del state
