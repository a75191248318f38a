"""Explains a run: which features its metrics need, and what each feature adds to single predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from easyrec.config.tasks import RetrievalTask
from easyrec.data.dataset import open_dataset
from easyrec.data.source import read_like
from easyrec.errors import DataError, nearest
from easyrec.features.encoder import Encoder
from easyrec.models.network import build_network
from easyrec.offline.attribution import IntegratedGradients, feature_columns, score_of_task
from easyrec.offline.errors import raises_easyrec_errors
from easyrec.offline.evaluation import NetworkPredictor, OfflineEvaluation
from easyrec.run import open_run
from easyrec.training.checkpoints import CheckpointStore
from easyrec.training.state import network_state
from evaluation import Attribution, ImportanceResult, permutation_importance

DEFAULT_ROWS = 5000
DEFAULT_EXAMPLES = 3


@dataclass(frozen=True)
class Explanation:
    """What `explain_run` found.

    Attributes:
        importance: Permutation importance of every feature; None for a retrieval task, which has no metric of rows.
        attributions: Some predictions taken apart.
        rows: Number of evaluation rows looked at.
    """

    importance: ImportanceResult | None
    attributions: list[Attribution]
    rows: int


@raises_easyrec_errors
def explain_run(
    run: str | Path,
    *,
    task: str | None = None,
    metric: str | None = None,
    data: Sequence[str] | None = None,
    rows: int = DEFAULT_ROWS,
    examples: int = DEFAULT_EXAMPLES,
    repeats: int = 3,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> Explanation:
    """Explains the network of a run's exported checkpoint.

    Args:
        run: Folder of the run.
        task: The task; the first unless given.
        metric: What importance is measured by; AUC, RMSE or accuracy unless given.
        data: Other evaluation rows than the run's own.
        rows: Look at about so many evaluation rows.
        examples: Take so many predictions apart, spread from the lowest to the highest.
        repeats: How often each feature is shuffled.
        seed: Seed of shuffles and intervals.
        tell: Called with one line of text as each step begins.

    Returns:
        Importance and attributions.

    Raises:
        EasyRecError: There is no such run, task or checkpoint, there are no evaluation rows, or the metric does not fit
            the task.
    """
    folder = open_run(run)
    config = folder.config()
    if task is not None and task not in config.tasks:
        raise DataError(f"{folder.directory} has no task {task!r}.{nearest(task, config.tasks)}")
    if data is not None:
        source = read_like(config.data.train, tuple(data))
        config = config.model_copy(
            update={"data": config.data.model_copy(update={"eval": source, "split": None})}
        )
    chosen = task or next(iter(config.tasks))
    tell("loading the model")
    encoder = Encoder.load(config, folder.features)
    network = build_network(config, encoder.schema)
    checkpoint = CheckpointStore(folder.checkpoints).choose(config.export.checkpoint)
    for variable in network_state(network):
        variable.write(checkpoint.array(variable.name))
    bound = open_dataset(config, cache=folder.prepared).bind(config)
    if bound.eval is None:
        raise DataError(f"{folder.directory} has no evaluation rows: give them with --data")
    table = _first_rows(bound.eval.chunks(), rows)
    predictor = NetworkPredictor(encoder, network, config.evaluation.batch_size)
    gradients = IntegratedGradients(network, encoder, table, chosen)
    score = score_of_task(predictor, chosen)
    importance = None
    if not isinstance(config.tasks[chosen], RetrievalTask):
        tell(f"shuffling {len(gradients.features)} features")
        columns = OfflineEvaluation(config, bound, encoder).tasks[chosen]
        user = config.data.keys.user
        importance = permutation_importance(
            score,
            table,
            table[columns.label].to_numpy(),
            feature_columns(encoder, gradients.features),
            task=chosen,
            type_=columns.type,
            metric=metric,
            user=None if user is None else table[user].to_pandas(),
            weight=table["weight"].to_numpy() if config.data.weight is not None else None,
            repeats=repeats,
            seed=seed,
        )
    tell("taking predictions apart")
    picked = _spread(np.asarray(score(table)), examples)
    names = [_name(table, int(row), [config.data.keys.user, config.data.keys.item]) for row in picked]
    attributions = gradients.explain(table.take(pa.array(picked)), names) if len(picked) else []
    return Explanation(importance, attributions, len(table))


def _first_rows(chunks: Any, rows: int) -> pa.Table:
    parts, count = [], 0
    for chunk in chunks:
        parts.append(chunk)
        count += chunk.num_rows
        if count >= rows:
            break
    return pa.concat_tables(parts).slice(0, rows)


def _spread(score: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Rows from the lowest to the highest score, evenly apart."""
    single = score if score.ndim == 1 else score.max(axis=1)
    order = np.argsort(single, kind="stable")
    places = np.linspace(len(order) - 1, 0, min(count, len(order))).astype(np.int64)
    return order[places]


def _name(table: pa.Table, row: int, keys: Sequence[str | None]) -> str:
    known = [
        f"{key} {table[key][row].as_py()}" for key in keys if key is not None and key in table.column_names
    ]
    return ", ".join(known) or f"row {row}"
