"""Which rows to hold out: the last of each user, those after a time, or all rows of some users."""

import numpy as np

from evaluation.arrays import ArrayLike, BoolArray, FloatArray, codes
from evaluation.errors import DataError, EvaluationError
from evaluation.interactions import numbers_of_times
from evaluation.seeds import generator


def leave_last_out(user: ArrayLike, time: ArrayLike, n: int = 1) -> BoolArray:
    """The last `n` rows of each user, of users who have more than `n`: what a next-item model is asked.

    Other users' later rows stay in training, so a model may learn from what comes after a held-out row.

    Args:
        user: User of each row [n].
        time: Numbers or datetimes [n]; of equal times the later row in the data counts as later.
        n: Rows held out a user.

    Returns:
        True for rows to hold out [n].

    Raises:
        DataError: Missing values or lengths that differ.
        EvaluationError: `n` is below 1.
    """
    if n < 1:
        raise EvaluationError(f"n must be at least 1, got {n}.")
    code, n_users = codes(user, "user")
    clock = _clock(time, len(code))
    order = np.lexsort((np.arange(len(code)), clock, code))
    sizes = np.bincount(code, minlength=n_users)
    from_end = np.repeat(np.cumsum(sizes), sizes) - np.arange(len(code))
    held_out = np.zeros(len(code), dtype=bool)
    held_out[order] = (from_end <= n) & (sizes[code[order]] > n)
    return held_out


def split_by_time(time: ArrayLike, fraction: float = 0.1) -> BoolArray:
    """The latest rows: trained on the past, judged on the future, as in use.

    Args:
        time: Numbers or datetimes [n].
        fraction: Share of the rows to hold out, in (0, 1). Rows of one time stay together, so it may be a little less.

    Returns:
        True for rows later than the cut [n].

    Raises:
        DataError: Missing times, or all times are equal.
        EvaluationError: `fraction` is not between 0 and 1.
    """
    _check_fraction(fraction)
    clock = numbers_of_times(time)
    if not len(clock) or clock.min() == clock.max():
        raise DataError("All rows are of one time, so they cannot be split by time.")
    cut = np.quantile(clock, 1 - fraction, method="higher")
    held_out: BoolArray = clock > cut if (clock > cut).any() else clock == clock.max()
    return held_out


def split_by_user(user: ArrayLike, fraction: float = 0.1, *, seed: int = 0) -> BoolArray:
    """All rows of some users, drawn at random: how a model does for people it has never seen.

    Args:
        user: User of each row [n].
        fraction: Share of the users to hold out, in (0, 1); at least one user.
        seed: Seed of the draw.

    Returns:
        True for rows of the users held out [n].

    Raises:
        DataError: Missing users, or only one.
        EvaluationError: `fraction` is not between 0 and 1.
    """
    _check_fraction(fraction)
    code, n_users = codes(user, "user")
    if n_users < 2:
        raise DataError(f"A split by user needs at least two users, got {n_users}.")
    count = min(max(1, round(n_users * fraction)), n_users - 1)
    chosen = np.zeros(n_users, dtype=bool)
    chosen[generator(seed).choice(n_users, count, replace=False)] = True
    held_out: BoolArray = chosen[code]
    return held_out


def _clock(time: ArrayLike, n: int) -> FloatArray:
    clock = numbers_of_times(time)
    if len(clock) != n:
        raise DataError(f"There are {n:,} rows but {len(clock):,} times.")
    return clock


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise EvaluationError(f"fraction must be between 0 and 1, got {fraction}.")
