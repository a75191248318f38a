"""Gates: how much worse a model may be by a metric before it is refused, e.g. in continuous integration."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from evaluation.comparison_result import Comparison
from evaluation.errors import EvaluationError, did_you_mean
from evaluation.render import decimals_for, interval_text, number


@dataclass(frozen=True)
class Gate:
    """The least change of a metric that is accepted.

    Attributes:
        metric: Name in a comparison, e.g. "liked/auc".
        change: Model minus reference may not be worse than this: below it where higher is better, above it where
            lower is.
        is_strict: Whether the whole interval must pass, not only the value: then chance seldom lets a worse model
            through, and a model that is merely not known well enough fails.
    """

    metric: str
    change: float
    is_strict: bool = False


@dataclass(frozen=True)
class GateResult:
    """What a gate says.

    Attributes:
        gate: The gate.
        passed: Whether the model passes.
        reason: One sentence with the numbers.
    """

    gate: Gate
    passed: bool
    reason: str


def parse_gate(text: str, *, is_strict: bool = False) -> Gate:
    """Read a gate as users write it, e.g. ``liked/auc:-0.001``.

    Args:
        text: Metric, colon, the least change that is accepted.
        is_strict: See `Gate`.

    Returns:
        The gate.

    Raises:
        EvaluationError: It is not of that form.
    """
    name, colon, change = text.rpartition(":")
    try:
        value = float(change)
    except ValueError:
        value = math.nan
    if not colon or not name or not math.isfinite(value):
        raise EvaluationError(
            f"A gate is written METRIC:CHANGE, such as liked/auc:-0.001 (AUC may fall by at most 0.001), got {text!r}."
        )
    return Gate(name, value, is_strict)


def judge_gates(comparison: Comparison, gates: Iterable[Gate]) -> list[GateResult]:
    """Let a comparison pass gates.

    Args:
        comparison: The comparison.
        gates: The gates.

    Returns:
        One result a gate. A metric that is undefined, or a strict gate without an interval, does not pass.

    Raises:
        EvaluationError: A gate of a metric that was not compared; the message names the nearest.
    """
    return [_judge(comparison, gate) for gate in gates]


def _judge(comparison: Comparison, gate: Gate) -> GateResult:
    if gate.metric not in comparison.metrics:
        raise EvaluationError(
            f"The gate {gate.metric}:{gate.change:g} is of a metric that was not compared; "
            f"{did_you_mean(gate.metric, comparison.metrics)}"
        )
    one = comparison.metrics[gate.metric]
    difference = one.paired.difference
    worst = (
        (difference.low if one.higher_is_better else difference.high) if gate.is_strict else difference.value
    )
    passed = worst >= gate.change if one.higher_is_better else worst <= gate.change
    decimals = decimals_for([difference])
    text = f"{gate.metric} changed by {number(difference.value, decimals, signed=True)}"
    if difference.has_interval:
        text += f" ({interval_text(difference, decimals, signed=True)})"
    limit = f"{'at least' if one.higher_is_better else 'at most'} {gate.change:+g}".replace("-", "−")
    if math.isnan(worst):
        return GateResult(gate, False, f"{text}, which cannot be held against {limit}")
    whole = " for the whole interval" if gate.is_strict else ""
    return GateResult(gate, bool(passed), f"{text}; {limit}{whole} is accepted")
