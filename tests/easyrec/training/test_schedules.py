"""Factors worked out by hand."""

from __future__ import annotations

import math

import pytest
from pydantic import TypeAdapter, ValidationError

from easyrec.config.training import Schedule
from easyrec.errors import TrainingError
from easyrec.training.schedules import schedule_factor

SCHEDULE = TypeAdapter(Schedule)


def factors(config, steps, total=None):
    factor = schedule_factor(SCHEDULE.validate_python(config), total)
    return [factor(step) for step in steps]


def test_constant():
    assert factors("constant", [0, 1, 1000]) == [1, 1, 1]


def test_warm_up_grows_linearly_and_wastes_no_step():
    assert factors({"type": "constant", "warmup_steps": 4}, range(6)) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_cosine_falls_to_its_floor_and_stays_there():
    config = {"type": "cosine", "warmup_steps": 2, "decay_steps": 4, "alpha": 0.2}
    half = math.sqrt(0.5)
    expected = [0.5, 1, 1, 0.2 + 0.4 * (1 + half), 0.6, 0.2 + 0.4 * (1 - half), 0.2, 0.2]
    assert factors(config, [0, 1, 2, 3, 4, 5, 6, 100]) == pytest.approx(expected)


def test_cosine_ends_with_training_unless_told_otherwise():
    assert factors({"type": "cosine", "warmup_steps": 2}, [2, 6, 10], total=10) == pytest.approx([1, 0.5, 0])
    with pytest.raises(TrainingError, match=r"`decay_steps` or `training.max_steps`"):
        factors("cosine", [0])


def test_exponential_with_and_without_a_staircase():
    config = {"type": "exponential", "decay_steps": 2, "decay_rate": 0.25}
    assert factors(config, [0, 1, 2, 4]) == pytest.approx([1, 0.5, 0.25, 0.0625])
    assert factors({**config, "staircase": True}, [0, 1, 2, 3, 4]) == [1, 1, 0.25, 0.25, 0.0625]
    assert factors({**config, "warmup_steps": 3}, [3, 5]) == pytest.approx([1, 0.25])


def test_step_counts_from_the_first_step():
    config = {"type": "step", "boundaries": [2, 5], "factors": [0.5, 0.1]}
    assert factors(config, [0, 1, 2, 4, 5, 99]) == [1, 1, 0.5, 0.5, 0.1, 0.1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"boundaries": [2, 2]}, "must increase"),
        ({"factors": [0.5]}, "one factor per boundary; there are 2 `boundaries` and 1 `factors`"),
    ],
)
def test_a_step_schedule_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(ValidationError, match=message):
        SCHEDULE.validate_python({"type": "step", "boundaries": [2, 5], "factors": [0.5, 0.1], **change})
