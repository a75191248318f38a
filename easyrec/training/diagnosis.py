"""What may have made a loss that is not a number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from easyrec.features.batch import Array
from easyrec.features.outputs import FeatureSchema

_EXTREME = 1e4


class Suspects:
    """Remembers how large the inputs have been: a loss may break some steps after the batch that broke the weights.

    Args:
        schema: Names the columns of `numbers`.
    """

    def __init__(self, schema: FeatureSchema | None) -> None:
        self._names = (
            [output.feature for output in schema.numbers for _ in range(output.width)] if schema else []
        )
        self._largest: Array = np.zeros(0, np.float32)

    def watch(self, arrays: Mapping[str, Array]) -> None:
        """Takes the batch of a step."""
        numbers = arrays.get("numbers")
        if numbers is None or not numbers.size:
            return
        largest = np.maximum(numbers.max(axis=0), -numbers.min(axis=0))  # NaN stays NaN
        self._largest = np.maximum(self._largest, largest) if self._largest.size else largest

    def explain(self, step: int, losses: Mapping[str, float], arrays: Mapping[str, Array]) -> str:
        """A message that names the step, the parts of the loss, suspicious inputs, and what to do.

        Args:
            step: The step, from 1.
            losses: `loss` and its parts.
            arrays: The batch of this step.
        """
        parts = ", ".join(f"{name} {value:g}" for name, value in losses.items())
        causes = [*_broken(arrays), *self._extreme()] or [
            "none of the inputs is extreme: the learning rate may be too high, or the model too deep for it"
        ]
        return (
            f"the loss is not a finite number at step {step} ({parts}). Training has stopped; no checkpoint holds "
            "these weights. Likely causes:\n  " + "\n  ".join(causes) + "\n"
            "Try a lower `training.optimizer.dense.learning_rate` and `training.optimizer.embedding.learning_rate`, "
            "`training.optimizer.clip_norm: 1.0`, or warm-up steps"
        )

    def _extreme(self) -> list[str]:
        found = []
        for index, largest in enumerate(self._largest.tolist()):
            name = self._names[index] if index < len(self._names) else f"numbers[{index}]"
            if not np.isfinite(largest):
                found.append(f"features.{name}: has values that are not finite")
            elif largest > _EXTREME:
                found.append(
                    f"features.{name}: has values up to {largest:g}; normalise it (`normalize: log1p` or `zscore`)"
                )
        return found


def _broken(arrays: Mapping[str, Array]) -> list[str]:
    found = []
    for key, values in arrays.items():
        if key.startswith("label/") or key == "weight" or key.endswith("/weights"):
            bad = int(np.count_nonzero(~np.isfinite(values)))
            if bad:
                found.append(f"{key}: {bad} of {values.size} values are not finite")
    return found
