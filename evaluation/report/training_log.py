"""Which curves a training log holds."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

Curves: TypeAlias = dict[str, dict[str, tuple[list[float], list[float]]]]
"""Quantity -> series -> (x, y)."""

_AXES = ("step", "epoch")
_IGNORED = re.compile(r"(^|[/_])(time|timestamp|seconds|batch|step|epoch|examples|elapsed|eta)$")
_PART = re.compile(r"^(train|training|eval|evaluation|val|valid|validation|test)[/_.]")


def training_curves(log: Sequence[Mapping[str, Any]]) -> tuple[str, Curves]:
    """Sort the numbers of a log into curves.

    Entries need not have the same keys. The same quantity in training and in evaluation shares a plot: series
    whose names differ only in a leading part such as ``train/`` or ``eval_``, or in the ``event`` of their
    entries. Losses come first.

    Args:
        log: One mapping per entry; numbers are plotted, anything else is passed over.

    Returns:
        (name of the horizontal axis, curves with at least two finite points each).
    """
    axis = next((name for name in _AXES if any(name in entry for entry in log)), None)
    curves: Curves = {}
    for place, entry in enumerate(log):
        x = entry.get(axis) if axis else place
        if not _is_number(x):
            continue
        for name, value in entry.items():
            if not _is_number(value) or _IGNORED.search(name):
                continue
            series = f"{entry['event']} {name}" if "event" in entry else name
            points = curves.setdefault(_PART.sub("", name), {}).setdefault(series, ([], []))
            points[0].append(float(x))
            points[1].append(float(value))
    drawn = {
        quantity: {name: points for name, points in series.items() if len(points[0]) > 1}
        for quantity, series in curves.items()
    }
    order = sorted(
        (quantity for quantity, series in drawn.items() if series), key=lambda name: "loss" not in name
    )
    return axis or "entry", {quantity: drawn[quantity] for quantity in order}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
