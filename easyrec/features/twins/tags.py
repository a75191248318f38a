"""The twin of `tags`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from easyrec.config.features import TagsFeature
from easyrec.features.batch import RaggedColumn
from easyrec.features.twins.base import Columns, Fitted, Twin
from easyrec.features.twins.values import as_text, flat_rows, missing, places_in_row, ragged, texts

# What `easyrec.features.tags` takes for a number; \s there has no vertical tab.
_NUMBER = r"[\t\n\f\r ]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?[\t\n\f\r ]*"


class TagsTwin(Twin[TagsFeature]):
    """Several categories to several ids, with or without weights."""

    def __init__(self, config: TagsFeature, fitted: Fitted) -> None:
        super().__init__(config, fitted)
        self._cut = (config.weight_separator or "").encode()
        self._proper = re.compile(rf"(?s).*{re.escape(config.weight_separator or '')}{_NUMBER}")

    def encode(self, columns: Columns) -> RaggedColumn:
        """[B], [B, L] to a column of B rows, with weights if there are any."""
        column = columns[self.inputs[0].name]
        values, rows = flat_rows(column, self.config.separator)
        weights = None
        if self.config.weight_separator is not None:
            values, weights = self._split_weights(values)
        elif len(self.inputs) > 1:
            given = columns[self.inputs[1].name].reshape(-1)
            weights = np.where(missing(given), np.float32(1), given).astype(np.float32)
        kept = np.flatnonzero(~missing(values))
        if self.config.max_length is not None:
            kept = kept[places_in_row(rows[kept], len(column)) < self.config.max_length]
        ids = self.vocabulary.lookup(values[kept])
        return ragged(ids, rows[kept], len(column), None if weights is None else weights[kept])

    def _split_weights(
        self, values: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.float32]]:
        """Keys and weights of `key:weight` texts; 1 for a weight that is missing or not a number."""
        keys, weights = [], np.ones(len(values), np.float32)
        for place, word in enumerate(as_text(values)):
            key, found, digits = word.rpartition(self._cut)
            text = _decoded(word)
            if text is None or not found:  # what is not UTF-8 matches no pattern
                keys.append(word.strip())
                continue
            keys.append(key.strip())
            if self._proper.fullmatch(text):
                with np.errstate(over="ignore"):
                    weight = np.float32(float(digits))
                if np.isfinite(weight):  # 1e999 is a number in text only
                    weights[place] = weight
        return texts(keys), weights


def _decoded(word: bytes) -> str | None:
    try:
        return word.decode()
    except UnicodeDecodeError:
        return None
