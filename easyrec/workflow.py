"""START HERE: what `easyrec train` does, as four short steps.

    prepare   data and configuration are fitted to each other; vocabularies and statistics are learned
    fit       the network is trained, with checkpoints
    measure   the best checkpoint is measured on held-out data, beside baselines
    export    the bundle is written: all that predicting and serving need

`train` runs them one after the other in a run's folder (`easyrec.run`). Each step can be called alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import pandas as pd

from easyrec.config.loader import parse_config
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.resolve import resolve
from easyrec.config.schema import resolved_yaml
from easyrec.config.tasks import RetrievalTask
from easyrec.data.bound import BoundDataset
from easyrec.data.dataset import open_dataset
from easyrec.data.stream import EncodedStream
from easyrec.errors import DataError
from easyrec.examples import recommendation_examples
from easyrec.export.bundle import Bundle
from easyrec.export.frames import Frame
from easyrec.export.ranking import Ranker
from easyrec.export.signatures import ModelFunctions
from easyrec.export.tables import KeyedTable
from easyrec.export.write import positive_rows, write_bundle
from easyrec.features.encoder import Encoder
from easyrec.models.network import Network, build_network
from easyrec.offline import NetworkPredictor, OfflineEvaluation, flat_metrics
from easyrec.run import RunFolder, abandon, find_place, open_run, start_run
from easyrec.training.callbacks import Callback
from easyrec.training.checkpoints import CheckpointStore
from easyrec.training.report import TrainingResult, run_report
from easyrec.training.report import write_report as write_run_report
from easyrec.training.state import network_state
from easyrec.training.trainer import Trainer
from easyrec.training.warm_start import warm_start
from easyrec.versions import versions
from evaluation import EvaluationResult, Example, RankingResult, write_report

ConfigSource = PipelineConfig | Mapping[str, Any] | str | Path
Tell = Callable[[str], None]
MODEL = "model"
_USERS_IN_TRAINING = 500


@dataclass(frozen=True)
class Prepared:
    """A run whose data, features and network fit each other.

    Attributes:
        run: The folder.
        config: The resolved configuration.
        data: The data.
        encoder: The fitted features.
        network: The network, untrained.
        notes: What a reader should know of how it starts.
    """

    run: RunFolder
    config: PipelineConfig
    data: BoundDataset
    encoder: Encoder
    network: Network
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """What the model reaches on held-out data; both are None without evaluation rows."""

    rows: EvaluationResult | None = None
    ranking: RankingResult | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """Values by `task/metric` and `ranking/metric@k`."""
        return flat_metrics(self.rows, self.ranking)


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
    bundle = export(prepared, measured.metrics)
    write_reports(prepared, result, measured, recommendation_examples(bundle))
    return Run(prepared.run, result, measured, tuple(_notes(prepared)))


def prepare(
    config: ConfigSource,
    overrides: Sequence[str] = (),
    *,
    run: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    tell: Tell = lambda text: None,
) -> Prepared:
    """Fits data and configuration to each other, learns vocabularies and statistics, builds the network.

    For the arguments see `train`.
    """
    loaded = parse_config(config, overrides)
    directory = Path(run) if run is not None else Path(loaded.output) / loaded.name
    folder = RunFolder(directory)
    continued = resume and folder.exists()
    if not continued:
        folder = find_place(directory, overwrite=overwrite)
    try:
        tell("reading the data")
        dataset = open_dataset(loaded, cache=folder.prepared)
        resolved = resolve(loaded, dataset.columns)
        if continued:
            open_run(directory, resolved)
        prepared = _assemble(folder, dataset.bind(resolved), continued, tell)
        if not continued:
            start_run(folder, resolved)
            dataset.store.prune()
        if not _fitted(folder):
            _save_features(folder, prepared.encoder)
    except BaseException:
        abandon(folder)
        raise
    return prepared


def open_prepared(run: RunFolder, *, tell: Tell = lambda text: None) -> Prepared:
    """The data, features and network of a run that has been prepared before.

    Args:
        run: Its folder.
        tell: Called with one line of text as each step begins.
    """
    config = run.config()
    tell("reading the data")
    data = open_dataset(config, cache=run.prepared).bind(config)
    encoder = Encoder.load(config, run.features)
    return Prepared(run, config, data, encoder, _network(config, encoder))


def _assemble(run: RunFolder, data: BoundDataset, continued: bool, tell: Tell) -> Prepared:
    """Everything that training needs, with nothing of the run's folder changed but its prepared data."""
    config = data.config
    if continued and _fitted(run):
        encoder = Encoder.load(config, run.features)
        _read_through(data.train.chunks(columns=_label_columns(data)))
    else:
        tell("learning vocabularies and statistics")
        encoder = _fit_features(data)
    network = _network(config, encoder)
    notes: tuple[str, ...] = ()
    if config.training.warm_start is not None and not (continued and CheckpointStore(run.checkpoints).all()):
        notes = tuple(warm_start(network, encoder, config.training.warm_start).lines())
    return Prepared(run, config, data, encoder, network, notes)


def _fit_features(data: BoundDataset) -> Encoder:
    """Vocabularies and statistics in one pass over the training rows, which also counts them and checks the labels."""
    config = data.config
    item = _item_feature(config)
    counted = [] if item is None else [item]
    encoder = Encoder(config, data.feature_columns)
    chunks = data.train.chunks(columns=[*encoder.fit_columns(counted), *_label_columns(data)])
    encoder.fit(chunks, counted)
    _read_through(chunks)
    return encoder


