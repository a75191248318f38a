"""Random numbers from a seed."""

import numpy as np

from evaluation.errors import EvaluationError


def generator(seed: object, *more: int) -> np.random.Generator:
    """The generator of a seed.

    Args:
        seed: A whole number of at least 0.
        more: Numbers that keep generators of the same seed apart, at least 0.

    Raises:
        EvaluationError: The seed is none.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise EvaluationError(f"seed must be a whole number of at least 0, got {seed!r}.")
    return np.random.default_rng([int(seed), *more] if more else int(seed))
