"""START HERE: what `easyrec train` does, as four short steps.

    prepare   data and configuration are fitted to each other, vocabularies and statistics learned (`preparation`)
    fit       the network is trained, with checkpoints (`fitting`)
    measure   the best checkpoint is measured on held-out data, beside baselines
    export    the bundle is written: all that predicting and serving need

`train` runs them one after the other in a run's folder (`easyrec.run`) and writes the reports (`easyrec.reports`).
Each step can be called alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from easyrec.config.loader import parse_config
from easyrec.data.dataset import open_dataset
from easyrec.data.source import read_like
from easyrec.errors import DataError
from easyrec.examples import recommendation_examples
from easyrec.export.bundle import Bundle
from easyrec.export.frames import Frame
from easyrec.export.manifest import Manifest
from easyrec.export.write import positive_rows, write_bundle
from easyrec.features.encoder import Encoder
from easyrec.fitting import fit, ranker_of, rows_per_epoch
from easyrec.offline import (
    MODEL,
    NetworkPredictor,
    OfflineEvaluation,
)
from easyrec.preparation import ConfigSource, Prepared, Tell, prepare
from easyrec.reports import Measured, choice_of, evaluation_report_of, notes_of, write_reports
from easyrec.run import RunFolder, open_run
from easyrec.training.callbacks import Callback
from easyrec.training.checkpoints import CheckpointStore
from easyrec.training.cluster.roles import Cluster
from easyrec.training.memory import memory_shortage
from easyrec.training.report import TrainingResult
from easyrec.training.state import network_state
from easyrec.training.strategy import Choice, check_chief, choose, start_replicas
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
    cluster: str | None = None,
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
        cluster: `local:workers=2,ps=2` trains on a cluster of processes on this machine; `TF_CONFIG` describes others.
        callbacks: Follow the training.
        tell: Called with one line of text as each step begins.

    Returns:
        The run, what training did, and what the model reaches.

    Raises:
        EasyRecError: Configuration, data or training went wrong; the message says what to do.
    """
    loaded = parse_config(config, overrides)
    choice = choose(loaded.training, cluster)
    if choice.strategy == "parameter_server" and isinstance(choice.cluster, Cluster):
        check_chief(choice.cluster)
    replicas = start_replicas(choice)
    own = Path(run) if run is not None else Path(loaded.output) / loaded.name
    if not choice.chief:  # it trains along, and leaves checkpoints, measuring and the bundle to the chief
        prepared = prepare(
            loaded, run=own.with_name(f"{own.name}.{_task_of(choice)}"), overwrite=True, tell=tell
        )
        checkpoints = RunFolder(own).checkpoints
        result = fit(
            prepared,
            resume=resume,
            replicas=replicas,
            checkpoints=checkpoints,
            callbacks=callbacks,
            tell=tell,
        )
        return Run(prepared.run, result, Measured())
    remote = choice.strategy == "parameter_server"
    prepared = prepare(loaded, run=own, resume=resume, overwrite=overwrite, remote=remote, tell=tell)
    result = fit(prepared, resume=resume, cluster=cluster, replicas=replicas, callbacks=callbacks, tell=tell)
    if result.reason == "interrupted":
        return Run(prepared.run, result, Measured())
    if remote and (shortage := memory_shortage(prepared.config, prepared.encoder.schema)) is not None:
        note = f"{shortage}, so nothing was measured or exported; `easyrec export {own}` does both where there is room"
        return Run(prepared.run, result, Measured(), (*prepared.notes, note))
    restore_best(prepared)
    tell("measuring on held-out data")
    measured = measure(prepared)
    tell("writing the bundle")
    export(prepared, measured.metrics)
    left_out = write_reports(prepared, result, measured, lambda: _examples(prepared))
    return Run(
        prepared.run,
        result,
        measured,
        (
            *notes_of(prepared),
            *measured.notes,
            *choice_of(prepared, result),
            *_few_steps(result, prepared),
            *left_out,
        ),
    )


def _task_of(choice: Choice) -> str:
    """Which process of a cluster this is, for the name of its folder."""
    return (
        f"{choice.cluster.task.job}-{choice.cluster.task.index}"
        if isinstance(choice.cluster, Cluster)
        else ""
    )


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
    ranker = ranker_of(prepared) if offline.ranks else None
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
    encoder = Encoder.load(config, folder.features)
    offline = OfflineEvaluation(config, rows, encoder)
    ranker = bundle.catalogue.ranker if offline.ranks and bundle.runtime.has("score") else None
    measured = Measured(
        offline.rows(lambda table: bundle.runtime.predict(table), intervals=True),
        None if ranker is None else offline.ranking({MODEL: ranker}, intervals=True),
        offline.notes,
    )
    page, left_out = evaluation_report_of(
        folder,
        config,
        rows,
        encoder,
        measured,
        other_rows=data or (),
        folder=report,
        examples=lambda: recommendation_examples(bundle),
    )
    return replace(measured, notes=(*measured.notes, *left_out)), page


# Parts.


def _few_steps(result: TrainingResult, prepared: Prepared) -> list[str]:
    """A note when the weights had little chance to move."""
    training = prepared.config.training
    if result.reason != "completed" or result.steps >= _FEW_STEPS:
        return []
    return [
        f"training took only {result.steps} steps ({rows_per_epoch(prepared):,} rows an epoch, batches of "
        f"{training.batch_size:,}, epochs: {training.epochs}); a smaller `training.batch_size` or more "
        "`training.epochs` would teach the model more"
    ]


def _examples(prepared: Prepared) -> list[Example]:
    """What the bundle just written recommends to some users, for the report."""
    keys = prepared.config.data.keys
    if keys.user is None or keys.item is None or not prepared.config.export.users:
        return []  # such a bundle recommends to nobody, and need not be loaded
    return recommendation_examples(Bundle.load(prepared.run.bundle, verify=False))


def _interactions(prepared: Prepared) -> Any:
    """Training rows in which a user took an item."""
    keys = prepared.config.data.keys
    if keys.item is None:
        return ()
    names = [name for name in (keys.user, keys.item, keys.time) if name is not None]
    labels = [label.column for label in prepared.data.train.labels]
    return positive_rows(prepared.data.train.chunks(columns=[*names, *labels]), prepared.config)
