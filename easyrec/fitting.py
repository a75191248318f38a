"""Trains the network of a prepared run: on this machine, from files or shards, or on a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import RetrievalTask
from easyrec.data.bound import BoundDataset
from easyrec.data.prepared.local import Finished, shard_stream
from easyrec.data.prepared.training import held_out_shards, shards_folder, training_shards
from easyrec.data.readers.base import BATCH_ROWS
from easyrec.data.stream import EncodedStream
from easyrec.errors import CheckpointError, DataError, TrainingError
from easyrec.export.ranking import Ranker
from easyrec.export.signatures import ModelFunctions
from easyrec.export.tables import KeyedTable
from easyrec.features.batch import EncodedBatch
from easyrec.features.encoder import Encoder
from easyrec.offline import MODEL, NOBODY_TO_JUDGE, RANKING, NetworkPredictor, OfflineEvaluation, flat_metrics
from easyrec.preparation import ConfigSource, Prepared, Tell, fitted, open_prepared
from easyrec.run import RunFolder
from easyrec.training.callbacks import Callback
from easyrec.training.checkpoints import CheckpointStore, open_checkpoint
from easyrec.training.cluster.chief import ClusterJob, Evaluators, train_on_cluster
from easyrec.training.cluster.prediction import read_predictions
from easyrec.training.cluster.roles import PS, WORKER, LocalCluster
from easyrec.training.memory import check_memory, memory_shortage
from easyrec.training.plan import TrainingPlan, plan_training
from easyrec.training.prefetch import BatchStream
from easyrec.training.replicas import Replicas, ReplicaTrainer
from easyrec.training.report import TrainingResult
from easyrec.training.state import network_state
from easyrec.training.strategy import Choice, choose, start_replicas
from easyrec.training.trainer import Trainer

_USERS_IN_TRAINING = 500


def fit(
    prepared: Prepared,
    *,
    resume: bool = False,
    cluster: str | None = None,
    replicas: Replicas | None = None,
    checkpoints: Path | None = None,
    callbacks: Sequence[Callback] = (),
    tell: Tell = lambda text: None,
) -> TrainingResult:
    """Trains the network of a run, writing checkpoints and the log into its folder.

    Args:
        prepared: The run.
        resume: Go on from the latest checkpoint.
        cluster: As for `easyrec.workflow.train`.
        replicas: Of a synchronous training, from `start_replicas`; connected here unless given.
        checkpoints: Folder of the checkpoints, where it is not the run's own.
        callbacks: Follow the training.
        tell: Called with one line of text as each step begins.
    """
    config, data, encoder = prepared.config, prepared.data, prepared.encoder
    training = config.training
    choice = choose(training, cluster)
    if choice.strategy == "parameter_server":
        return _fit_on_cluster(prepared, choice, resume, callbacks, tell)
    encoder.reset_coverage()
    latest = CheckpointStore(prepared.run.checkpoints).latest() if resume else None
    finished = (
        Finished() if latest is None else Finished(latest.progress.epoch, tuple(latest.progress.splits))
    )
    options: dict[str, Any] = {
        "rows": rows_per_epoch(prepared),
        "evaluate": None if data.eval is None else InTraining(prepared),
        "schema": encoder.schema,
        "callbacks": callbacks,
    }
    replicas = replicas or start_replicas(choice)
    directory = prepared.run.directory
    if replicas is None:
        trainer = Trainer(prepared.network, training, directory, **options)
    else:
        trainer = ReplicaTrainer(prepared.network, training, directory, replicas=replicas, **options)
    if checkpoints is not None:
        trainer.checkpoints = CheckpointStore(checkpoints, training.checkpoints.keep)
    if training.shards.local or finished.splits:
        tell("preparing shards")
        folder = shards_folder(config, prepared.run.prepared)
        stream: BatchStream = shard_stream(
            config, training_shards(config, data, encoder, folder, tell=tell), finished
        )
    else:
        stream = EncodedStream(
            data.train,
            lambda table: encoder.encode_table(table, count=True),
            batch_size=training.batch_size,
            shuffle_buffer=config.data.shuffle_buffer if config.data.shuffle else 0,
            seed=training.seed,
        )
    tell(f"training {choice.why}")
    return trainer.fit(stream, resume=resume)


def _fit_on_cluster(
    prepared: Prepared, choice: Choice, resume: bool, callbacks: Sequence[Callback], tell: Tell
) -> TrainingResult:
    """Trains on parameter servers: shards are prepared, and processes that have them train."""
    config, data, encoder = prepared.config, prepared.data, prepared.encoder
    if choice.cluster is None:
        raise TrainingError("there is no cluster")
    tell("preparing shards")
    folder = shards_folder(config, prepared.run.prepared)
    shards = training_shards(config, data, encoder, folder, tell=tell)
    evaluate = None if data.eval is None else InTraining(prepared)
    on_workers = evaluate is not None and not evaluate.ranks
    job = ClusterJob(
        prepared.run.directory,
        shards.folder,
        shards.fingerprint,
        held_out_shards(config, data, encoder, folder, tell=tell).folder if on_workers else None,
        None if evaluate is None else evaluate.rows_for_predictions,
        {label.task: (label.moments.mean, label.moments.deviation) for label in data.train.labels},
        config.training.warm_start is not None,
    )
    tell(f"training {choice.why}")
    for line in plan_of(config, encoder, EncodedBatch.concat(shards.read(shards.splits[0])), choice).lines():
        tell(line)
    if isinstance(choice.cluster, LocalCluster):
        check_memory(config, encoder.schema)
    if (shortage := memory_shortage(config, encoder.schema)) is not None:
        if evaluate is not None and evaluate.ranks:
            raise TrainingError(
                f"{shortage}, so ranked lists cannot be computed here: set `evaluation.ranking: false`"
            )
        tell(f"note: {shortage}. They are trained where they lie, but neither measured nor exported here")
    return train_on_cluster(
        job,
        choice.cluster,
        config=config.training.cluster,
        resume=resume,
        evaluators=None if evaluate is None else Evaluators(evaluate.predictions, evaluate.weights),
        callbacks=callbacks,
        tell=tell,
    )


def evaluate_beside(
    run: RunFolder, *, tell: Tell = lambda text: None, poll: float = 2.0, patience: float = 120.0
) -> None:
    """Measures each checkpoint of a run as it is written, until the run has ended: what an evaluator does.

    Lines with step and metrics go to `evaluator.jsonl` in the run's folder, which must be shared with the chief.

    Args:
        run: The run; it need not have begun. One that is replaced meanwhile is measured from its beginning.
        tell: Called with one line of text for each checkpoint measured.
        poll: Seconds between looks.
        patience: Seconds to wait whether a run that had ended before is replaced or goes on.
    """
    began = time.time()
    tell(f"waiting for checkpoints in {run.checkpoints}")
    while not _evaluate_to_its_end(run, began, tell, poll, patience):
        pass


def _evaluate_to_its_end(run: RunFolder, began: float, tell: Tell, poll: float, patience: float) -> bool:
    """Whether the run has ended; not if another one has taken its place."""
    while not (run.exists() and run.features.is_dir()):
        time.sleep(poll)
    identity = run.config_path.stat()
    measure = InTraining(open_prepared(run))
    store, measured = CheckpointStore(run.checkpoints), set[int]()
    ended, changed = False, time.monotonic()
    while True:
        for checkpoint in store.all():
            if checkpoint.step in measured:
                continue
            with contextlib.suppress(CheckpointError):  # the chief has removed it meanwhile
                metrics = measure.weights(checkpoint.path)
                measured.add(checkpoint.step)
                changed = time.monotonic()
                line = {"step": checkpoint.step, "time": time.time(), **metrics}
                with (run.directory / "evaluator.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                shown = [f"{name} {value:.4f}" for name, value in metrics.items()]
                tell("  ".join([f"step {checkpoint.step}", *shown]))
        if ended:
            return True
        if not (run.exists() and os.path.samestat(run.config_path.stat(), identity)):
            return False
        if run.summary_path.is_file():  # then once more, for the last checkpoint
            now = time.monotonic()
            ended = run.summary_path.stat().st_mtime >= began or now - changed > patience
        if not ended:
            time.sleep(poll)


def plan_of(config: PipelineConfig, encoder: Encoder, rows: EncodedBatch, choice: Choice) -> TrainingPlan:
    """What training will take.

    Args:
        config: The resolved configuration.
        encoder: Its fitted features.
        rows: Some rows of the data, a batch if possible.
        choice: Where training runs.
    """
    servers, workers = 0, choice.replicas
    if isinstance(choice.cluster, LocalCluster):
        servers, workers = choice.cluster.ps, choice.cluster.workers
    elif choice.cluster is not None and choice.strategy == "parameter_server":
        servers, workers = len(choice.cluster.roles(PS)), len(choice.cluster.roles(WORKER))
    batch = rows.slice(0, config.training.batch_size)
    return plan_training(config, encoder.schema, batch, servers=servers, workers=workers)


def plan(
    config: ConfigSource,
    overrides: Sequence[str] = (),
    *,
    run: str | Path | None = None,
    cluster: str | None = None,
    tell: Tell = lambda text: None,
) -> TrainingPlan:
    """What training a pipeline will take; vocabularies are learned, nothing is trained or allocated.

    For the arguments see `easyrec.workflow.train`.
    """
    _, data, encoder = fitted(config, overrides, run=run, tell=tell)
    rows = encoder.encode_table(_like_a_batch(data))
    return plan_of(data.config, encoder, rows, choose(data.config.training, cluster))


def _like_a_batch(data: BoundDataset) -> pa.Table:
    """As many rows as a batch has, from as many places: neighbours have fewer distinct ids than a batch."""
    config = data.config
    size, found, rows = config.training.batch_size, [], 0
    for chunk in data.train.chunks(config.training.seed if config.data.shuffle else None):
        found.append(chunk)
        rows += chunk.num_rows
        if rows >= size:
            break
    table = pa.concat_tables(found)
    if not config.data.shuffle:
        return table.slice(0, size)
    return table.take(np.random.default_rng(config.training.seed).permutation(rows)[:size])


class InTraining:
    """Metrics quick enough to be computed after every epoch; called, those of the network as it is."""

    def __init__(self, prepared: Prepared) -> None:
        config, training = prepared.config, prepared.config.training
        self._prepared = prepared
        self._offline = offline = OfflineEvaluation(config, prepared.data, prepared.encoder)
        stopping = training.early_stopping.metric if training.early_stopping else None
        monitored = [name for name in (training.checkpoints.metric, stopping) if name is not None]
        watched = next((name for name in monitored if name.startswith(f"{RANKING}/")), None)
        self.ranks = (not offline.tasks or watched is not None) and offline.ranks
        if watched is not None and not self.ranks:
            raise DataError(f"{watched!r} cannot be watched: {NOBODY_TO_JUDGE}")
        share = training.validation_fraction
        eval_rows = prepared.data.eval.num_rows if prepared.data.eval is not None else None
        self._max_rows = None if share is None or eval_rows is None else max(1, int(eval_rows * share))

    @property
    def rows_for_predictions(self) -> int | None:
        """How many held-out rows must have predictions: those measured, to the end of a chunk."""
        return None if self._max_rows is None else self._max_rows + 2 * BATCH_ROWS

    @cached_property
    def _ranker(self) -> Ranker | None:
        return ranker_of(self._prepared) if self.ranks else None

    @cached_property
    def _predict(self) -> NetworkPredictor:
        """Made when asked for: where workers predict, the network is not needed here."""
        prepared = self._prepared
        return NetworkPredictor(prepared.encoder, prepared.network, prepared.config.evaluation.batch_size)

    def __call__(self) -> dict[str, float]:
        """Metrics of the network as it is."""
        rows = self._offline.rows(self._predict, intervals=False, max_rows=self._max_rows)
        ranking = (
            None
            if self._ranker is None
            else self._offline.ranking(
                {MODEL: self._ranker}, intervals=False, baselines=False, max_users=_USERS_IN_TRAINING
            )
        )
        return _default_first(flat_metrics(rows, ranking), self._prepared.config)

    def predictions(self, path: Path) -> dict[str, float]:
        """Metrics of predictions that workers of a cluster made."""
        predict = read_predictions(path)
        rows = self._offline.rows(predict, intervals=False, max_rows=self._max_rows)
        return _default_first(flat_metrics(rows, None), self._prepared.config)

    def weights(self, path: Path) -> dict[str, float]:
        """Metrics of weights that a cluster trained."""
        checkpoint = open_checkpoint(path)
        for variable in network_state(self._prepared.network):
            variable.write(checkpoint.array(variable.name))
        return self()


def _default_first(metrics: dict[str, float], config: PipelineConfig) -> dict[str, float]:
    """The first task's first metric before the others: it is watched where no other is named."""
    name, task = next(iter(config.tasks.items()))
    metric = next(iter(task.effective_metrics), "")
    first = f"{RANKING if isinstance(task, RetrievalTask) else name}/{metric}"
    return {first: metrics[first], **metrics} if first in metrics else metrics


def ranker_of(prepared: Prepared) -> Ranker | None:
    """Ranks with the network as it is; None when it reads nothing of items."""
    items, key = prepared.data.items, prepared.config.data.keys.item
    if items is None or key is None:
        return None
    runtime = ModelFunctions(prepared.encoder, prepared.network, items.column_names).runtime()
    return Ranker(runtime, KeyedTable(items, key)) if runtime.has("score") else None


def rows_per_epoch(prepared: Prepared) -> int:
    """Rows of an epoch, as the pass over the data that prepared them counted."""
    train = prepared.data.train
    return train.report.rows_used + (0 if train.negatives is None else train.negatives.rows_added)