def _read_through(chunks: Iterable[Any]) -> None:
    """Reads what is left: a pass that goes to the end counts the rows and checks the labels."""
    for _ in chunks:
        pass


def _label_columns(data: BoundDataset) -> list[str]:
    return [label.column for label in data.train.labels]


def _network(config: PipelineConfig, encoder: Encoder) -> Network:
    keras.utils.set_random_seed(config.training.seed)
    item = _item_feature(config)
    return build_network(config, encoder.schema, encoder.counts(item) if item is not None else None)


def _fitted(run: RunFolder) -> bool:
    return run.features.is_dir()


def _save_features(run: RunFolder, encoder: Encoder) -> None:
    """Writes the fitted features, whole or not at all."""
    writing = run.features.with_name(f".{run.features.name}.writing")
    shutil.rmtree(writing, ignore_errors=True)
    encoder.save(writing)
    writing.replace(run.features)


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
    return Measured(rows, ranking)


def export(prepared: Prepared, metrics: Mapping[str, float] | None = None) -> Bundle:
    """Writes the bundle of a run from the network as it is."""
    config, data = prepared.config, prepared.data
    example_rows = data.eval if data.eval is not None else data.train
    write_bundle(
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
    return Bundle.load(prepared.run.bundle, verify=False)


def write_reports(
    prepared: Prepared, result: TrainingResult, measured: Measured, examples: Sequence[Example] = ()
) -> None:
    """Writes the run report (`run.json`) and the evaluation report (`report/`), with example recommendations."""
    run, encoder = prepared.run, prepared.encoder
    coverage = encoder.coverage()
    report = run_report(
        result,
        prepared.data.report.as_dict(),
        coverage,
        metrics=measured.metrics,
        warnings=_notes(prepared),
    )
    write_run_report(run.summary_path, report)
    write_evaluation_report(run, prepared.config, measured, coverage, examples=examples)


def write_evaluation_report(
    run: RunFolder,
    config: PipelineConfig,
    measured: Measured,
    coverage: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    examples: Sequence[Example] = (),
    model: str = MODEL,
) -> Path:
    """Writes the evaluation report of a run.

    Args:
        run: The run.
        config: Its configuration.
        measured: What the model reaches.
        coverage: Of its features; as the run report has it unless given.
        folder: Where to write; `report/` of the run unless given.
        examples: Example recommendations.
        model: Which model of `measured.ranking` the report is about.

    Returns:
        The HTML page.
    """
    summary = run.summary()
    training = summary.get("training", {})
    facts = {
        "model": config.model.type,
        "training rows": summary.get("data", {}).get("train", {}).get("rows_used"),
        "evaluation rows": summary.get("data", {}).get("eval", {}).get("rows_used"),
        "epochs": training.get("epochs"),
        "examples per second": _rounded(training.get("examples_per_second")),
        "training seconds": _rounded(training.get("seconds")),
    }
    paths = write_report(
        folder or run.report,
        title=config.name,
        evaluation=measured.rows,
        ranking=measured.ranking,
        model=model if measured.ranking is not None else None,
        summary={name: value for name, value in facts.items() if value is not None},
        training_log=_curves(run),
        coverage=coverage if coverage is not None else summary.get("features"),
        examples=examples,
        config_text=resolved_yaml(config),
        versions=versions(),
        command=f"easyrec train {run.config_path}",
    )
    return paths.html


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
        source = config.data.train.model_copy(update={"path": data, "format": None})
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
    )
    examples = recommendation_examples(bundle)
    return measured, write_evaluation_report(folder, config, measured, folder=report, examples=examples)


# Parts.


def _item_feature(config: PipelineConfig) -> str | None:
    """The feature of the item key whose counts a retrieval loss needs."""
    if not any(isinstance(task, RetrievalTask) for task in config.tasks.values()):
        return None
    key = config.data.keys.item
    return next(
        (
            name
            for name, feature in config.features.items()
            if feature.type == "id" and feature.columns(name) == [key]
        ),
        None,
    )


def _in_training(prepared: Prepared) -> Callable[[], dict[str, float]]:
    """Metrics of the network as it is, quick enough to be computed after every epoch."""
    config, encoder, network = prepared.config, prepared.encoder, prepared.network
    training = config.training
    offline = OfflineEvaluation(config, prepared.data, encoder)
    predict = NetworkPredictor(encoder, network, config.evaluation.batch_size)
    stopping = training.early_stopping.metric if training.early_stopping else None
    monitored = [name for name in (training.checkpoints.metric, stopping) if name is not None]
    ranks = not offline.tasks or any(name.startswith("ranking/") for name in monitored)
    ranker = _ranker(prepared) if ranks and offline.ranks else None
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
        return flat_metrics(rows, ranking)

    return evaluate


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


def _curves(run: RunFolder) -> list[dict[str, Any]]:
    """Losses and metrics by step, from the log."""
    curves = []
    for line in run.logged():
        if line.get("event") == "train":
            curves.append({"step": line["step"], "train/loss": line["loss"]})
        elif line.get("event") == "evaluation":
            metrics = {name: value for name, value in line.items() if "/" in name}
            curves.append(
                {"step": line["step"], **{f"eval/{name}": value for name, value in metrics.items()}}
            )
    return curves


def _notes(prepared: Prepared) -> list[str]:
    encoder = prepared.encoder
    return [*prepared.notes, *prepared.data.report.notes, *encoder.warnings, *encoder.coverage_warnings()]


def _rounded(value: float | None) -> int | float | None:
    return None if value is None else round(value) if value >= 10 else round(value, 2)
