"""What `evaluate_ranking` returns: models and baselines side by side, and a verdict in plain words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any

from evaluation.baselines import BASELINES
from evaluation.cold_start import Apart
from evaluation.errors import MetricError, did_you_mean
from evaluation.metrics.ranking import RankedLists
from evaluation.metrics.registry import parse_metric
from evaluation.plotting.plots import metric_by_k, ranking_overview
from evaluation.popularity import PopularityShares
from evaluation.render import (
    TextTable,
    decimals_for,
    interval_text,
    metric_title,
    number,
    p_value_text,
    percent,
)
from evaluation.uncertainty import Estimate, PairedDifference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = "easyrec.ranking/1"


@dataclass(frozen=True)
class RankingResult:
    """Ranking metrics of several models on the same users.

    Attributes:
        models: Estimates by model and metric at a cut-off, e.g. ``models["two_tower"]["ndcg@10"]``.
        differences: Model minus reference, by model and metric; empty without a reference or intervals.
        reference: The model that others are compared with.
        strongest: The baseline that is best by the primary metric, unless it is the reference or there is none.
        from_strongest: Model minus that baseline in the primary metric, by model.
        primary: The metric that the verdict is about.
        ks: Cut-offs, ascending.
        n_users: Number of users judged.
        n_excluded: Number of users left out because nothing unseen is relevant to them.
        n_items: Number of items that compete.
        n_relevant_seen: Number of relevant items that were left out because the user had seen them.
        level: Confidence level of the intervals.
        resamples: Number of bootstrap resamples, 0 without intervals.
        seed: Seed of the resamples.
        lists: The ranked lists of each model.
        apart: Cold users, warm users and cold items, where there are any.
        candidates: What competed, in words, where it was not the whole catalogue.
        is_sampled: Whether chance has chosen the candidates.
        popularity: How consumption and each model's recommendations spread over items from popular to rare, where
            the training interactions were given.
    """

    models: Mapping[str, Mapping[str, Estimate]]
    differences: Mapping[str, Mapping[str, PairedDifference]]
    reference: str | None
    primary: str
    ks: tuple[int, ...]
    n_users: int
    n_excluded: int
    n_items: int
    n_relevant_seen: int
    level: float
    resamples: int
    seed: int
    lists: Mapping[str, RankedLists] = field(default_factory=dict, repr=False, compare=False)
    apart: Mapping[str, Apart] = field(default_factory=dict)
    candidates: str = ""
    is_sampled: bool = False
    popularity: PopularityShares | None = None
    strongest: str | None = None
    from_strongest: Mapping[str, PairedDifference] = field(default_factory=dict)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics with their cut-offs, in order."""
        return list(next(iter(self.models.values())))

    def value(self, model: str, metric: str | None = None) -> float:
        """The value of a metric (by default the primary one) of a model.

        Raises:
            KeyError: There is no such model or metric.
        """
        return self.models[model][metric or self.primary].value

    def verdict(self, model: str) -> str:
        """One sentence that compares a model with the reference by the primary metric.

        Args:
            model: A model other than the reference.

        Returns:
            E.g. ``two_tower beats popularity by 0.031 NDCG@10 (95 % interval 0.022 to 0.040), ...``.

        Raises:
            KeyError: There is no difference for this model.
        """
        return self._compared(model, str(self.reference), self.differences[model][self.primary])

    def verdicts(self, model: str) -> list[str]:
        """A model against the reference, and against the strongest baseline where that is another.

        Raises:
            KeyError: There is no difference for this model.
        """
        sentences = [self.verdict(model)]
        if self.strongest is not None and model in self.from_strongest and model not in BASELINES:
            sentences.append(
                "Against the strongest baseline: "
                + self._compared(model, self.strongest, self.from_strongest[model])
            )
        return sentences

    def _compared(self, model: str, other: str, gap: PairedDifference) -> str:
        change, shown = gap.difference, metric_title(self.primary)
        decimals = decimals_for([change])
        size = change if change.value >= 0 or not gap.is_significant else _turned(change)
        span = f"{percent(self.level)} interval {interval_text(size, decimals)}"
        if not change.has_interval:
            return f"{model} against {other}: {number(change.value, decimals, signed=True)} {shown}."
        base = self.value(other)
        relative = f", {number(100 * change.value / base, 0, signed=True)} %" if base > 0 else ""
        if not gap.is_significant:
            return (
                f"No clear difference between {model} and {other} in {shown}: "
                f"{number(change.value, decimals, signed=True)} ({span})."
            )
        higher = parse_metric(self.primary).metric.higher_is_better
        verb = "beats" if (change.value > 0) == higher else "is worse than"
        wins = f"better for {percent(gap.win_rate)} of users and worse for {percent(gap.loss_rate)}"
        amount = number(size.value, decimals)
        return f"{model} {verb} {other} by {amount} {shown} ({span}{relative}); it is {wins}."

    def table(self, k: int | None = None, *, beyond_accuracy: bool = False) -> TextTable:
        """Models by metrics at one cut-off (by default that of the primary metric), best by it first.

        Args:
            k: The cut-off.
            beyond_accuracy: Show coverage, novelty and the like instead of metrics of hits.

        Returns:
            The table; it may have no columns but the model's.
        """
        k = k or int(self.primary.partition("@")[2])
        names = [
            name
            for name in self.metrics
            if name.endswith(f"@{k}") and is_beyond_accuracy(name) == beyond_accuracy
        ]
        decimals = {name: decimals_for([one[name] for one in self.models.values()]) for name in names}
        rows = [
            [model, *(number(self.models[model][name].value, decimals[name]) for name in names)]
            for model in self.by_primary()
        ]
        return TextTable(["model", *(metric_title(name) for name in names)], rows)

    def comparison(self, metric: str | None = None) -> TextTable:
        """Models by one metric with interval and paired difference from the reference, best first."""
        name = metric or self.primary
        decimals = decimals_for([one[name] for one in self.models.values()])
        header = ["model", metric_title(name), f"{percent(self.level)} interval"]
        if self.differences:
            header += [
                f"minus {self.reference}",
                f"{percent(self.level)} interval",
                "p",
                "won / lost",
            ]
        rows = []
        for model in self.by_primary(name):
            one = self.models[model][name]
            row = [model, number(one.value, decimals), interval_text(one, decimals)]
            if self.differences:
                row += self._difference_cells(model, name, decimals)
            rows.append(row)
        return TextTable(header, rows)

    def _difference_cells(self, model: str, metric: str, decimals: int) -> list[str]:
        if model not in self.differences:
            return ["–"] * 4
        gap = self.differences[model][metric]
        return [
            number(gap.difference.value, decimals, signed=True),
            interval_text(gap.difference, decimals, signed=True),
            p_value_text(gap.p_value, 2 / (self.resamples + 1)),
            won_lost(gap),
        ]

    def apart_table(self) -> TextTable:
        """The primary metric of every model for cold users, warm users and cold items, with intervals."""
        decimals = {
            name: decimals_for([table[self.primary] for table in part.models.values()])
            for name, part in self.apart.items()
        }
        rows = []
        for model in self.by_primary():
            cells = [model]
            for name, part in self.apart.items():
                one = part.models[model][self.primary]
                span = f" ({interval_text(one, decimals[name])})" if one.has_interval else ""
                cells.append(f"{number(one.value, decimals[name])}{span}")
            rows.append(cells)
        parts = [
            f"{name}, {part.n_users:,} user{'' if part.n_users == 1 else 's'}"
            for name, part in self.apart.items()
        ]
        return TextTable([metric_title(self.primary), *parts], rows)

    def by_primary(self, metric: str | None = None) -> list[str]:
        """Model names, best first by a metric (the primary one by default)."""
        name = metric or self.primary
        sign = -1 if parse_metric(name).metric.higher_is_better else 1
        return sorted(self.models, key=lambda model: sign * self.models[model][name].value)

    def plot(self, metric: str | None = None, model: str | None = None) -> "Figure":
        """The primary metric of every model with intervals, or a metric against k.

        Args:
            metric: A metric without a cut-off, such as "ndcg", to draw against k.
            model: The model to emphasise.

        Returns:
            A matplotlib figure.

        Raises:
            MetricError: The metric was not computed.
        """
        if metric is None:
            return ranking_overview(self, model)
        names = dict.fromkeys(name.partition("@")[0] for name in self.metrics)
        if metric not in names:
            raise MetricError(f"Metric {metric!r} was not computed; {did_you_mean(metric, names)}")
        return metric_by_k(self, metric, model)

    def facts(self) -> str:
        """One or two sentences of context."""
        what = self.candidates or f"{self.n_items:,} items"
        text = f"{self.n_users:,} users, each ranked over {what} less those already seen."
        if self.is_sampled:
            text += (
                " WARNING: figures on sampled candidates are far higher than on the whole catalogue, depend on how "
                "many are sampled, and are not comparable with others."
            )
        if self.n_excluded:
            text += f" {self.n_excluded:,} users without an unseen relevant item are left out."
        if self.n_relevant_seen:
            text += f" {self.n_relevant_seen:,} relevant items that the user had already seen do not count."
        return text

    def method(self) -> str:
        """How the intervals were made, in words."""
        if not self.resamples:
            return "No intervals were computed."
        return (
            f"Intervals: {percent(self.level)}, percentile bootstrap over users, {self.resamples:,} resamples, "
            f"seed {self.seed}. Differences are paired: both models on the same users."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form.

        Returns:
            ``{"schema": "easyrec.ranking/1", "reference", "primary", "ks", "n_users", "n_excluded", "n_items",
            "n_relevant_seen", "level", "resamples", "seed", "models": {model: {metric: {"value", "low", "high",
            "level", "n", "note"}}}, "differences": {model: {metric: {"difference": {..}, "p_value", "win_rate",
            "loss_rate"}}}, "verdicts": {model: sentence}, "apart": {part: {"meaning", "n_users", "models"}},
            "candidates", "is_sampled", "popularity": {"groups", "shares"} or None, "strongest", "from_strongest":
            {model: as in "differences"}}``. Numbers that do not exist are None, never NaN.
        """
        return {
            "schema": SCHEMA,
            "reference": self.reference,
            "primary": self.primary,
            "ks": list(self.ks),
            "n_users": self.n_users,
            "n_excluded": self.n_excluded,
            "n_items": self.n_items,
            "n_relevant_seen": self.n_relevant_seen,
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
            "models": {
                model: {name: one.to_dict() for name, one in table.items()}
                for model, table in self.models.items()
            },
            "differences": {
                model: {name: one.to_dict() for name, one in table.items()}
                for model, table in self.differences.items()
            },
            "verdicts": {model: self.verdict(model) for model in self.differences},
            "apart": {name: part.to_dict() for name, part in self.apart.items()},
            "candidates": self.candidates,
            "is_sampled": self.is_sampled,
            "popularity": self.popularity.to_dict() if self.popularity else None,
            "strongest": self.strongest,
            "from_strongest": {name: gap.to_dict() for name, gap in self.from_strongest.items()},
        }

    def to_markdown(self) -> str:
        """Verdicts, the comparison and all metrics at each cut-off."""
        parts = [self.facts(), *(f"- {one}" for model in self._judged() for one in self.verdicts(model))]
        parts.append(self.comparison().to_markdown())
        parts += [self.table(k).to_markdown() for k in self.ks]
        beyond = self.table(beyond_accuracy=True)
        if len(beyond.header) > 1:
            parts.append(beyond.to_markdown())
        if self.apart:
            parts.append(self.apart_table().to_markdown())
        return "\n\n".join([*parts, self.method()]) + "\n"

    def _judged(self) -> list[str]:
        """Models that can be compared, those that are no baselines first, each kind best first."""
        judged = [model for model in self.by_primary() if model in self.differences]
        return sorted(judged, key=lambda model: model in BASELINES)

    def __str__(self) -> str:
        """Tables for a terminal."""
        parts = [self.facts(), self.comparison().to_text(), self.table().to_text()]
        beyond = self.table(beyond_accuracy=True)
        parts += [beyond.to_text()] if len(beyond.header) > 1 else []
        parts += [self.apart_table().to_text()] if self.apart else []
        parts += [" ".join(self.verdicts(model)) for model in self._judged()[:1]]
        return "\n\n".join([*parts, self.method()])

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(self.facts())}</p>"]
        parts += [f"<p>{escape(' '.join(self.verdicts(model)))}</p>" for model in self._judged()[:1]]
        parts += [self.comparison().to_html(), *(self.table(k).to_html() for k in self.ks)]
        beyond = self.table(beyond_accuracy=True)
        parts += [beyond.to_html()] if len(beyond.header) > 1 else []
        parts += [self.apart_table().to_html()] if self.apart else []
        return "".join([*parts, f"<p>{escape(self.method())}</p>"])


def is_beyond_accuracy(name: str) -> bool:
    """Whether a metric says something else of lists than how well they hit."""
    metric = parse_metric(name).metric
    return metric.of_all_lists or bool(metric.needs)


def won_lost(gap: PairedDifference) -> str:
    """Shares of users won and lost, e.g. ``42 / 31 %``; a dash for a metric that has no value a user."""
    if math.isnan(gap.win_rate):
        return "–"
    return f"{number(100 * gap.win_rate, 0)} / {percent(gap.loss_rate)}"


def _turned(change: Estimate) -> Estimate:
    """The same change seen from the other side, so that "worse by" is followed by positive numbers."""
    return replace(change, value=-change.value, low=-change.high, high=-change.low)
