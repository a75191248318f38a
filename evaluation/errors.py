"""Errors of the evaluation package.

EvaluationError(ValueError)     base: catch this one
    DataError                   a table, column or value cannot be judged
    MetricError                 an unknown metric, or one asked of the wrong kind of task
"""

import difflib
from collections.abc import Iterable


class EvaluationError(ValueError):
    """Something about the request or the data makes an honest number impossible."""


class DataError(EvaluationError):
    """A table, column or value that cannot be judged; the message names the place."""


class MetricError(EvaluationError):
    """A metric that does not exist, exists twice, or does not fit the task."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """The clause that ends an unknown-name message: the nearest name, then all of them.

    Args:
        name: What was asked for.
        options: The names that exist.

    Returns:
        A text such as ``did you mean 'ndcg@k'? Known: auc, ...``; without a near name only the second half.
    """
    known = sorted(options)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    listing = f"Known: {', '.join(known)}." if known else "There are none."
    return f"did you mean {near[0]!r}? {listing}" if near else listing
