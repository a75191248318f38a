"""The twin of `number`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from easyrec.config.features import NumberFeature
from easyrec.features.twins.base import Columns, Fitted, Twin
from easyrec.features.twins.values import missing

_SMALLEST = np.finfo(np.float32).tiny


class NumberTwin(Twin[NumberFeature]):
    """One number to one number, or to the id of its bucket."""

    def __init__(self, config: NumberFeature, fitted: Fitted) -> None:
        super().__init__(config, fitted)
        self._normalize = config.normalize or "zscore"
        boundaries = self.state.get("boundaries", [])
        # As the transform has it: float32 boundaries meet float32 numbers, whole numbers keep their exact value.
        self._boundaries = {kind: np.array(boundaries, kind) for kind in (np.dtype("f4"), np.dtype("f8"))}
        self._offset, self._scale = self.state.get("offset", 0.0), self.state.get("scale", 1.0)

    def encode(self, columns: Columns) -> npt.NDArray[np.int32] | npt.NDArray[np.float32]:
        """[B] float32 or int64 to [B, 1] float32, or to [B] int32 of buckets."""
        raw = columns[self.inputs[0].name]
        absent = missing(raw)
        exact = np.where(absent, 0, raw) if raw.dtype == np.float32 else raw.astype(np.float64)
        if self.config.bucketized:
            buckets = 1 + np.searchsorted(self._boundaries[exact.dtype], exact, side="right")
            return np.where(absent, 0, buckets).astype(np.int32)
        number = np.where(absent, np.float32(self.config.fill), self._normalized(exact))
        return number.astype(np.float32)[:, None]

    def _normalized(self, exact: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        with np.errstate(over="ignore"):  # a number beyond float32 is infinite, in TensorFlow too
            if self._normalize == "none":
                return exact.astype(np.float32)
            if self._normalize == "log1p":
                number = np.maximum(exact, 0).astype(np.float32)
                # TensorFlow takes numbers below the smallest normal one for 0 here.
                return np.log1p(np.where(number < _SMALLEST, np.float32(0), number))
            return ((exact.astype(np.float64) - self._offset) * self._scale).astype(np.float32)
