"""START HERE: what `easyrec train` does, as four short steps.

    prepare   data and configuration are fitted to each other, vocabularies and statistics learned (`preparation`)
    fit       the network is trained, with checkpoints
    measure   the best checkpoint is measured on held-out data, beside baselines
    export    the bundle is written: all that predicting and serving need

`train` runs them one after the other in a run's folder (`easyrec.run`) and writes the reports (`easyrec.reports`).
Each step can be called alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import RetrievalTask
from easyrec.data.dataset import open_dataset
from easyrec.data.source import read_like
from easyrec.data.stream import EncodedStream
from easyrec.errors import DataError
from easyrec.examples import recommendation_examples
from easyrec.export.bundle import Bundle
from easyrec.export.frames import Frame
from easyrec.export.manifest import Manifest
from easyrec.export.ranking import Ranker
from easyrec.export.signatures import ModelFunctions
from easyrec.export.tables import KeyedTable
from easyrec.export.write import positive_rows, write_bundle
from easyrec.features.encoder import Encoder
from easyrec.offline import (
    MODEL,
    NOBODY_TO_JUDGE,
    RANKING,
    NetworkPredictor,
    OfflineEvaluation,
    flat_metrics,
)
from easyrec.preparation import ConfigSource, Prepared, Tell, prepare
from easyrec.reports import Measured, notes_of, write_evaluation_report, write_reports
from easyrec.run import RunFolder, open_run
from easyrec.training.callbacks import Callback
from easyrec.training.checkpoints import CheckpointStore
from easyrec.training.report import TrainingResult
from easyrec.training.state import network_state
from easyrec.training.trainer import Trainer
from evaluation import Example

_USERS_IN_TRAINING = 500
_FEW_STEPS = 100


@dataclass(frozen=True)
class Run:
    """A finished (or interrupted) training.

    Attributes:
        folder: Its folder.
        result: What training did.
        measured: What the model reaches; empty when training was interrupted.
        notes: What a reader of the numbers should know.
    """

    folder: RunFolder
    result: TrainingResult
    measured: Measured
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        metric = self.result.monitor
        value = f", {metric}={self.metrics[metric]:.4f}" if metric in self.metrics else ""
        return f"Run({str(self.folder.directory)!r}, {self.result.reason} after {self.result.steps} steps{value})"

    @property
    def metrics(self) -> dict[str, float]:
        """Values by `task/metric` and `ranking/metric@k`."""
        return self.measured.metrics

    @cached_property
    def bundle(self) -> Bundle:
        """The bundle, loaded and verified; it predicts and recommends.

        Raises:
            BundleError: There is none, because training was interrupted.
        """
        return Bundle.load(self.folder.bundle)

    def predict(self, frame: Frame, **options: Any) -> pd.DataFrame:
        """Predictions for rows, see `Bundle.predict`."""
        return self.bundle.predict(frame, **options)

    def recommend(self, user: Any = None, n: int = 10, **options: Any) -> pd.DataFrame:
        """The best items for one user, see `Bundle.recommend`."""
        return self.bundle.recommend(user, n, **options)


def train(
    config: ConfigSource,
    overrides: Sequence[str] = (),
    *,
    run: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    tell: Tell = lambda text: None,
) -> Run:
    """Trains a pipeline, measures it and exports its bundle.

    Args:
        config: Path of a YAML file, a mapping of the same shape, or a configuration.
        overrides: `dotted.path=value` each, as with `--set`.
        run: Folder of the run; `<output>/<name>` unless given.
        resume: Continue an interrupted run from its latest checkpoint; start it if there is none.
        overwrite: Replace a run that is there already.
        callbacks: Follow the training.
        tell: Called with one line of text as each step begins.

    Returns:
        The run, what training did, and what the model reaches.

    Raises:
        EasyRecError: Configuration, data or training went wrong; the message says what to do.
    """
    prepared = prepare(config, overrides, run=run, resume=resume, overwrite=overwrite, tell=tell)
    result = fit(prepared, resume=resume, callbacks=callbacks, tell=tell)
    if result.reason == "interrupted":
        return Run(prepared.run, result, Measured())
    restore_best(prepared)
    tell("measuring on held-out data")
    measured = measure(prepared)
    tell("writing the bundle")
    export(prepared, measured.metrics)
    write_reports(prepared, result, measured, _examples(prepared))
    return Run(
        prepared.run, result, measured, (*notes_of(prepared), *measured.notes, *_few_steps(result, prepared))
    )


def fit(
    prepared: Prepared,
    *,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    tell: Tell = lambda text: None,
) -> TrainingResult:
    """Trains the network of a run, writing checkpoints and the log into its folder."""
    config, data, encoder = prepared.config, prepared.data, prepared.encoder
    training = config.training
    encoder.reset_coverage()
    stream = EncodedStream(
        data.train,
        lambda table: encoder.encode_table(table, count=True),
        batch_size=training.batch_size,
        shuffle_buffer=config.data.shuffle_buffer if config.data.shuffle else 0,
        seed=training.seed,
    )
    trainer = Trainer(
        prepared.network,
        training,
        prepared.run.directory,
        rows=_rows_per_epoch(prepared),
        evaluate=None if data.eval is None else _in_training(prepared),
        schema=encoder.schema,
        callbacks=callbacks,
    )
    tell("training")
    return trainer.fit(stream, resume=resume)


def restore_best(prepared: Prepared, which: str | None = None) -> None:
    """Gives the network the weights of a checkpoint of its run: `export.checkpoint` unless `which` is given."""
    checkpoint = CheckpointStore(prepared.run.checkpoints).choose(which or prepared.config.export.checkpoint)
    for variable in network_state(prepared.network):
        variable.write(checkpoint.array(variable.name))


def measure(prepared: Prepared) -> Measured:
    """Measures the network on the evaluation rows, with confidence intervals and beside baselines."""
    data, config = prepared.data, prepared.config
    if data.eval is None:
        return Measured()
    offline = OfflineEvaluation(config, data, prepared.encoder)
    predict = NetworkPredictor(prepared.encoder, prepared.network, config.evaluation.batch_size)
    rows = offline.rows(predict, intervals=True)
    ranker = _ranker(prepared) if offline.ranks else None
    ranking = None if ranker is None else offline.ranking({MODEL: ranker}, intervals=True)
    return Measured(rows, ranking, offline.notes)


def export(prepared: Prepared, metrics: Mapping[str, float] | None = None) -> Manifest:
    """Writes the bundle of a run from the network as it is."""
    config, data = prepared.config, prepared.data
    example_rows = data.eval if data.eval is not None else data.train
    return write_bundle(
        prepared.run.bundle,
        config=config,
        encoder=prepared.encoder,
        network=prepared.network,
        examples=next(iter(example_rows.chunks())),
        items=data.items,
        users=data.user_snapshot() if config.data.keys.user is not None and config.export.users else None,
        interactions=_interactions(prepared),
        metrics=metrics,
    )


def evaluate_run(
    run: str | Path,
    *,
    data: tuple[str, ...] | None = None,
    report: Path | None = None,
    tell: Tell = lambda text: None,
) -> tuple[Measured, Path]:
    """Measures the bundle of a run and writes its evaluation report.

    Args:
        run: Folder of the run.
        data: Other evaluation rows than the run's own.
        report: Folder of the report; that of the run unless given.
        tell: Called with one line of text as each step begins.

    Returns:
        What the model reaches, and the HTML page.

    Raises:
        EasyRecError: There is no such run, or it has no evaluation rows.
    """
    folder = open_run(run)
    config = folder.config()
    if data is not None:
        source = read_like(config.data.train, data)
        config = config.model_copy(
            update={"data": config.data.model_copy(update={"eval": source, "split": None})}
        )
    tell("loading the bundle")
    bundle = Bundle.load(folder.bundle)
    rows = open_dataset(config, cache=folder.prepared).bind(config)
    if rows.eval is None:
        raise DataError(
            f"{folder.directory} has no evaluation rows: give them with --data, or `data.eval` when training"
        )
    tell("measuring")
    offline = OfflineEvaluation(config, rows, Encoder.load(config, folder.features))
    ranker = bundle.catalogue.ranker if offline.ranks and bundle.runtime.has("score") else None
    measured = Measured(
        offline.rows(lambda table: bundle.runtime.predict(table), intervals=True),
        None if ranker is None else offline.ranking({MODEL: ranker}, intervals=True),
        offline.notes,
    )
    examples = recommendation_examples(bundle)
    return measured, write_evaluation_report(folder, config, measured, folder=report, examples=examples)


# Parts.


def _in_training(prepared: Prepared) -> Callable[[], dict[str, float]]:
    """Metrics of the network as it is, quick enough to be computed after every epoch."""
    config, encoder, network = prepared.config, prepared.encoder, prepared.network
    training = config.training
    offline = OfflineEvaluation(config, prepared.data, encoder)
    predict = NetworkPredictor(encoder, network, config.evaluation.batch_size)
    stopping = training.early_stopping.metric if training.early_stopping else None
    monitored = [name for name in (training.checkpoints.metric, stopping) if name is not None]
    watched = next((name for name in monitored if name.startswith(f"{RANKING}/")), None)
    ranks = (not offline.tasks or watched is not None) and offline.ranks
    if watched is not None and not ranks:
        raise DataError(f"{watched!r} cannot be watched: {NOBODY_TO_JUDGE}")
    ranker = _ranker(prepared) if ranks else None
    share = training.validation_fraction
    eval_rows = prepared.data.eval.num_rows if prepared.data.eval is not None else None
    max_rows = None if share is None or eval_rows is None else max(1, int(eval_rows * share))

    def evaluate() -> dict[str, float]:
        rows = offline.rows(predict, intervals=False, max_rows=max_rows)
        ranking = (
            None
            if ranker is None
            else offline.ranking(
                {MODEL: ranker}, intervals=False, baselines=False, max_users=_USERS_IN_TRAINING
            )
        )
        return _default_first(flat_metrics(rows, ranking), config)

    return evaluate


def _default_first(metrics: dict[str, float], config: PipelineConfig) -> dict[str, float]:
    """The first task's first metric before the others: it is watched where no other is named."""
    name, task = next(iter(config.tasks.items()))
    metric = next(iter(task.effective_metrics), "")
    first = f"{RANKING if isinstance(task, RetrievalTask) else name}/{metric}"
    return {first: metrics[first], **metrics} if first in metrics else metrics


