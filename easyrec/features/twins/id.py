"""The twin of `id`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from easyrec.config.features import IdFeature
from easyrec.features.twins.base import Columns, Twin


class IdTwin(Twin[IdFeature]):
    """One category to one id."""

    def encode(self, columns: Columns) -> npt.NDArray[np.int32]:
        """[B] text or int64 to [B]."""
        return self.vocabulary.lookup(columns[self.inputs[0].name])
