"""Off-policy evaluation: what a new policy would have earned, from the logs of another.

    from evaluation.off_policy import LoggedActions, estimate_value

The logs must hold the propensity: the probability with which the logged action was chosen. Without exploration there is
nothing to learn about actions that were not taken, and the estimators refuse.
"""

from evaluation.off_policy.estimators import Estimator, estimate_value
from evaluation.off_policy.logs import LoggedActions
from evaluation.off_policy.result import OffPolicyResult, PolicyEstimate, Support
from evaluation.off_policy.slates import LoggedSlates, estimate_slate_value

__all__ = [
    "Estimator",
    "LoggedActions",
    "LoggedSlates",
    "OffPolicyResult",
    "PolicyEstimate",
    "Support",
    "estimate_slate_value",
    "estimate_value",
]
