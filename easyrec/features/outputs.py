"""What features hand to embeddings and models: the schema of an encoded batch.

An encoded batch is a flat mapping of tensors (NumPy arrays while it is shuffled), B rows:

    ids                    [B, F] int32    one column per single-valued `IdsOutput`, in order
    numbers                [B, K] float32  the `NumbersOutput`s side by side, in order
    <feature>/values       [V]    int32    ids of all rows, one after the other (multi-valued `IdsOutput`)
    <feature>/row_lengths  [B]    int32    how many of them belong to each row
    <feature>/weights      [V]    float32  only where `weighted`
    label/<task>           [B]    float32
    weight                 [B]    float32  only when the configuration names a sample weight

Ids are local to the feature's table: 0 means missing, then come the out-of-vocabulary ids, then the values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from easyrec.config.embedding import Initializer
from easyrec.config.features import Pooling, Side


@dataclass(frozen=True)
class IdsOutput:
    """Ids of one feature.

    Attributes:
        feature: Name of the feature.
        table: Name of the embedding table; outputs with the same table have the same rows and dim.
        rows: Rows of the table, missing and out-of-vocabulary ids included.
        dim: Width of the embedding.
        side: Whom the feature describes.
        pooling: None for one id per row; else how several become one vector.
        sequence: Whether order matters and models may attend over the positions.
        max_length: At most so many ids a row, or None.
        weighted: Whether each id has a weight.
        initializer: How rows start.
    """

    feature: str
    table: str
    rows: int
    dim: int
    side: Side
    pooling: Pooling | None = None
    sequence: bool = False
    max_length: int | None = None
    weighted: bool = False
    initializer: Initializer = field(default_factory=Initializer)

    @property
    def single(self) -> bool:
        """Whether there is exactly one id per row."""
        return self.pooling is None


@dataclass(frozen=True)
class NumbersOutput:
    """Numbers of one feature.

    Attributes:
        feature: Name of the feature.
        width: Columns in `numbers`.
        side: Whom the feature describes.
        embedding_dim: Width of the learned vector each number is multiplied with, or None to use the number as it is.
    """

    feature: str
    width: int
    side: Side
    embedding_dim: int | None = None


Output = IdsOutput | NumbersOutput


@dataclass(frozen=True)
class FeatureSchema:
    """The outputs of all features of a pipeline, in the order of the configuration."""

    outputs: tuple[Output, ...]

    @cached_property
    def ids(self) -> tuple[IdsOutput, ...]:
        """All id outputs."""
        return tuple(output for output in self.outputs if isinstance(output, IdsOutput))

    @cached_property
    def single_ids(self) -> tuple[IdsOutput, ...]:
        """The columns of `ids`."""
        return tuple(output for output in self.ids if output.single)

    @cached_property
    def multi_ids(self) -> tuple[IdsOutput, ...]:
        """The outputs stored as values and row lengths."""
        return tuple(output for output in self.ids if not output.single)

    @cached_property
    def numbers(self) -> tuple[NumbersOutput, ...]:
        """The outputs stored in `numbers`."""
        return tuple(output for output in self.outputs if isinstance(output, NumbersOutput))

    def short(self) -> FeatureSchema:
        """The same outputs over tables of one row, for what does not depend on how long tables are."""
        return FeatureSchema(
            tuple(replace(one, rows=1) if isinstance(one, IdsOutput) else one for one in self.outputs)
        )

    def select(self, features: set[str]) -> FeatureSchema:
        """The outputs of the named features only."""
        return FeatureSchema(tuple(output for output in self.outputs if output.feature in features))
