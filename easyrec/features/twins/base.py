"""The twin of a transform: the same ids and numbers from the same raw arrays, without TensorFlow.

A service that runs on LiteRT encodes with twins. A twin reads what its transform was fitted with and is tested against
it on rows that are hard to encode; loading a bundle compares the two once more, on the stored example rows.

A feature type of a package brings its own twin:

    class RoundedTwin(Twin[RoundedConfig]):
        \"\"\"Ids of rounded numbers.\"\"\"

        def encode(self, columns):
            value = columns[self.inputs[0].name].astype(np.float32)
            absent = missing(columns[self.inputs[0].name])
            step = np.clip(np.round(np.where(absent, 0, value) / self.config.step), 0, 99)
            return np.where(absent, 0, 1 + step).astype(np.int32)

    TWINS.register("rounded", RoundedConfig, RoundedTwin)

It is best registered in a module that does not import TensorFlow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from easyrec.config.features import (
    CrossFeature,
    FeatureConfig,
    IdFeature,
    NumberFeature,
    SequenceFeature,
    TagsFeature,
)
from easyrec.features.batch import RaggedColumn
from easyrec.features.inputs import InputSpec
from easyrec.features.twins.vocabulary import VocabularyTwin
from easyrec.registry import Registry

ConfigT = TypeVar("ConfigT", bound=FeatureConfig)
Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
Encoded: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.float32] | RaggedColumn


@dataclass(frozen=True)
class Fitted:
    """What a twin takes over from its transform.

    Attributes:
        inputs: What `Transform.inputs` gives.
        state: What `Transform.state` gives.
        vocabulary: The vocabulary of a transform that has one.
    """

    inputs: tuple[InputSpec, ...]
    state: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: VocabularyTwin | None = None


class Twin(ABC, Generic[ConfigT]):
    """One feature: raw arrays to ids or numbers.

    Args:
        config: Options of the feature.
        fitted: What its transform knows.
    """

    def __init__(self, config: ConfigT, fitted: Fitted) -> None:
        self.config = config
        self.inputs = fitted.inputs
        self.state = fitted.state
        self._vocabulary = fitted.vocabulary

    @property
    def vocabulary(self) -> VocabularyTwin:
        """The vocabulary.

        Raises:
            TypeError: The transform has none.
        """
        if self._vocabulary is None:
            raise TypeError(f"the transform of {type(self).__name__} has no attribute `vocabulary`")
        return self._vocabulary

    @abstractmethod
    def encode(self, columns: Columns) -> Encoded:
        """Raw arrays to encoded ones.

        Args:
            columns: The inputs by name, as the exported signatures take them (`easyrec.features.inputs`): [B], or
                [B, L] padded with missing values; text as objects (str or bytes), int64, float32.

        Returns:
            int32 [B] for one id a row, a `RaggedColumn` for several, float32 [B, width] for numbers.
        """


TWINS: Registry[FeatureConfig] = Registry("feature type with a twin", FeatureConfig)
TWINS.register("id", IdFeature, "easyrec.features.twins.id:IdTwin")
TWINS.register("tags", TagsFeature, "easyrec.features.twins.tags:TagsTwin")
TWINS.register("number", NumberFeature, "easyrec.features.twins.number:NumberTwin")
TWINS.register("sequence", SequenceFeature, "easyrec.features.twins.sequence:SequenceTwin")
TWINS.register("cross", CrossFeature, "easyrec.features.twins.cross:CrossTwin")
