"""Logged actions with their rewards and propensities, checked."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluation.arrays import ArrayLike, FloatArray, IntArray, codes, floats, name_rows, same_length
from evaluation.errors import DataError

_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class LoggedActions:
    """What a logging policy did, and what the new policy would do there. Build it with `of`.

    Attributes:
        reward: float64 [n], what the logged action earned.
        propensity: float64 [n], probability with which the logging policy chose it, above 0.
        target: float64 [n], probability with which the new policy would choose the logged action.
        predicted: float64 [n], reward that a model predicts for the logged action; None without a model.
        baseline: float64 [n], reward that the model predicts for the new policy: its predictions averaged over the new
            policy's actions; None without a model.
        unit: int64 [n], the user of each row, 0 to n_units - 1; rows themselves where users are unknown.
        n_units: Number of users.
        unsupported: Probability the new policy gives, on average, to actions the logging policy never takes; 0 where
            that is unknown.
    """

    reward: FloatArray
    propensity: FloatArray
    target: FloatArray
    predicted: FloatArray | None
    baseline: FloatArray | None
    unit: IntArray
    n_units: int
    unsupported: float = 0.0

    @classmethod
    def of(
        cls,
        reward: ArrayLike,
        propensity: ArrayLike,
        target: ArrayLike,
        *,
        action: ArrayLike | None = None,
        logging: ArrayLike | None = None,
        predicted: ArrayLike | None = None,
        baseline: ArrayLike | None = None,
        user: ArrayLike | None = None,
    ) -> "LoggedActions":
        """Check and wrap logs.

        Args:
            reward: Rewards [n].
            propensity: Probability of each logged action under the logging policy [n], above 0 and at most 1.
            target: Probability of the logged action under the new policy [n]; or of every action [n, actions], then
                `action` says which one was logged.
            action: Logged actions, numbers from 0 [n]; needed where `target` or `predicted` are of all actions.
            logging: Probability of every action under the logging policy [n, actions]; with it actions that the new
                policy takes and the logging policy never does are found.
            predicted: Predicted reward of the logged action [n], or of every action [n, actions].
            baseline: Predicted reward of the new policy [n]; computed where `target` and `predicted` are of all
                actions.
            user: User of each row [n]; intervals then resample users.

        Returns:
            The logs.

        Raises:
            DataError: Lengths differ, values are missing, probabilities are none, or a propensity is 0 or below.
        """
        rewards = floats(reward, "reward")
        n = len(rewards)
        chance = floats(propensity, "propensity")
        same_length_as_reward(n, chance, "propensity")
        _refuse_outside(chance, "propensity")
        if (chance <= 0).any():
            raise DataError(
                f"propensity must be above 0, got {chance.min():g} in {name_rows(chance <= 0)}: an action that cannot "
                "be chosen cannot be in the log. Log the probability at the moment of choosing."
            )
        actions = None if action is None else _actions(action, n)
        target_rows, policy = _of_logged(target, actions, n, "target", is_probability=True)
        predicted_rows, model = (
            (None, None)
            if predicted is None
            else _of_logged(predicted, actions, n, "predicted", is_probability=False)
        )
        value = None if baseline is None else floats(baseline, "baseline")
        if value is not None:
            same_length_as_reward(n, value, "baseline")
        elif model is not None and policy is not None:
            value = np.asarray((policy * model).sum(axis=1))
        unsupported = 0.0
        if logging is not None and policy is not None:
            known, everything = _of_logged(logging, actions, n, "logging", is_probability=True)
            if everything is not None:
                unsupported = float(np.where(everything <= 0, policy, 0.0).sum(axis=1).mean())
            _refuse_other_propensity(known, chance)
        unit, n_units = (np.arange(n), n) if user is None else codes(user, "user")
        same_length_as_reward(n, unit, "user")
        return cls(rewards, chance, target_rows, predicted_rows, value, unit, n_units, unsupported)

    @property
    def weight(self) -> FloatArray:
        """Importance weights, target / propensity [n]."""
        return self.target / self.propensity

    def __len__(self) -> int:
        return len(self.reward)


def same_length_as_reward(n: int, array: npt.NDArray[Any], name: str) -> None:
    """Refuse another number of rows than the rewards have, and none."""
    if len(array) != n:
        raise DataError(f"{name} has {len(array):,} rows but there are {n:,} rewards.")
    same_length(n, array, name)


def _refuse_outside(values: FloatArray, name: str) -> None:
    outside = (values < 0) | (values > 1 + _SUM_TOLERANCE)
    if outside.any():
        bad = outside.reshape(len(outside), -1).any(axis=1)
        raise DataError(
            f"{name} must be probabilities in [0, 1], got {values[outside].flat[0]:g} in {name_rows(bad)}."
        )


def _actions(values: ArrayLike, n: int) -> IntArray:
    actions = np.asarray(values)
    if actions.dtype.kind not in "iu" or actions.ndim != 1:
        raise DataError(
            f"action must be whole numbers from 0 [n], got {actions.dtype} of shape {actions.shape}."
        )
    same_length_as_reward(n, actions, "action")
    if actions.min(initial=0) < 0:
        raise DataError(f"action must be numbers from 0, got {actions.min()} in {name_rows(actions < 0)}.")
    return actions.astype(np.int64)


def _of_logged(
    values: ArrayLike, actions: IntArray | None, n: int, name: str, *, is_probability: bool
) -> tuple[FloatArray, FloatArray | None]:
    """(values of the logged actions [n], values of every action [n, actions] if given)."""
    array = np.asarray(values)
    if array.ndim != 2:
        rows = floats(values, name)
        same_length_as_reward(n, rows, name)
        if is_probability:
            _refuse_outside(rows, name)
        return rows, None
    table = np.stack([floats(column, name) for column in array.T], axis=1)
    same_length_as_reward(n, table, name)
    if actions is None:
        raise DataError(f"{name} is of every action, so say with action= which one was logged in each row.")
    if actions.max() >= table.shape[1]:
        bad = actions >= table.shape[1]
        raise DataError(
            f"{name} has {table.shape[1]} actions but action {actions.max()} was logged in {name_rows(bad)}."
        )
    if is_probability:
        _refuse_outside(table, name)
        total = table.sum(axis=1)
        off = np.abs(total - 1) > _SUM_TOLERANCE
        if off.any():
            raise DataError(
                f"{name} must sum to 1 over the actions, got {total[np.argmax(off)]:g} in {name_rows(off)}."
            )
    return table[np.arange(n), actions], table


def _refuse_other_propensity(known: FloatArray, propensity: FloatArray) -> None:
    off = np.abs(known - propensity) > _SUM_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise DataError(
            f"propensity is {propensity[row]:g} but logging gives the logged action {known[row]:g} in {name_rows(off)}."
        )