def _few_steps(result: TrainingResult, prepared: Prepared) -> list[str]:
    """A note when the weights had little chance to move."""
    training = prepared.config.training
    if result.reason != "completed" or result.steps >= _FEW_STEPS:
        return []
    return [
        f"training took only {result.steps} steps ({_rows_per_epoch(prepared):,} rows an epoch, batches of "
        f"{training.batch_size:,}, epochs: {training.epochs}); a smaller `training.batch_size` or more "
        "`training.epochs` would teach the model more"
    ]


def _examples(prepared: Prepared) -> list[Example]:
    """What the bundle just written recommends to some users, for the report."""
    keys = prepared.config.data.keys
    if keys.user is None or keys.item is None or not prepared.config.export.users:
        return []  # such a bundle recommends to nobody, and need not be loaded
    return recommendation_examples(Bundle.load(prepared.run.bundle, verify=False))


def _ranker(prepared: Prepared) -> Ranker | None:
    """Ranks with the network as it is; None when it reads nothing of items."""
    items, key = prepared.data.items, prepared.config.data.keys.item
    if items is None or key is None:
        return None
    runtime = ModelFunctions(prepared.encoder, prepared.network, items.column_names).runtime()
    return Ranker(runtime, KeyedTable(items, key)) if runtime.has("score") else None


def _interactions(prepared: Prepared) -> Any:
    """Training rows in which a user took an item."""
    keys = prepared.config.data.keys
    if keys.item is None:
        return ()
    names = [name for name in (keys.user, keys.item, keys.time) if name is not None]
    labels = [label.column for label in prepared.data.train.labels]
    return positive_rows(prepared.data.train.chunks(columns=[*names, *labels]), prepared.config)


def _rows_per_epoch(prepared: Prepared) -> int:
    """Rows of an epoch, as the pass over the data that prepared them counted."""
    train = prepared.data.train
    return train.report.rows_used + (0 if train.negatives is None else train.negatives.rows_added)
