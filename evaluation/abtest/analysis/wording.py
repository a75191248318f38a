"""Numbers as an experiment's reader wants them."""

import math

MISSING = "–"
_SHORT = ("ctr", "aov", "cvr", "gmv")


def share(value: float, decimals: int = 1) -> str:
    """E.g. ``3.2%``."""
    # Rounding first: a little below 0 is 0, not -0.
    return f"{round(100 * value, decimals) + 0.0:.{decimals}f}%" if math.isfinite(value) else MISSING


def change(value: float, decimals: int = 1) -> str:
    """E.g. ``+3.2%`` or ``−1.0%``."""
    if not math.isfinite(value):
        return MISSING
    return f"{100 * value:+.{decimals}f}%".replace("-", "−")


def span(low: float, high: float, decimals: int = 1) -> str:
    """E.g. ``[−1.0%, +3.2%]``; empty without an interval."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"[{change(low, decimals)}, {change(high, decimals)}]"


def quantity(value: float) -> str:
    """Four digits that mean something, thousands apart."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    decimals = min(max(0, 3 - math.floor(math.log10(abs(value)))), 8)
    return f"{value:,.{decimals}f}".replace("-", "−")


def probability(p_value: float) -> str:
    """E.g. ``0.031`` or ``<0.0001``."""
    if not math.isfinite(p_value):
        return MISSING
    return "<0.0001" if p_value < 1e-4 else f"{p_value:.4f}"


def metric_title(name: str) -> str:
    """E.g. ``CTR`` for ctr and ``Watch time`` for watch_time."""
    return name.upper() if name in _SHORT else name.replace("_", " ").capitalize()
