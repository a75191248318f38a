"""Measures a model on held-out data: predictions of rows, and lists ranked from the whole catalogue.

The same code measures a network in training, the finished network, and a bundle: each is given as a function that
predicts the rows of a table, and as a `Ranker`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
from scipy import sparse

from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import RetrievalTask, class_names
from easyrec.data.bound import BoundDataset
from easyrec.errors import DataError
from easyrec.export.ranking import Ranker
from easyrec.export.runtime import Predictions
from easyrec.features.encoder import Encoder
from easyrec.models.network import Network
from easyrec.offline.catalogue import Catalogue, read_catalogue
from easyrec.offline.errors import raises_easyrec_errors
from easyrec.offline.rates import LabelSums, training_sums
from evaluation import (
    EvaluationResult,
    RankingResult,
    SliceResult,
    TaskColumns,
    evaluate,
    evaluate_ranking,
    evaluate_slices,
    fit_baselines,
)
from evaluation.rates import DEFAULT_STRENGTH, rates_of_counts
from evaluation.slice_result import SLICE_RESAMPLES
from evaluation.uncertainty import DEFAULT_RESAMPLES

Predict = Callable[[pa.Table], Predictions]
ScoreFunction = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]]
RANKING = "ranking"
NOBODY_TO_JUDGE = (
    "no ranked lists were judged: no user of the evaluation rows has a relevant item that is in the catalogue and was "
    "not seen in training (see `evaluation.relevant`)"
)
MODEL = "model"
"""Name of the one model in a ranking that compares it with baselines only."""


class NetworkPredictor:
    """Predicts the rows of tables with a network as it is now, on the path that training takes.

    Args:
        encoder: The fitted features.
        network: The network; later changes of its weights take effect at once.
        batch_rows: Rows computed at once.
    """

    def __init__(self, encoder: Encoder, network: Network, batch_rows: int) -> None:
        self._encoder = encoder
        self._network = network
        self._batch_rows = batch_rows
        self._function: Any = None

    def __call__(self, table: pa.Table) -> Predictions:
        """Predictions by task: [B] float32, or [B, C] for a task of C classes."""
        batch = self._encoder.encode_table(table)
        parts = []
        for start in range(0, max(len(batch), 1), self._batch_rows):
            tensors = {
                key: tf.convert_to_tensor(value)
                for key, value in batch.slice(start, start + self._batch_rows).as_dict().items()
            }
            if self._function is None:
                signature = {
                    key: tf.TensorSpec([None, *value.shape[1:]], value.dtype)
                    for key, value in tensors.items()
                }
                # TensorFlow counts the traces of one code; behind `partial`, each network has its own.
                predict = partial(self._network.predict)
                self._function = tf.function(predict, input_signature=[signature], autograph=False)
            parts.append({task: value.numpy() for task, value in self._function(tensors).items()})
        return {task: np.concatenate([part[task] for part in parts]) for task in parts[0]}


class OfflineEvaluation:
    """The held-out data of a pipeline, and how models are measured on them.

    Args:
        config: The resolved configuration.
        data: The data; must have evaluation rows.
        encoder: The fitted features, which give the content-based baseline its item attributes.
    """

    def __init__(self, config: PipelineConfig, data: BoundDataset, encoder: Encoder) -> None:
        self.config = config
        self._data = data
        self._encoder = encoder

    @property
    def ranks(self) -> bool:
        """Whether lists are ranked: as the configuration says, else when users and items have keys and hits."""
        keys = self.config.data.keys
        possible = keys.user is not None and keys.item is not None
        asked = self.config.evaluation.ranking
        if asked and not possible:
            raise DataError("evaluation.ranking needs `data.keys.user` and `data.keys.item`")
        if asked and not self._ordered:
            raise DataError(f"evaluation.ranking: {self._why_unordered}; rank by another task, placed first")
        return asked is not False and possible and self._ordered and self._anybody_to_judge

    @property
    def notes(self) -> tuple[str, ...]:
        """Why lists are not ranked although they might be."""
        keys = self.config.data.keys
        if keys.user is None or keys.item is None or self.config.evaluation.ranking is False or self.ranks:
            return ()
        if not self._ordered:
            return (f"no ranked lists were judged: {self._why_unordered}",)
        return (NOBODY_TO_JUDGE,)

    @property
    def _ordered(self) -> bool:
        """Whether the task that ranks says which of two items is better."""
        classes = class_names(next(iter(self.config.tasks.values())))
        return classes is None or not isinstance(classes[0], str)

    @property
    def _why_unordered(self) -> str:
        name, task = next(iter(self.config.tasks.items()))
        shown = ", ".join(repr(label) for label in (class_names(task) or ())[:3])
        return f"the classes of {name!r} ({shown}, ...) are words, and none is better than another"

    @cached_property
    def _anybody_to_judge(self) -> bool:
        relevant, seen = (matrix.astype(bool) for matrix in (self.catalogue.relevant, self.catalogue.seen))
        return bool(relevant.nnz > relevant.multiply(seen).nnz)

    @cached_property
    def tasks(self) -> dict[str, TaskColumns]:
        """Tasks whose predictions are compared with labels row by row."""
        found = {}
        for name, task in self.config.tasks.items():
            if isinstance(task, RetrievalTask):
                continue
            classes = class_names(task)
            score: Any = name if classes is None else [f"{name}_{label}" for label in classes]
            found[name] = TaskColumns(task.type, f"label/{name}", score)  # type: ignore[arg-type]
        return found

    # Rows.

    @raises_easyrec_errors
    def rows(
        self, predict: Predict, *, intervals: bool, max_rows: int | None = None
    ) -> EvaluationResult | None:
        """Metrics of the predictions of the evaluation rows; None when all tasks are retrieval.

        Args:
            predict: The model.
            intervals: Whether to compute confidence intervals.
            max_rows: Stop after about so many rows.
        """
        if not self.tasks or self._data.eval is None:
            return None
        table = self.predictions(predict, max_rows)
        user = self.config.data.keys.user
        metrics = {name: list(self.config.tasks[name].effective_metrics) for name in self.tasks}
        if intervals:  # the final measurement shows all that fit, unless the configuration says which
            metrics = {name: chosen for name, chosen in metrics.items() if self.config.tasks[name].metrics}
        options = self.config.evaluation
        baselines: dict[str, dict[str, str]] = {}
        sums: dict[str, LabelSums] = {}
        if intervals:
            sums = training_sums(self._data.train, self.config.data.keys, self.tasks.values())
            table, baselines = self._with_baselines(table, sums)
        result = evaluate(
            table,
            tasks=self.tasks,
            user=user,
            baselines=baselines,
            weight="weight" if self.config.data.weight is not None else None,
            metrics=metrics,
            intervals=intervals and options.resamples != 0,
            resamples=options.resamples or None,
            seed=self.config.training.seed,
        )
        return replace(result, slices=self._slices(table, sums, result)) if result.resamples else result

    def predictions(self, predict: Predict, max_rows: int | None = None) -> pa.Table:
        """A predictions table of the evaluation rows: users, items, weights, and by task `label/<task>` and scores.

        Args:
            predict: The model.
            max_rows: Stop after about so many rows.
        """
        rows = self._data.eval
        if rows is None:
            raise DataError("there are no evaluation rows: give `data.eval` or `data.split`")
        keys = self.config.data.keys
        parts, count = [], 0
        for chunk in rows.chunks():
            columns: dict[str, Any] = {key: chunk[key] for key in (keys.user, keys.item) if key is not None}
            columns.update({task.label: chunk[task.label] for task in self.tasks.values()})
            if "weight" in chunk.column_names and self.config.data.weight is not None:
                columns["weight"] = chunk["weight"]
            for name, values in predict(chunk).items():
                if name in self.tasks:
                    scores = self.tasks[name].score_columns
                    matrix = values.reshape(len(values), len(scores))
                    columns.update(
                        {column: pa.array(matrix[:, place]) for place, column in enumerate(scores)}
                    )
            parts.append(pa.table(columns))
            count += chunk.num_rows
            if max_rows is not None and count >= max_rows:
                break
        return pa.concat_tables(parts)

    def _slices(
        self, table: pa.Table, sums: Mapping[str, LabelSums], result: EvaluationResult
    ) -> tuple[SliceResult, ...]:
        """The first task by how many training rows users and items have, in quarters."""
        keys = self.config.data.keys
        name, task = next(iter(self.tasks.items()))
        known = sums[task.label]
        by = []
        for key, counts, title in (
            (keys.user, known.by_user, "user's training rows"),
            (keys.item, known.rows_by_item, "item's training rows"),
        ):
            if key is not None:
                rows = table[key].to_pandas().map(counts).fillna(0).to_numpy(np.float64)
                if rows.min() < rows.max():
                    table = table.append_column(title, pa.array(rows))
                    by.append(f"{title}:4")
        if not by:
            return ()
        found = evaluate_slices(
            table,
            by,
            tasks={name: task},
            user=keys.user,
            weight="weight" if self.config.data.weight is not None else None,
            # P-values adjusted for several slices live further out in the tails than the ends of an interval.
            resamples=max(result.resamples, SLICE_RESAMPLES),
            seed=self.config.training.seed,
        )
        # One number has one interval in a report, however often its bootstrap is run.
        overall = result[name].metrics.get(found.metric)
        return (found if overall is None else replace(found, overall=overall),)

    def _with_baselines(
        self, table: pa.Table, sums: Mapping[str, LabelSums]
    ) -> tuple[pa.Table, dict[str, dict[str, str]]]:
        """The table with what the training rows' means predict, and the columns of that by task and baseline."""
        item = self.config.data.keys.item
        tasks = {name: task for name, task in self.tasks.items() if task.type != "multiclass"}
        columns: dict[str, dict[str, str]] = {name: {} for name in self.tasks}
        for name, task in tasks.items():
            total = sums[task.label]
            constant = rates_of_counts(np.zeros(len(table)), {0: total.overall}, 0.0)
            found = {"constant": constant}
            if item is not None:
                found["item_rate"] = rates_of_counts(table[item].to_pandas(), total.by_item, DEFAULT_STRENGTH)
            for baseline, values in found.items():
                column = f"baseline/{baseline}/{name}"
                table = table.append_column(column, pa.array(values))
                columns[name][baseline] = column
        return table, columns

    # Ranked lists.

    @cached_property
    def catalogue(self) -> Catalogue:
        """Users, items and what is relevant; read once."""
        return read_catalogue(self.config, self._data, self._encoder)

    @raises_easyrec_errors
    def ranking(
        self,
        models: Mapping[str, Ranker | ScoreFunction],
        *,
        intervals: bool,
        baselines: bool = True,
        max_users: int | None = None,
        reference: str | None = None,
        resamples: int | None = None,
        k: Sequence[int] | None = None,
    ) -> RankingResult:
        """Compares models, and the configured baselines, on lists ranked from the whole catalogue, seen items removed.

        Args:
            models: By name.
            intervals: Whether to compute confidence intervals and differences.
            baselines: Whether baselines stand beside the models.
            max_users: Judge only so many users, drawn at random.
            reference: The model that others are compared with; popularity unless given.
            resamples: Number of bootstrap resamples; as configured unless given.
            k: Lengths of the lists; as configured unless given.
        """
        data, options = self.catalogue, self.config.evaluation
        draws = options.resamples if resamples is None else resamples
        rankers: dict[str, Any] = {
            name: self.scores(model) if isinstance(model, Ranker) else model for name, model in models.items()
        }
        if baselines:
            lacking = {
                "content_based": data.attributes is None,
                "recent_popularity": data.interactions.times is None,
                "last_item": data.interactions.times is None,
            }
            names = [name for name in options.baselines if not lacking.get(name)]
            rankers.update(
                fit_baselines(data.interactions, data.attributes, names=names, seed=self.config.training.seed)
            )
        return evaluate_ranking(
            rankers,
            _some(data.relevant, max_users, self.config.training.seed),
            data.seen,
            options.k if k is None else k,
            interactions=data.interactions if intervals else None,
            attributes=data.attributes if intervals else None,
            reference=reference,
            intervals=intervals and draws != 0,
            resamples=draws or DEFAULT_RESAMPLES,
            seed=self.config.training.seed,
        )

    def scores(self, ranker: Ranker) -> ScoreFunction:
        """Scores [b, items] of a model for user codes [b]."""
        users = self.catalogue.users

        def score(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
            return np.stack(list(ranker.scores(users.take(pa.array(codes)))))

        return score


def flat_metrics(
    rows: EvaluationResult | None, ranking: RankingResult | None, model: str = MODEL
) -> dict[str, float]:
    """Metric values by `task/metric` and `ranking/metric@k`: the names that checkpoints and early stopping use."""
    metrics: dict[str, float] = {}
    if ranking is not None:
        metrics.update({f"{RANKING}/{name}": one.value for name, one in ranking.models[model].items()})
    if rows is not None:
        for task, result in rows.tasks.items():
            metrics.update({f"{task}/{name}": one.value for name, one in result.metrics.items()})
    return metrics


def _some(relevant: sparse.csr_array, max_users: int | None, seed: int) -> sparse.csr_array:
    """The matrix with the rows of all but `max_users` users emptied."""
    judged = np.flatnonzero(np.diff(relevant.indptr))
    if max_users is None or len(judged) <= max_users:
        return relevant
    kept = np.zeros(relevant.shape[0])
    kept[np.random.default_rng(seed).choice(judged, max_users, replace=False)] = 1
    some = sparse.csr_array(sparse.diags_array(kept) @ relevant)
    some.eliminate_zeros()
    return some
