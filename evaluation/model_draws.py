"""Ranking metrics of several models on the same resamples of the same users."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.arrays import FloatArray
from evaluation.errors import DataError
from evaluation.metrics.metric import MetricAtK
from evaluation.metrics.ranking import RankedLists
from evaluation.uncertainty import (
    Estimate,
    PairedDifference,
    bootstrap_p_value,
    estimate_from_draws,
    resample_weights,
)


@dataclass(frozen=True)
class ModelDraws:
    """Values and bootstrap draws of every model and metric.

    Attributes:
        columns: The metrics.
        per_user: Values of each user by model, float64 [U, metrics]; nan for metrics of all lists together.
        values: Values by model [metrics].
        draws: Values on each resample by model [resamples, metrics]; without rows where none were asked for.
        n_users: Number of users.
        resamples: Number of resamples.
        seed: Their seed.
    """

    columns: Sequence[MetricAtK]
    per_user: Mapping[str, FloatArray]
    values: Mapping[str, FloatArray]
    draws: Mapping[str, FloatArray]
    n_users: int
    resamples: int
    seed: int

    @classmethod
    def of(
        cls, lists: Mapping[str, RankedLists], columns: Sequence[MetricAtK], resamples: int, seed: int
    ) -> "ModelDraws":
        """Compute all metrics of all models.

        Args:
            lists: By model; all of the same users.
            columns: The metrics.
            resamples: Number of resamples; 0 for none.
            seed: Their seed.

        Returns:
            Values and draws.

        Raises:
            DataError: A metric gives a value that is not finite for a user.
        """
        n_users = next(iter(lists.values())).n_users
        per_user = {name: _per_user(one, columns) for name, one in lists.items()}
        whole = [place for place, column in enumerate(columns) if column.metric.of_all_lists]
        resamplers = {
            (name, place): columns[place].metric.statistic.resampler(one, columns[place].k)  # type: ignore[union-attr, arg-type, call-arg]
            for name, one in lists.items()
            for place in whole
        }
        values = {}
        for name, table in per_user.items():
            values[name] = table.mean(axis=0) if n_users else np.full(len(columns), np.nan)
            for place in whole:
                values[name][place] = resamplers[name, place](np.ones((n_users, 1)))[0]
        blocks: dict[str, list[FloatArray]] = {name: [] for name in lists}
        for weight in resample_weights(n_users, resamples, seed) if n_users else ():
            for name, table in per_user.items():
                drawn = weight.T @ table / n_users
                for place in whole:
                    drawn[:, place] = resamplers[name, place](weight)
                blocks[name].append(drawn)
        empty = np.empty((0, len(columns)))
        draws = {name: np.concatenate([empty, *parts]) for name, parts in blocks.items()}
        return cls(columns, per_user, values, draws, n_users, resamples, seed)

    def estimates(self, level: float) -> dict[str, dict[str, Estimate]]:
        """Estimates by model and metric."""
        return {
            name: {
                column.name: self._estimate(
                    column, float(self.values[name][place]), self.draws[name][:, place], level
                )
                for place, column in enumerate(self.columns)
            }
            for name in self.values
        }

    def _estimate(self, column: MetricAtK, value: float, draws: FloatArray, level: float) -> Estimate:
        undefined = column.metric.undefined or "there are no users"
        if not len(draws):
            return Estimate(value, level=level, n=self.n_users, note=undefined if np.isnan(value) else "")
        return estimate_from_draws(
            value, draws, level=level, n=self.n_users, undefined=undefined, is_biased=column.metric.is_biased
        )

    def differences(self, reference: str, level: float) -> dict[str, dict[str, PairedDifference]]:
        """Every other model minus the reference, by model and metric."""
        return {
            name: {
                column.name: self._difference(name, reference, place, level)
                for place, column in enumerate(self.columns)
            }
            for name in self.values
            if name != reference
        }

    def _difference(self, name: str, reference: str, place: int, level: float) -> PairedDifference:
        change = float(self.values[name][place] - self.values[reference][place])
        draws = self.draws[name][:, place] - self.draws[reference][:, place]
        one = estimate_from_draws(
            change, draws, level=level, n=self.n_users, undefined="it is undefined for a model"
        )
        gap = self.per_user[name][:, place] - self.per_user[reference][:, place]
        known = not np.isnan(gap).any() and len(gap) > 0
        shares = (float(np.mean(gap > 0)), float(np.mean(gap < 0))) if known else (np.nan, np.nan)
        return PairedDifference(one, bootstrap_p_value(draws) if one.has_interval else np.nan, *shares)


def _per_user(lists: RankedLists, columns: Sequence[MetricAtK]) -> FloatArray:
    table = np.full((lists.n_users, len(columns)), np.nan)
    for place, column in enumerate(columns):
        if not column.metric.of_all_lists:
            table[:, place] = column.metric.function(lists, column.k)
            if not np.isfinite(table[:, place]).all():
                raise DataError(f"Metric {column.name!r} gives a value that is not finite for some users.")
    return table
