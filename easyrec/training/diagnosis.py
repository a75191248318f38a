"""What may have made a loss that is not a number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from easyrec.features.batch import Array
from easyrec.features.outputs import FeatureSchema

_EXTREME = 1e4


def explain_loss(
    step: int, losses: Mapping[str, float], arrays: Mapping[str, Array], schema: FeatureSchema | None
) -> str:
    """A message that names the step, the part of the loss, suspicious inputs, and what to do.

    Args:
        step: The step, from 1.
        losses: `loss` and its parts.
        arrays: The encoded batch.
        schema: Names the columns of `numbers`.
    """
    parts = ", ".join(f"{name} {value:g}" for name, value in losses.items())
    findings = _suspicious(arrays, schema)
    causes = "\n  ".join(
        findings
        or ["none of the inputs is extreme: the learning rate may be too high, or the model too deep for it"]
    )
    return (
        f"the loss is not a finite number at step {step} ({parts}). Training has stopped; no checkpoint holds these "
        f"weights. Likely causes:\n  {causes}\nTry a lower `training.optimizer.dense.learning_rate` and "
        "`embedding.learning_rate`, `training.optimizer.clip_norm: 1.0`, or warm-up steps"
    )


def _suspicious(arrays: Mapping[str, Array], schema: FeatureSchema | None) -> list[str]:
    findings = []
    for key, values in arrays.items():
        if key.startswith("label/") or key == "weight" or key.endswith("/weights"):
            findings += _describe(key, values)
    if "numbers" in arrays:
        names = [output.feature for output in schema.numbers for _ in range(output.width)] if schema else []
        for index, values in enumerate(arrays["numbers"].T):
            name = names[index] if index < len(names) else f"numbers[{index}]"
            findings += _describe(f"features.{name}", values)
    return findings


def _describe(name: str, values: Array) -> list[str]:
    bad = int(np.count_nonzero(~np.isfinite(values)))
    if bad:
        return [f"{name}: {bad} of {values.size} values are not finite"]
    largest = float(np.abs(values).max(initial=0))
    if largest > _EXTREME:
        return [f"{name}: values up to {largest:g}; normalise them (`normalize: log1p` or `zscore`)"]
    return []
