"""What a metric is: its name, what it fits, how it is computed, and how it is resampled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from evaluation.metrics.beyond_accuracy import ListStatistic, PopularityLiftStatistic
from evaluation.metrics.statistic import Statistic

Kind: TypeAlias = Literal["binary", "regression", "multiclass", "grouped", "session", "ranking"]
Need: TypeAlias = Literal["", "popularity", "attributes"]

CUTOFF = "@k"


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name; a ranking metric's ends in "@k".
        kinds: The tasks it fits. "grouped" is for binary tasks with a user column, "session" for those with a session
            column.
        function: Binary, regression, multi-class: (label, score, weight) -> float. Grouped and session: (label,
            score, group, weight) -> float. Ranking: (RankedLists, k) -> one value per user [U], or one number if
            `statistic` says how it is resampled.
        higher_is_better: Whether a larger value is a better model.
        doc: One line that says what the number means.
        undefined: Why the value can be nan, in words for a report; empty if it cannot.
        needs_probability: Whether scores must lie in [0, 1].
        is_thresholded: Whether it cuts scores of a binary task at 0.5, which says nothing of scores that are no
            probabilities: it is then computed only if asked for.
        statistic: A faster way to resample it; without one it is computed anew for each resample. A grouped or session
            metric must have one. A ranking metric of all lists together has a `ListStatistic`.
        is_default: Whether it is computed when no metrics are asked for.
        is_biased: Whether resampling shifts it, as it shifts a sum of absolute gaps or a count of distinct items;
            its draws are then centred at the value.
        is_descriptive: Whether it says what lists are like, and neither direction is better.
        needs: What a ranking metric must know apart from the lists.
    """

    name: str
    kinds: tuple[Kind, ...]
    function: Callable[..., Any]
    higher_is_better: bool
    doc: str
    undefined: str = ""
    needs_probability: bool = False
    is_thresholded: bool = False
    statistic: Statistic | ListStatistic | PopularityLiftStatistic | None = None
    is_default: bool = True
    is_biased: bool = False
    is_descriptive: bool = False
    needs: Need = ""

    @property
    def is_ranking(self) -> bool:
        """Whether it judges ranked lists at a cut-off."""
        return self.kinds == ("ranking",)

    @property
    def of_all_lists(self) -> bool:
        """Whether it is one number of all ranked lists together, not a mean over users."""
        return self.is_ranking and self.statistic is not None

    @property
    def better(self) -> str:
        """The better direction in words: "higher", "lower" or "–"."""
        return "–" if self.is_descriptive else "higher" if self.higher_is_better else "lower"


class MetricAtK(NamedTuple):
    """A metric and the cut-off asked for; `k` is None unless the metric is of ranked lists."""

    metric: Metric
    k: int | None

    @property
    def name(self) -> str:
        """The name with its cut-off, e.g. "ndcg@10"."""
        return self.metric.name if self.k is None else f"{self.metric.name.removesuffix(CUTOFF)}@{self.k}"
