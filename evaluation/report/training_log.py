"""Which curves a training log holds."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Curves: TypeAlias = dict[str, dict[str, tuple[list[float], list[float]]]]
"""Quantity -> series -> (x, y)."""

_AXES = ("step", "epoch")
_IGNORED = re.compile(r"(^|[/_])(time|timestamp|seconds|batch|step|epoch|elapsed|eta)$")
_PART = re.compile(r"^(train|training|eval|evaluation|val|valid|validation|test)[/_.]")


def training_curves(log: Sequence[Mapping[str, Any]]) -> tuple[str, Curves]:
    """Sort the numbers of a log into curves.

    Entries need not have the same keys. Series whose names differ only in a leading part such as ``train/`` or
    ``eval_`` belong to one quantity and one plot. Losses come first.

    Args:
        log: One mapping per entry; numbers are plotted, anything else is passed over.

    Returns:
        (name of the horizontal axis, curves with at least two finite points each).
    """
    axis = next((name for name in _AXES if any(name in entry for entry in log)), None)
    curves: Curves = {}
    for place, entry in enumerate(log):
        x = entry.get(axis, None) if axis else place
        if not _is_number(x):
            continue
        for name, value in entry.items():
            if not _is_number(value) or _IGNORED.search(name):
                continue
            series = curves.setdefault(_PART.sub("", name), {}).setdefault(name, ([], []))
            series[0].append(float(x))
            series[1].append(float(value))
    kept = {
        quantity: {name: points for name, points in series.items() if len(points[0]) > 1}
        for quantity, series in curves.items()
    }
    drawn = [quantity for quantity, series in kept.items() if series]
    drawn.sort(key=lambda quantity: "loss" not in quantity)
    return axis or "entry", {quantity: kept[quantity] for quantity in drawn}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
