"""The twin of `cross`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from easyrec.config.features import CrossFeature
from easyrec.features.twins.base import Columns, Twin
from easyrec.features.twins.values import as_text, texts

# `easyrec.features.cross.SEPARATOR`, which a module that needs TensorFlow defines.
_SEPARATOR = b"\x1f"


class CrossTwin(Twin[CrossFeature]):
    """A hash of the parts' texts joined; 0 when any part is missing."""

    def encode(self, columns: Columns) -> npt.NDArray[np.int32]:
        """[B] text or int64 each to [B]."""
        parts = [as_text(columns[part.name]) for part in self.inputs]
        joined = [_SEPARATOR.join(row) if all(row) else b"" for row in zip(*parts, strict=True)]
        return self.vocabulary.lookup(texts(joined))
