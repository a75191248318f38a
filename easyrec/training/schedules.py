"""Learning-rate schedules: a factor on the base rates as a function of the step alone.

The factor is computed outside the graph, so that resuming needs no state and both optimizers follow one schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from easyrec.config.training import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    Schedule,
    StepSchedule,
)
from easyrec.errors import TrainingError

Factor = Callable[[int], float]


def schedule_factor(config: Schedule, total_steps: int | None = None) -> Factor:
    """The factor of each step, steps counted from 0.

    During warm-up of W steps, step s has the factor (s + 1) / W, so no step is spent at a rate of 0. With t = s − W
    steps since warm-up and T = `decay_steps`:

        cosine        α + (1 − α) (1 + cos(π min(t, T) / T)) / 2 (Loshchilov & Hutter 2017, without restarts)
        exponential   decay_rate^(t / T), the exponent rounded down with `staircase`
        step          the factor of the last boundary that s has reached, boundaries counted from the first step

    Args:
        config: The schedule.
        total_steps: Steps of the whole training if known; the cosine ends there unless `decay_steps` is given.

    Raises:
        TrainingError: A cosine without `decay_steps` where the length of training is not known.
    """
    decay = _decay(config, total_steps)
    warmup = config.warmup_steps

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return decay(step)

    return factor


def _decay(config: Schedule, total_steps: int | None) -> Factor:
    warmup = config.warmup_steps
    match config:
        case ConstantSchedule():
            return lambda step: 1.0
        case CosineSchedule(alpha=alpha):
            length = _cosine_steps(config, total_steps)
            return lambda step: (
                alpha + (1 - alpha) * (1 + math.cos(math.pi * min(step - warmup, length) / length)) / 2
            )
        case ExponentialSchedule(decay_rate=rate, decay_steps=steps, staircase=staircase):
            return lambda step: rate ** ((step - warmup) // steps if staircase else (step - warmup) / steps)
        case StepSchedule(boundaries=boundaries, factors=factors):
            return lambda step: next(
                (
                    value
                    for start, value in zip(boundaries[::-1], factors[::-1], strict=True)
                    if step >= start
                ),
                1.0,
            )


def _cosine_steps(config: CosineSchedule, total_steps: int | None) -> int:
    if config.decay_steps is not None:
        return config.decay_steps
    if total_steps is None:
        raise TrainingError(
            "training.optimizer.schedule: the cosine ends with training unless told otherwise, but the number of rows "
            "is not known; give `decay_steps` or `training.max_steps`"
        )
    return max(1, total_steps - config.warmup_steps)
