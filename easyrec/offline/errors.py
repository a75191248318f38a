"""Errors of `evaluation` as errors of EasyRec: whoever catches either catches them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from easyrec.errors import EasyRecError, InputError
from evaluation import DataError, EvaluationError, MetricError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class OfflineError(InputError, EvaluationError):
    """Something about a run or its rows makes an honest number impossible."""


class OfflineDataError(OfflineError, DataError):
    """A column or value of a run's rows cannot be judged."""


class OfflineMetricError(OfflineError, MetricError):
    """A metric that does not exist, or does not fit the task."""


def raises_easyrec_errors(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Lets a function that calls `evaluation` raise its errors as `EasyRecError` too.

    `evaluation` knows nothing of EasyRec, so its errors are none of EasyRec's; but a caller of EasyRec catches
    `EasyRecError`, and need not know which package measures.
    """

    @functools.wraps(function)
    def told(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except EasyRecError:
            raise
        except MetricError as error:
            raise OfflineMetricError(str(error)) from error
        except DataError as error:
            raise OfflineDataError(str(error)) from error
        except EvaluationError as error:
            raise OfflineError(str(error)) from error

    return told
