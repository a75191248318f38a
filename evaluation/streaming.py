"""Judge a long Parquet file in bounded memory: about 20 bytes a row are held, and rows are looked at in blocks.

Metrics are exact. Sums are added up; the order of scores is scanned range by range (`order_scan`); users are judged in
blocks of whole users. Intervals draw random groups of users, and are first-order where the order of scores counts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads

from evaluation.arrays import FloatArray, IntArray, floats, sum_by_code
from evaluation.compact import MAX_UNITS, CompactRows, read_compact, spread, unit_of
from evaluation.curves import binary_curves
from evaluation.errors import DataError, did_you_mean
from evaluation.metrics.metric import MetricAtK
from evaluation.metrics.pointwise import AUC, PR_AUC
from evaluation.metrics.regression import R2, r2_statistic
from evaluation.metrics.rows import Rows
from evaluation.metrics.statistic import AdditiveStatistic, GroupMeanStatistic, Resampler, is_additive, ratio
from evaluation.metrics.thresholds import BEST_F1, Decisions, decisions_of
from evaluation.order_scan import OrderScan, scan_scores
from evaluation.plans import Groups, MetricNames, Plan, TaskColumns, choose_metrics
from evaluation.results import EvaluationResult, TaskResult
from evaluation.uncertainty import Estimate, estimate_from_draws, resample_weights

STREAMED_ROWS = 10_000_000
"""Parquet files of more rows are judged in blocks."""

_USER_BLOCK_ROWS = 1 << 22
_SAMPLE_ROWS = 1 << 20


def rows_in_file(path: str | Path) -> int:
    """The number of rows of a Parquet file or folder as its footers say; 0 for anything else."""
    try:
        return int(pads.dataset(path, format="parquet").count_rows())
    except (pa.ArrowInvalid, OSError):
        return 0  # a CSV file, or no file at all: who reads it finds out what is wrong


def labels_are_binary(path: str | Path, label: str) -> bool:
    """Whether every label of a Parquet file is 0 or 1, read batch by batch.

    Raises:
        DataError: There is no such column, or it holds something else than numbers.
    """
    data = pads.dataset(path, format="parquet")
    if label not in data.schema.names:
        raise DataError(f"{path} has no column {label!r}; {did_you_mean(label, data.schema.names)}")
    batches = data.to_batches(columns=[label], batch_readahead=2, fragment_readahead=1)
    parts = (floats(batch.column(label).to_numpy(zero_copy_only=False), label) for batch in batches)
    return all(bool(((part == 0) | (part == 1)).all()) for part in parts)


def evaluate_file(
    path: str | Path,
    *,
    tasks: Mapping[str, TaskColumns],
    user: str | None,
    weight: str | None,
    metrics: MetricNames,
    level: float,
    resamples: int,
    seed: int,
) -> EvaluationResult:
    """`evaluate` for a Parquet file, task by task, in bounded memory.

    Args:
        path: A Parquet file or folder.
        tasks: Binary and regression tasks.
        user: Column of users.
        weight: Column of row weights.
        metrics: As for `evaluate`.
        level: Confidence level.
        resamples: Number of bootstrap resamples, 0 for no intervals.
        seed: Seed of the resamples.

    Returns:
        As `evaluate`; XAUC, which needs all pairs of rows, is left out.

    Raises:
        DataError: A multi-class task, or values that do not fit.
        MetricError: See `evaluate`.
    """
    results, n_units, n_drawn = {}, 0, 0
    for name, task in tasks.items():
        if task.type not in ("binary", "regression"):
            raise DataError(
                f"Task {name!r} is {task.type}; a file of more than {STREAMED_ROWS:,} rows is judged in blocks, which "
                "binary and regression tasks can be. Judge a part of the file."
            )
        asked = metrics.get(name) if isinstance(metrics, Mapping) else metrics
        for column in (task.label, *task.score_columns, *(one for one in (user, weight) if one is not None)):
            names = pads.dataset(path, format="parquet").schema.names
            if column not in names:
                raise DataError(f"{path} has no column {column!r}; {did_you_mean(column, names)}")
        judge = _Judge(name, task, read_compact(path, task, user, weight), asked)
        results[name] = judge.result(level, resamples, seed)
        n_units, n_drawn = judge.n_units, judge.n_drawn
    grouped = n_drawn if n_drawn < n_units else None
    return EvaluationResult(
        results, "row" if user is None else "user", n_units, level, resamples, seed, grouped
    )


@dataclass(frozen=True)
class _Found:
    value: float
    draw: Resampler


class _Judge:
    """Computes the metrics of one task of a long table."""

    def __init__(self, name: str, task: TaskColumns, rows: CompactRows, asked: Sequence[str] | None) -> None:
        self._name, self._task, self._rows = name, task, rows
        low, high = float(rows.score.min()), float(rows.score.max())
        self._is_probability = low >= 0 and high <= 1
        nobody = Groups("user", np.empty(0, np.int64), 0, np.empty(0, np.int64))
        chosen, self._left_out = choose_metrics(
            name,
            task.type,
            asked,
            {} if rows.user is None else {"grouped": nobody},
            is_probability=self._is_probability,
        )
        self._metrics = []
        for column in chosen:
            if column.name == "xauc":
                self._left_out["xauc"] = (
                    "it compares all pairs of rows, which are too many in a table this long"
                )
            else:
                self._metrics.append(column)
        self._weight = np.zeros(MAX_UNITS)
        self._mixed_users = 0
        self.n_units = len(rows)

    @property
    def n_drawn(self) -> int:
        """The number of random groups that have rows."""
        return int((self._weight > 0).sum())

    def result(self, level: float, resamples: int, seed: int) -> TaskResult:
        """All metrics with intervals."""
        sums, label_sum, score_sum = self._add_up()
        found = {
            column.name: self._of_sums(self._statistic(column).finish, sums[column.name])
            for column in self._additive()
        }
        scan = self._scan()
        found |= self._in_order(scan)
        found |= self._within_users()
        draws = self._draw({name: one.draw for name, one in found.items()}, resamples, seed)
        estimates = {}
        for column in self._metrics:
            one, metric = found[column.name], column.metric
            estimates[column.name] = (
                estimate_from_draws(
                    one.value,
                    draws[column.name],
                    level=level,
                    n=self.n_units,
                    undefined=metric.undefined,
                    is_biased=metric.is_biased,
                )
                if draws
                else Estimate(
                    one.value,
                    level=level,
                    n=self.n_units,
                    note="" if one.value == one.value else metric.undefined,
                )
            )
        total = self._weight.sum()
        binary = self._task.type == "binary"
        return TaskResult(
            name=self._name,
            type=self._task.type,
            n_rows=len(self._rows),
            label_mean=label_sum / total,
            score_mean=score_sum / total,
            metrics=estimates,
            left_out=self._left_out,
            notes=(
                f"Judged in blocks, as tables of more than {STREAMED_ROWS:,} rows are: without baselines, and without "
                "looking for rows of the same user and item.",
                *self._notes(),
            ),
            curves=binary_curves(self._sample()) if binary else None,
            decisions=self._decisions(scan) if scan else {},
        )

    # Sums.

    def _additive(self) -> list[MetricAtK]:
        return [column for column in self._metrics if is_additive(column.metric.statistic)]

    def _statistic(self, column: MetricAtK) -> AdditiveStatistic:
        statistic = column.metric.statistic
        if statistic is R2:  # blocks can be added up if all centre their squares at the same place
            return r2_statistic(float(self._rows.label[0]))
        if not is_additive(statistic):
            raise DataError(f"Metric {column.name!r} cannot be added up over blocks of rows.")
        return statistic

    def _add_up(self) -> tuple[dict[str, FloatArray], float, float]:
        """One pass over the rows: the sums of each metric and unit, and the sums of labels and scores."""
        statistics = {column.name: self._statistic(column) for column in self._additive()}
        sums: dict[str, FloatArray] = {}
        label_sum = score_sum = 0.0
        for block in self._rows.blocks():
            rows, unit = self._rows.rows(block), self._rows.units(block)
            self._weight += sum_by_code(rows.weight, unit, MAX_UNITS)
            label_sum += float(rows.label @ rows.weight)
            score_sum += float(rows.score.astype(np.float64) @ rows.weight)
            for name, statistic in statistics.items():
                part = statistic.sums(rows, unit, MAX_UNITS)
                sums[name] = sums[name] + part if name in sums else part
        return sums, label_sum, score_sum

    def _of_sums(self, finish: Callable[[FloatArray], FloatArray], sums: FloatArray) -> _Found:
        kept = sums[self._weight > 0]
        value = float(finish(sums.sum(axis=0)[None])[0])
        return _Found(value, lambda weight: finish(weight.T @ kept))

    # Order.

    def _scan(self) -> OrderScan | None:
        if self._task.type != "binary":
            return None
        positive = np.zeros(MAX_UNITS)
        for block in self._rows.blocks():
            rows = self._rows.rows(block)
            positive += sum_by_code(rows.weight * rows.label, self._rows.units(block), MAX_UNITS)
        return scan_scores(self._rows, positive, self._weight - positive)

    def _in_order(self, scan: OrderScan | None) -> dict[str, _Found]:
        if scan is None:
            return {}
        used = self._weight > 0

        def of_units(draw: Resampler) -> Resampler:
            def expanded(weight: FloatArray) -> FloatArray:
                full = np.zeros((MAX_UNITS, weight.shape[1]))
                full[used] = weight
                return draw(full)

            return expanded

        found = (
            (AUC, _Found(scan.auc, of_units(scan.auc_draws))),
            (PR_AUC, _Found(scan.average_precision, of_units(scan.average_precision_draws))),
            (BEST_F1, self._best_f1(scan)),
        )
        return {
            column.name: one
            for column in self._metrics
            for statistic, one in found
            if column.metric.statistic is statistic
        }

    def _best_f1(self, scan: OrderScan) -> _Found:
        # Near its best threshold F1 is flat, so resamples may keep the threshold of the data.
        total = scan.positives.sum()
        if not total:
            return _Found(float("nan"), lambda weight: np.full(weight.shape[1], np.nan))
        hits, taken = np.zeros(MAX_UNITS), np.zeros(MAX_UNITS)
        for block in self._rows.blocks():
            rows, unit = self._rows.rows(block), self._rows.units(block)
            chosen = rows.weight * (rows.score >= scan.best_threshold)
            taken += sum_by_code(chosen, unit, MAX_UNITS)
            hits += sum_by_code(chosen * rows.label, unit, MAX_UNITS)
        used = self._weight > 0
        sums = np.stack([2 * hits, taken + scan.positives], axis=1)[used]
        return _Found(scan.best_f1, lambda weight: ratio(weight.T @ sums[:, 0], weight.T @ sums[:, 1]))

    def _decisions(self, scan: OrderScan) -> dict[str, Decisions]:
        wanted = {"default": 0.5} if self._is_probability else {}
        if scan.positives.any():
            wanted["best"] = scan.best_threshold
        found = {}
        for name, threshold in wanted.items():
            parts = [decisions_of(self._rows.rows(block), threshold) for block in self._rows.blocks()]
            counts = np.sum(
                [
                    (one.true_positives, one.false_positives, one.false_negatives, one.true_negatives)
                    for one in parts
                ],
                axis=0,
            ).tolist()
            found[name] = Decisions(threshold, *counts)
        return found

    # Users.

    def _within_users(self) -> dict[str, _Found]:
        user = self._rows.user
        if user is None:
            return {}
        columns = [
            column
            for column in self._metrics
            if column.metric.is_ranking or isinstance(column.metric.statistic, GroupMeanStatistic)
        ]
        n_blocks = -(-len(user) // _USER_BLOCK_ROWS)
        block_of = np.empty(len(user), dtype=np.uint16)
        for part in self._rows.blocks():
            block_of[part] = spread(user[part]) % np.uint64(n_blocks)
        sums = {column.name: np.zeros((MAX_UNITS, 2)) for column in columns}
        self.n_units = 0
        for block in range(n_blocks):
            at = np.flatnonzero(block_of == block)
            if not len(at):
                continue
            code, keys = pd.factorize(user[at])
            self.n_units += len(keys)
            self._add_users(columns, sums, self._rows.rows(at), code.astype(np.int64), unit_of(keys))
        return {
            name: self._of_sums(lambda sums: ratio(sums[..., 0], sums[..., 1]), part)
            for name, part in sums.items()
        }

    def _add_users(
        self,
        columns: list[MetricAtK],
        sums: dict[str, FloatArray],
        rows: Rows,
        code: IntArray,
        unit: IntArray,
    ) -> None:
        groups = Groups("user", code, len(unit), unit)
        plan = Plan(self._name, self._task.type, rows, columns, {}, {"grouped": groups})
        for column in columns:
            statistic = plan.statistic(column)
            if not isinstance(statistic, GroupMeanStatistic):  # what `columns` were chosen by
                continue
            values, counts = statistic.per_group(rows, code, len(unit))
            if column.name == "gauc":
                self._mixed_users += int((counts > 0).sum())
            known = np.where(counts > 0, values, 0.0) * counts
            for place, part in enumerate((known, counts)):
                sums[column.name][:, place] += sum_by_code(part, unit, MAX_UNITS)

    # All together.

    def _draw(self, resamplers: dict[str, Resampler], resamples: int, seed: int) -> dict[str, FloatArray]:
        if not resamples or self.n_drawn < 2:
            return {}
        blocks: dict[str, list[FloatArray]] = {name: [] for name in resamplers}
        for weight in resample_weights(self.n_drawn, resamples, seed):
            for name, draw in resamplers.items():
                blocks[name].append(draw(weight))
        return {name: np.concatenate(parts) for name, parts in blocks.items()}

    def _sample(self) -> Rows:
        n = len(self._rows)
        if n <= _SAMPLE_ROWS:
            return self._rows.rows(slice(0, n))
        return self._rows.rows(np.sort(np.random.default_rng(n).choice(n, _SAMPLE_ROWS, replace=False)))

    def _notes(self) -> list[str]:
        notes = []
        if len(self._rows) > _SAMPLE_ROWS and self._task.type == "binary":
            notes.append(
                f"Curves are drawn from {_SAMPLE_ROWS:,} rows chosen at random; metrics are of all rows."
            )
        if any(column.name == "gauc" for column in self._metrics) and self._mixed_users < self.n_units:
            skipped = self.n_units - self._mixed_users
            notes.append(
                f"gauc leaves out {skipped:,} of {self.n_units:,} users, whose rows are of one class."
            )
        return notes
